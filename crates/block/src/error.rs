//! Errors say what failed, on what, and what to try. The kind decides what the caller does next;
//! it is translated once, at the edge: to an errno, a status code or an exit code.

use std::fmt;
use std::path::Path;
use std::time::Duration;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What the caller is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// There is no such object: tell the caller.
    Missing,
    /// A newer version exists: look the name up again.
    Changed,
    /// Credentials or permissions: tell the user which ones.
    Denied,
    /// May work later: retry within the budget, then the next tier. The store may have said when.
    Unavailable { retry_after: Option<Duration> },
    /// These bytes are wrong: drop this copy, ask the next tier.
    Corrupt,
    /// No room: serve without keeping.
    Full,
    /// The caller asked for something that makes no sense: tell them what would.
    Invalid,
}

/// A failure with its three parts. Cheap to clone, because many readers may wait for one fetch.
#[derive(Clone, Debug)]
pub struct Error {
    pub kind: Kind,
    /// What failed, as a clause: "the store refused the credentials".
    pub what: String,
    /// On what: an object, a path, an endpoint.
    pub on: String,
    /// What to try; empty only where nobody could do anything.
    pub hint: String,
    throttled: bool,
    unreachable: bool,
}

impl Error {
    pub fn new(kind: Kind, what: impl Into<String>, on: impl fmt::Display) -> Error {
        Error {
            kind,
            what: what.into(),
            on: on.to_string(),
            hint: kind.hint().into(),
            throttled: false,
            unreachable: false,
        }
    }

    pub fn missing(what: impl Into<String>, on: impl fmt::Display) -> Error {
        Error::new(Kind::Missing, what, on)
    }

    pub fn changed(what: impl Into<String>, on: impl fmt::Display) -> Error {
        Error::new(Kind::Changed, what, on)
    }

    pub fn denied(what: impl Into<String>, on: impl fmt::Display) -> Error {
        Error::new(Kind::Denied, what, on)
    }

    pub fn unavailable(what: impl Into<String>, on: impl fmt::Display) -> Error {
        Error::new(Kind::Unavailable { retry_after: None }, what, on)
    }

    pub fn corrupt(what: impl Into<String>, on: impl fmt::Display) -> Error {
        Error::new(Kind::Corrupt, what, on)
    }

    pub fn full(what: impl Into<String>, on: impl fmt::Display) -> Error {
        Error::new(Kind::Full, what, on)
    }

    pub fn invalid(what: impl Into<String>, on: impl fmt::Display) -> Error {
        Error::new(Kind::Invalid, what, on)
    }

    /// A failed system call. No room becomes [`Kind::Full`], so that it can be served around; a stale handle is how a
    /// mount says that another version has taken the place of this one.
    pub fn io(doing: &str, on: impl fmt::Display, error: &std::io::Error) -> Error {
        use std::io::ErrorKind::{
            AlreadyExists, FileTooLarge, IsADirectory, NotADirectory, NotFound, PermissionDenied, QuotaExceeded,
            ReadOnlyFilesystem, StaleNetworkFileHandle, StorageFull,
        };
        let kind = match error.kind() {
            NotFound => Kind::Missing,
            PermissionDenied => Kind::Denied,
            StaleNetworkFileHandle => Kind::Changed,
            StorageFull | QuotaExceeded | ReadOnlyFilesystem | FileTooLarge => Kind::Full,
            _ => Kind::Unavailable { retry_after: None },
        };
        let failed = Error::new(kind, format!("{doing}: {error}"), on);
        match error.kind() {
            ReadOnlyFilesystem => failed.hint("name a folder that can be written: this file system is read-only"),
            AlreadyExists | NotADirectory | IsADirectory => {
                failed.hint("choose another name: something else has this one")
            }
            PermissionDenied => failed.hint("see to its permissions, and to those of the folders above it"),
            _ if failed.passes() => failed.hint("try again; if it lasts, look into what the system says (dmesg)"),
            _ => failed,
        }
    }

    /// The same failure with better advice.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Error {
        self.hint = hint.into();
        self
    }

    /// The same failure, which is the store's wish to be asked less.
    #[must_use]
    pub fn throttled(mut self) -> Error {
        self.throttled = true;
        self
    }

    /// Whether the store wishes to be asked less.
    pub fn is_throttling(&self) -> bool {
        self.throttled
    }

    /// The same failure, which shows that nobody answers under this address: whoever just typed it wants to know.
    #[must_use]
    pub fn unreachable(mut self) -> Error {
        self.unreachable = true;
        self
    }

    /// Whether nobody answers under this address.
    pub fn is_unreachable(&self) -> bool {
        self.unreachable
    }

    /// Whether somebody else who asks for the same may get another answer: by other credentials.
    pub fn is_of_asker(&self) -> bool {
        matches!(self.kind, Kind::Denied | Kind::Missing | Kind::Invalid)
    }

    /// Whether the same request may succeed later without anybody doing anything.
    pub fn passes(&self) -> bool {
        matches!(self.kind, Kind::Unavailable { .. } | Kind::Corrupt)
    }
}

/// Kinds as other processes know them.
const NAMES: [(Kind, &str); 7] = [
    (Kind::Missing, "missing"),
    (Kind::Changed, "changed"),
    (Kind::Denied, "denied"),
    (Kind::Unavailable { retry_after: None }, "unavailable"),
    (Kind::Corrupt, "corrupt"),
    (Kind::Full, "full"),
    (Kind::Invalid, "invalid"),
];

impl Kind {
    /// What it is called.
    pub fn name(self) -> &'static str {
        let is_this = |kind: &Kind| std::mem::discriminant(kind) == std::mem::discriminant(&self);
        NAMES.iter().find(|(kind, _)| is_this(kind)).expect("every kind has a name").1
    }

    /// The kind that is called so; one of a later version may work later.
    pub fn named(name: &str) -> Kind {
        let known = NAMES.iter().find(|(_, known)| *known == name);
        known.map_or(Kind::Unavailable { retry_after: None }, |(kind, _)| *kind)
    }

    /// Advice where the place of the failure has none of its own, whichever way the caller came in.
    pub fn hint(self) -> &'static str {
        match self {
            Kind::Missing => "check the name",
            Kind::Changed => "refresh the data set, then open the file again to read the new version",
            Kind::Denied => "check the credentials and permissions",
            Kind::Unavailable { .. } => "try again; if it lasts, check the network and the store",
            Kind::Corrupt => "try again; if it lasts, check the store and the disk for faults",
            Kind::Full => "free some space, or raise the limit",
            Kind::Invalid => "check what was asked for",
        }
    }
}

/// A path as a shell takes it, for advice that is to be pasted.
pub fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+=:,@%".contains(letter);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.into_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}\n  on:  {}", self.what, self.on)?;
        if !self.hint.is_empty() {
            write!(out, "\n  try: {}", self.hint)?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_three_parts() {
        let error = Error::denied("the store refused the credentials", "s3://bucket").hint("set AWS_PROFILE");
        assert_eq!(error.to_string(), "the store refused the credentials\n  on:  s3://bucket\n  try: set AWS_PROFILE");
    }

    #[test]
    fn every_kind_is_known_again_by_its_name() {
        NAMES.iter().for_each(|(kind, name)| assert_eq!((kind.name(), Kind::named(name)), (*name, *kind)));
        let retry_after = Some(Duration::from_secs(1));
        assert_eq!(Kind::Unavailable { retry_after }.name(), "unavailable");
        assert_eq!(Kind::named("of a later version"), Kind::Unavailable { retry_after: None });
    }

    #[test]
    fn a_stale_file_says_to_refresh() {
        let error = Error::io("reading", "file", &std::io::Error::from_raw_os_error(116));
        assert!(error.kind == Kind::Changed && error.hint.contains("refresh the data set"), "{error}");
    }

    #[test]
    fn a_failure_of_the_system_does_not_blame_the_network() {
        for (errno, word) in [
            (17, "another name"),
            (20, "another name"),
            (21, "another name"),
            (30, "read-only"),
            (5, "dmesg"),
            (13, "permissions"),
        ] {
            let error = Error::io("cannot make the folder", "/data", &std::io::Error::from_raw_os_error(errno));
            assert!(error.hint.contains(word), "{error}");
            assert!(!error.hint.contains("network") && !error.hint.contains("credentials"), "{error}");
        }
    }

    #[test]
    fn a_path_can_be_pasted_into_a_shell() {
        let all = ["/mnt/a-1", "/mnt/my data", "it's", ""].map(|path| quoted(Path::new(path)));
        assert_eq!(all, ["/mnt/a-1", "'/mnt/my data'", r"'it'\''s'", "''"]);
    }

    #[test]
    fn a_full_disk_is_recognised_however_it_says_so() {
        for errno in [28, 122, 30, 27] {
            let error = std::io::Error::from_raw_os_error(errno);
            assert_eq!(Error::io("writing", "/cache", &error).kind, Kind::Full, "{error}");
        }
    }
    #[test]
    fn a_stale_handle_is_a_changed_object() {
        let stale = std::io::Error::from_raw_os_error(116);
        assert_eq!(Error::io("reading", "/mnt/file", &stale).kind, Kind::Changed, "{stale}");
    }
}
