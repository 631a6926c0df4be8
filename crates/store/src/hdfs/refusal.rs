//! What a failure of the library means. Pure.
//!
//! Invariant: what may pass is told from what won't by the class that the server names; by its words only where one class means two things.

use block::{Error, Kind};
use hdfs_native::HdfsError;
use std::fmt::Display;
use std::io::ErrorKind;

/// Letters of what a server says that are handed on.
const WORDS_MAX: usize = 300;

/// Ports at which a name node shows web pages unless it was told others, of Hadoop 3 and 2.
const WEB_PORTS: [&str; 4] = ["9870", "9871", "50070", "50470"];

/// Whether another name node may do what this one didn't.
pub fn is_of_one_server(error: &HdfsError) -> bool {
    match error {
        HdfsError::IOError(_) => true,
        HdfsError::RPCError(class, _) | HdfsError::FatalRPCError(class, _) => {
            matches!(short(class), "StandbyException" | "ObserverRetryOnActiveException")
        }
        _ => false,
    }
}

/// A failure in our words; `server` is who was asked.
pub fn error(error: &HdfsError, server: &str, on: &(dyn Display + Sync)) -> Error {
    let unavailable = |what: String| Error::unavailable(what, on);
    match error {
        HdfsError::RPCError(class, words) | HdfsError::FatalRPCError(class, words) => refused(class, words, server, on),
        HdfsError::FileNotFound(_) | HdfsError::IsADirectoryError(_) => Error::missing("there is no such file", on),
        HdfsError::IOError(error) => {
            let failed = silent(format!("the name node {server} can't be reached: {error}"), server, on);
            let nobody = [ErrorKind::ConnectionRefused, ErrorKind::HostUnreachable, ErrorKind::NetworkUnreachable];
            // Names that don't resolve have no kind of their own.
            match nobody.contains(&error.kind()) || error.to_string().contains("lookup address") {
                true => failed.unreachable(),
                false => failed,
            }
        }
        HdfsError::DataTransferError(_) | HdfsError::BlocksNotFound(_) => {
            let what = "no data node gave these bytes: none that has them answers, or each gave them damaged";
            unavailable(what.into()).hint("see `stoker log` for each of them, and `hdfs fsck` for missing blocks")
        }
        HdfsError::ChecksumError => Error::corrupt("the bytes don't match the checksums of their data node", on),
        HdfsError::SASLError(words) => denied(words, on),
        HdfsError::GSSAPIError(_, _, words) => denied(words, on),
        HdfsError::NoSASLMechanism => denied("the name node offers no way that is known here", on),
        HdfsError::UnsupportedFeature(words) if words.contains("encryption zone") => {
            let error = Error::invalid("the file lies in an encryption zone, which can't be read yet", on);
            error.hint("mount a copy outside of the zone")
        }
        HdfsError::UnsupportedErasureCodingPolicy(policy) => {
            let error = Error::invalid(format!("the file is coded by {policy:?}, which can't be read"), on);
            error.hint("mount a replicated copy")
        }
        HdfsError::InvalidPath(_) => Error::missing("there can be no file of this name", on),
        HdfsError::InvalidArgument(words) | HdfsError::UnsupportedFeature(words) => {
            Error::invalid(clipped(words), on).hint("check the URL, and Hadoop's configuration")
        }
        HdfsError::UrlParseError(error) => Error::invalid(format!("the name node's name makes no URL: {error}"), on),
        other => silent(format!("the name node {server} failed: {}", clipped(&other.to_string())), server, on),
    }
}

/// Nothing came that can be understood, as from whoever listens where no name node does.
pub fn silent(what: String, server: &str, on: &(dyn Display + Sync)) -> Error {
    const MEANT: &str = "its port for RPC is meant, 8020 or 9000 or what fs.defaultFS says";
    let failed = Error::unavailable(what, on);
    match server.rsplit_once(':').filter(|(_, port)| WEB_PORTS.contains(port)) {
        Some((_, port)) => failed.hint(format!("{port} is the port of a name node's web pages: {MEANT}")).unreachable(),
        None => failed.hint(format!("check the name and the port of the name node ({MEANT}), and whether it runs")),
    }
}

/// What a name node says no to.
fn refused(class: &str, words: &str, server: &str, on: &(dyn Display + Sync)) -> Error {
    let first = clipped(words.lines().next().unwrap_or_default());
    match short(class) {
        "FileNotFoundException" | "ParentNotDirectoryException" | "InvalidPathException" => {
            Error::missing("there is no such file", on)
        }
        // So it says it to whoever may not do everything, where a file stands in the place of a folder.
        "AccessControlException" if first.contains("(is not a directory)") => {
            Error::missing("there is no such file", on)
        }
        "AccessControlException" => {
            let error = Error::denied(format!("HDFS refuses access: {first}"), on);
            error.hint("ask as somebody who may: HADOOP_USER_NAME, or kinit where there is Kerberos")
        }
        "AuthorizationException" | "SaslException" | "GSSException" | "InvalidToken" => denied(&first, on),
        "StandbyException" => Error::unavailable(format!("the name node {server} is on standby"), on),
        "SafeModeException" => Error::unavailable(format!("the name node {server} is in safe mode"), on),
        "RetriableException" | "ServerTooBusyException" => {
            Error::unavailable(format!("the name node {server} asks to be asked later: {first}"), on).throttled()
        }
        class => Error::unavailable(format!("the name node {server} failed: {class}: {first}"), on),
    }
}

fn denied(words: &str, on: &(dyn Display + Sync)) -> Error {
    let error = Error::new(Kind::Denied, format!("HDFS doesn't know who is asking: {}", clipped(words)), on);
    error.hint(
        "get a ticket by kinit, or name a keytab by KRB5_CLIENT_KTNAME; HADOOP_CONF_DIR says whether there is Kerberos",
    )
}

/// A class without its package: `SecretManager$InvalidToken` is `InvalidToken`.
fn short(class: &str) -> &str {
    class.rsplit(['.', '$']).next().unwrap_or(class)
}

fn clipped(words: &str) -> String {
    words.chars().take(WORDS_MAX).filter(|letter| !letter.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_of_a_name_node_says_what_to_do() {
        let rpc = |class: &str| HdfsError::RPCError(class.into(), "words\n\tat java.lang".into());
        let unavailable = Kind::Unavailable { retry_after: None };
        for (class, kind) in [
            ("java.io.FileNotFoundException", Kind::Missing),
            ("org.apache.hadoop.fs.ParentNotDirectoryException", Kind::Missing),
            ("org.apache.hadoop.security.AccessControlException", Kind::Denied),
            ("org.apache.hadoop.security.token.SecretManager$InvalidToken", Kind::Denied),
            ("org.apache.hadoop.ipc.StandbyException", unavailable),
            ("org.apache.hadoop.hdfs.server.namenode.SafeModeException", unavailable),
            ("java.lang.NullPointerException", unavailable),
        ] {
            let error = error(&rpc(class), "nn:8020", &"hdfs://nn:8020/a");
            assert_eq!(error.kind, kind, "{class}");
            assert!(!error.what.contains("at java"), "{error}");
        }
        let busy = error(&rpc("org.apache.hadoop.ipc.RetriableException"), "nn", &"a");
        assert!(busy.is_throttling() && busy.passes());
        for (server, word, is_said_at_once) in
            [("nn:9870", "9870 is the port of a name node's web pages", true), ("nn:9001", "check the name", false)]
        {
            let broken = error(&HdfsError::IOError(ErrorKind::UnexpectedEof.into()), server, &"a");
            assert!(broken.hint.contains(word) && broken.hint.contains("8020 or 9000"), "{broken}");
            assert_eq!((broken.is_unreachable(), broken.passes()), (is_said_at_once, true));
        }
        let gone = HdfsError::IOError(ErrorKind::ConnectionRefused.into());
        assert!(error(&gone, "nn", &"a").is_unreachable() && is_of_one_server(&gone));
        assert!(is_of_one_server(&rpc("org.apache.hadoop.ipc.StandbyException")));
        assert!(!is_of_one_server(&rpc("java.io.FileNotFoundException")));
    }
}
