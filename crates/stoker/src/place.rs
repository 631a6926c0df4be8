//! Folders and limits of this user on this machine. The only reader of the environment beside the arguments.

pub mod aws;
mod cgroup;

use crate::args::Reach;
use crate::show;
use block::{Error, Result};
use cache::disk::Limits;
use client::{Client, sockets};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use store::Location;

/// Memory of a node unless another is given.
const MEMORY_DEFAULT: u64 = 256 << 20;

/// The least that a node runs with: below it the index and the connections leave nothing for blocks.
const MEMORY_MIN: u64 = 64 << 20;

/// Folder of the cache, by default the system's for root and the user's otherwise.
pub fn cache_named(asked: Option<&Path>) -> Result<PathBuf> {
    match asked {
        Some(folder) => Ok(folder.to_owned()),
        None if rustix::process::geteuid().is_root() => Ok("/var/cache/stoker".into()),
        None => match (std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME")) {
            (Some(cache), _) => Ok(PathBuf::from(cache).join("stoker")),
            (None, Some(home)) => Ok(PathBuf::from(home).join(".cache/stoker")),
            (None, None) => {
                Err(Error::invalid("there is no home folder to keep a cache in", "HOME").hint("give --cache DIR"))
            }
        },
    }
}

/// Refuse a cache folder and a mount point of which one lies in the other. Nothing is made.
pub fn are_apart(cache: &Path, mount_point: &Path) -> Result<()> {
    let (cache, mount_point) = (without_links(cache), without_links(mount_point));
    let what = match () {
        () if cache.starts_with(&mount_point) => "the cache folder lies in the mount point, which will hide it",
        () if mount_point.starts_with(&cache) => "the mount point lies in the cache folder, which is the node's alone",
        () => return Ok(()),
    };
    let on = format!("--cache {} and {}", cache.display(), mount_point.display());
    Err(Error::invalid(what, on).hint("choose another mount point, or another folder with --cache"))
}

/// A path from the top on, as it is meant in the working directory.
pub fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|error| {
        let what = format!("the path can't be followed from the working directory: {error}");
        Error::invalid(what, path.display()).hint("go to a folder that exists, or give the whole path")
    })
}

/// A path that need not exist, without the links that do.
fn without_links(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let found = path.ancestors().find_map(|above| {
        let rest = path.strip_prefix(above).ok()?;
        // Joined with nothing, a path ends with a slash.
        std::fs::canonicalize(above).ok().map(|found| found.join(rest).components().collect())
    });
    found.unwrap_or(path)
}

/// The same, made if it is not there, so that its canonical name, which names the socket, exists.
pub fn cache(asked: Option<&Path>) -> Result<PathBuf> {
    use std::os::unix::fs::DirBuilderExt;
    let folder = cache_named(asked)?;
    let doing = |error: std::io::Error| {
        Error::io("cannot make the cache folder", folder.display(), &error).hint("choose another folder with --cache")
    };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(doing)?;
    std::fs::canonicalize(&folder).map_err(doing)
}

/// Folder of the control sockets, open to this user alone.
pub fn runtime() -> Result<PathBuf> {
    use std::os::unix::fs::DirBuilderExt;
    let user = rustix::process::geteuid();
    // Root may have the variables of the user who called sudo, whose folder is no place for its sockets.
    let names = ["STOKER_RUNTIME_DIR", "XDG_RUNTIME_DIR"].into_iter().take(if user.is_root() { 1 } else { 2 });
    let mut named = names.filter_map(|name| Some((name, PathBuf::from(std::env::var_os(name)?))));
    let named = named.find(|(_, folder)| !folder.as_os_str().is_empty());
    let decides = named.as_ref().map_or("XDG_RUNTIME_DIR", |(name, _)| name);
    let folder = match named {
        // Each command would look for its nodes somewhere else.
        Some((name, folder)) if folder.is_relative() => {
            let error = Error::invalid(format!("{name} is not an absolute path"), folder.display());
            return Err(error.hint(format!("begin it with a slash: {name}=/run/user/{}", user.as_raw())));
        }
        Some((_, folder)) => folder.join("stoker"),
        None if user.is_root() => "/run/stoker".into(),
        None => absolute(&std::env::temp_dir().join(format!("stoker-{}", user.as_raw())))?,
    };
    let doing = |error: std::io::Error| {
        Error::io("cannot make the folder of control sockets", folder.display(), &error)
            .hint(format!("set {decides} to a folder of yours"))
    };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(doing)?;
    if !sockets::is_private(&folder, user.as_raw()).map_err(doing)? {
        return Err(Error::denied("the folder of control sockets is not this user's alone", folder.display())
            .hint(format!("remove it, or set {decides} to a folder of yours")));
    }
    Ok(folder)
}

/// The nodes that this user may ask, and how they are, in the order in which they answer.
pub fn survey(each: &mut dyn FnMut(client::Surveyed) -> ControlFlow<()>) -> anyhow::Result<()> {
    Client::survey(nodes()?, rustix::process::geteuid().as_raw(), each).map_err(show::refused)
}

/// Root may ask those of all users, its own first.
pub fn nodes() -> Result<Vec<Client>> {
    let user = rustix::process::geteuid();
    let mut folders = vec![(runtime()?, user.as_raw())];
    // Who names a folder means it and no other.
    if user.is_root() && std::env::var_os("STOKER_RUNTIME_DIR").is_none() {
        let within = |folder: &str, before: &str, below: &str| {
            let names = std::fs::read_dir(folder).into_iter().flatten().flatten();
            let of = |name: std::fs::DirEntry| {
                let user = name.file_name().to_str()?.strip_prefix(before)?.parse().ok()?;
                // A slash at the end would lead through a link.
                let path = name.path();
                Some((if below.is_empty() { path } else { path.join(below) }, user))
            };
            names.filter_map(of).collect::<Vec<(PathBuf, u32)>>()
        };
        folders.extend(within("/run/user", "", "stoker"));
        folders.extend(within("/tmp", "stoker-", ""));
    }
    // Nodes that were started without a login have their sockets where there is no XDG_RUNTIME_DIR.
    if !user.is_root() && std::env::var_os("STOKER_RUNTIME_DIR").is_none() {
        let bare = std::env::temp_dir().join(format!("stoker-{}", user.as_raw()));
        folders.extend((folders[0].0 != bare).then(|| (bare, user.as_raw())));
    }
    let of = |(folder, user): (PathBuf, u32)| {
        sockets::all(&folder, user).into_iter().map(move |socket| Client::new(socket, user))
    };
    Ok(folders.into_iter().flat_map(of).collect())
}

/// A file that a result goes to, and what results of that kind begin with: an earlier one gives way, and nothing else.
pub type Output<'a> = (Option<&'a Path>, &'static str);

pub const JSON: &str = "{";
pub const PAGE: &str = "<!doctype html>";
pub const PICTURE: &str = "<svg";
pub const TABLE: &str = "report,";
pub const TOML: &str = "name = ";

/// Refuse files that can't be made where they were named, or that would take the place of something else, before the
/// work is done of which they are to tell.
pub fn can_be_written<'a>(outputs: &[Output<'a>], inputs: impl IntoIterator<Item = &'a Path>) -> Result<()> {
    let mut taken: Vec<_> = inputs.into_iter().filter_map(|input| std::fs::canonicalize(input).ok()).collect();
    for (file, begins) in outputs.iter().filter_map(|(file, begins)| Some(((*file)?, begins))) {
        can_be_made(file, begins)?;
        let at = std::fs::canonicalize(file).or_else(|_| std::path::absolute(file)).unwrap_or_else(|_| file.to_owned());
        if taken.contains(&at) {
            let error = Error::invalid("this file is read, or written, by the same command", file.display());
            return Err(error.hint("name another file"));
        }
        taken.push(at);
    }
    Ok(())
}

fn can_be_made(file: &Path, begins: &str) -> Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let wrong = |what: &str| {
        let error = Error::invalid(what, file.display());
        Err(error.hint("name a file in a folder that exists and that you may write into"))
    };
    match () {
        () if file.is_dir() => wrong("this is a folder and not a file"),
        // A result takes its name when it is whole, and would take the place of a device.
        () if file.exists() && !file.is_file() => wrong("this is a device or a pipe and not a file"),
        () if !folder.is_dir() => wrong("there is no such folder for the file"),
        () if holds_other(file, begins) => {
            let error = Error::invalid("there is a file already, which is no result of this kind", file.display());
            Err(error.hint("name another file, or remove this one"))
        }
        () => report::whole::can_be_written(file)
            .or_else(|error| wrong(&format!("the folder of the file can't be written: {error}"))),
    }
}

/// Whether there is a file that is not empty and begins in another way.
fn holds_other(file: &Path, begins: &str) -> bool {
    use std::io::Read;
    let Ok(file) = std::fs::File::open(file) else { return false };
    let mut head = Vec::new();
    let read = file.take(begins.len() as u64).read_to_end(&mut head);
    read.is_ok() && !head.is_empty() && head != begins.as_bytes()
}

/// Seconds since 1970.
pub fn now() -> f64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0.0, |since| since.as_secs_f64())
}

/// A variable of the environment.
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// A variable that is set to something.
fn set(name: &str) -> Option<String> {
    variable(name).filter(|value| !value.is_empty())
}

/// How the store of a URL is reached, with what the environment and, for S3, the files of profiles add.
pub fn reach(asked: &Reach, url: &str) -> Result<Reach> {
    match url.parse() {
        Ok(Location::Google { .. }) => {
            // As in Google's own libraries: an emulator that is named there is asked as nobody.
            let emulator = set("STORAGE_EMULATOR_HOST").filter(|_| asked.endpoint.is_none());
            let emulator = emulator.map(|host| if host.contains("://") { host } else { format!("http://{host}") });
            let anonymous = asked.anonymous || emulator.is_some();
            Ok(Reach { endpoint: asked.endpoint.clone().or(emulator), anonymous, ..asked.clone() })
        }
        Ok(Location::Azure { host, .. }) => {
            // A host that was typed is not overruled.
            let named = || set("AZURE_STORAGE_ENDPOINT").filter(|_| host.is_none());
            let endpoint = asked.endpoint.clone().or_else(named);
            Ok(Reach { endpoint, ..asked.clone() })
        }
        Ok(Location::S3 { .. }) => aws::reach(asked),
        _ => Ok(asked.clone()),
    }
}

/// Static credentials of AWS.
const KEYS: [&str; 3] = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"];

/// What credentials and certificates are found by, and a cluster of HDFS, for a node that may not share this environment.
pub fn variables(url: &str) -> client::messages::Variables {
    const GOOGLE: [&str; 4] = ["GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_CONFIG", "GCE_METADATA_HOST", "HOME"];
    // Programs that hand out credentials are looked for as whoever asks would find them.
    const AZURE: [&str; 4] = ["IDENTITY_ENDPOINT", "IDENTITY_HEADER", "HOME", "PATH"];
    const AWS: [&str; 2] = ["HOME", "PATH"];
    const TRUST: [&str; 3] = ["AWS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE"];
    const HDFS: [&str; 7] = [
        "HADOOP_CONF_DIR",
        "HADOOP_HOME",
        "HADOOP_PROXY_USER",
        "HADOOP_TOKEN_FILE_LOCATION",
        "HADOOP_USER_NAME",
        "KRB5CCNAME",
        "KRB5_CLIENT_KTNAME",
    ];
    let has_keys = keys().is_some();
    let is_meant = |name: &str| match url.parse() {
        Ok(Location::Google { .. }) => GOOGLE.contains(&name) || TRUST.contains(&name),
        Ok(Location::Azure { .. }) => name.starts_with("AZURE_") || AZURE.contains(&name) || TRUST.contains(&name),
        Ok(Location::Web { .. }) => name == store::WEB_TOKEN || TRUST.contains(&name),
        Ok(Location::Hdfs { .. }) => HDFS.contains(&name),
        // Whole keys are handed over by themselves.
        Ok(Location::S3 { .. }) => {
            AWS.contains(&name)
                || TRUST.contains(&name)
                || name.starts_with("AWS_") && !(has_keys && KEYS.contains(&name))
        }
        _ => false,
    };
    let set =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let meant = set.filter(|(name, value)| !value.is_empty() && is_meant(name));
    let mut meant: BTreeMap<_, _> = meant.map(|(name, value)| (name.clone(), whole(&name, value))).collect();
    if matches!(url.parse(), Ok(Location::S3 { .. })) {
        // That there are no others is said by this one.
        meant.entry("HOME".into()).or_default();
    }
    client::messages::Variables(meant)
}

/// The value of a variable, with the path of a file by its whole name: the node, elsewhere, finds it by that alone.
fn whole(name: &str, value: String) -> String {
    const PATHS: [&str; 16] = [
        "AWS_CA_BUNDLE",
        "AWS_CONFIG_FILE",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
        "AWS_LOGIN_CACHE_DIRECTORY",
        "AWS_SHARED_CREDENTIALS_FILE",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "CLOUDSDK_CONFIG",
        "AZURE_CONFIG_DIR",
        "AZURE_FEDERATED_TOKEN_FILE",
        "HADOOP_CONF_DIR",
        "HADOOP_HOME",
        "KRB5CCNAME",
        "KRB5_CLIENT_KTNAME",
        "SSL_CERT_DIR",
        "SSL_CERT_FILE",
    ];
    // Kerberos puts before a path what lies there, and another word where there is none.
    let at = match value.split_once(':').filter(|_| name.starts_with("KRB5")) {
        Some((kind @ ("FILE" | "DIR"), path)) if !path.starts_with(':') => kind.len() + 1,
        Some(_) => return value,
        // AWS's tools take it for the home folder, also in a variable that no shell has read.
        None if value.starts_with('~') => return value,
        None => 0,
    };
    match absolute(Path::new(&value[at..])) {
        Ok(path) if PATHS.contains(&name) => format!("{}{}", &value[..at], path.display()),
        _ => value,
    }
}

/// Static AWS credentials of the environment, for a node that may not share it.
pub fn keys() -> Option<client::messages::Keys> {
    Some(client::messages::Keys {
        access_key: set("AWS_ACCESS_KEY_ID")?,
        secret_key: set("AWS_SECRET_ACCESS_KEY")?,
        session_token: set("AWS_SESSION_TOKEN"),
    })
}

/// Whether colour is wanted: on a terminal, unless `NO_COLOR` is set (no-color.org).
pub fn colour(terminal: bool) -> bool {
    terminal && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty())
}

/// Whether the locale can show block characters.
pub fn unicode() -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok().filter(|set| !set.is_empty()));
    locale.is_none_or(|locale| locale.to_ascii_uppercase().replace('-', "").contains("UTF8"))
}

/// Identity of this boot of the machine. Unknown, each start is taken for a boot, and files are checked again.
pub fn boot() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let id = u128::from_str_radix(&text.trim().replace('-', ""), 16);
    id.unwrap_or_else(|_| u128::from(std::process::id()) | 1 << 127).to_be_bytes()
}

/// What nobody else has.
pub fn token() -> String {
    let drawn = std::fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap_or_default();
    format!("{}{}", drawn.trim(), std::process::id())
}

/// The memory limit: what was asked, else the default, within a quarter of what the cgroup allows.
pub fn memory(asked: Option<u64>) -> Result<u64> {
    let allowed = memory_of_group();
    let machine = memory_of_machine();
    if let Some(asked) = asked.filter(|asked| machine.is_some_and(|machine| *asked > machine)) {
        let what = format!("this machine has {} bytes of memory in all", machine.unwrap_or_default());
        return Err(Error::invalid(what, format!("--memory {asked}B")).hint("ask for less"));
    }
    match (asked, allowed) {
        (Some(asked), _) if asked < MEMORY_MIN => {
            Err(Error::invalid("a node needs at least 64 MiB of memory", format!("--memory {asked}B"))
                .hint("give --memory 64MiB or more"))
        }
        (Some(asked), Some(allowed)) if asked > allowed => {
            let what = format!("the control group allows {allowed} bytes of memory in all");
            Err(Error::invalid(what, format!("--memory {asked}")).hint("ask for less, or raise the limit of the group"))
        }
        (Some(asked), _) => Ok(asked),
        (None, allowed) => Ok(allowed.map_or(MEMORY_DEFAULT, |limit| MEMORY_DEFAULT.min(limit / 4)).max(MEMORY_MIN)),
    }
}

/// Memory that the control group of this process allows; none where it sets no limit.
pub fn memory_of_group() -> Option<u64> {
    cgroup::memory_limit(Path::new("/"))
}

/// Memory of this machine; none where the kernel doesn't say.
pub fn memory_of_machine() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().trim_end_matches("kB").trim().parse::<u64>().ok().map(|kibibytes| kibibytes << 10)
}

/// Limits of the disk tier on the file system of the cache: by default what is free and what the cache holds already,
/// but for a tenth of the file system. What others keep there is not promised away.
pub fn limits(cache: &Path, asked: Option<u64>) -> Result<Limits> {
    let found = rustix::fs::statvfs(cache)
        .map_err(|error| Error::io("cannot ask the file system of the cache", cache.display(), &error.into()))?;
    let (bytes, files) = (found.f_blocks * found.f_frsize, found.f_files);
    let free = found.f_bavail * found.f_frsize;
    if let Some(asked) = asked.filter(|asked| *asked > bytes) {
        let what = format!("the file system of the cache has {bytes} bytes in all, and not {asked}");
        return Err(Error::invalid(what, cache.display()).hint("give a smaller --cache-size, or leave it out"));
    }
    let ours = || match held(&cache.join("blocks"), &mut FILES_LOOKED_AT.clone()) {
        Some(held) => held,
        // Too many to look at: then most of what is taken is the cache's.
        None => bytes - free,
    };
    Ok(Limits {
        bytes: asked.unwrap_or_else(|| (free + ours()).min(bytes).saturating_sub(bytes / 10)),
        files: if files == 0 { u64::MAX } else { files },
        free_bytes_min: if asked.is_some() { bytes / 50 } else { bytes / 10 },
        free_files_min: files / 50,
    })
}

/// Files of a cache that are looked at when a node starts: some tens of milliseconds.
const FILES_LOOKED_AT: u32 = 20_000;

/// Bytes on the disk below a folder, unless it has too many files to look at.
fn held(folder: &Path, left: &mut u32) -> Option<u64> {
    use std::os::unix::fs::MetadataExt;
    let mut sum = 0;
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        *left = left.checked_sub(1)?;
        let Ok(found) = entry.metadata() else { continue };
        sum += if found.is_dir() { held(&entry.path(), left)? } else { found.blocks() * 512 };
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_told_to_a_node_by_its_whole_name_also_behind_a_word_of_kerberos() {
        let here = std::env::current_dir().expect("a folder");
        let here = here.to_str().expect("a path");
        for (name, typed, told) in [
            ("HADOOP_CONF_DIR", "t/conf", format!("{here}/t/conf")),
            ("HADOOP_CONF_DIR", "a:b", format!("{here}/a:b")),
            ("HADOOP_USER_NAME", "t", "t".into()),
            ("AWS_CA_BUNDLE", "t.pem", format!("{here}/t.pem")),
            ("PATH", "bin:/bin", "bin:/bin".into()),
            ("KRB5CCNAME", "t/cache", format!("{here}/t/cache")),
            ("KRB5CCNAME", "FILE:t", format!("FILE:{here}/t")),
            ("KRB5CCNAME", "DIR:t", format!("DIR:{here}/t")),
            ("KRB5CCNAME", "KEYRING:persistent:0", "KEYRING:persistent:0".into()),
            ("KRB5CCNAME", "DIR::/t/tkt", "DIR::/t/tkt".into()),
            ("KRB5_CLIENT_KTNAME", "FILE:/t", "FILE:/t".into()),
            ("KRB5_CLIENT_KTNAME", "t.keytab", format!("{here}/t.keytab")),
            ("AWS_CONFIG_FILE", "~/aws/config", "~/aws/config".into()),
            ("AWS_SHARED_CREDENTIALS_FILE", "~me/keys", "~me/keys".into()),
            ("AWS_CONFIG_FILE", "aws/~config", format!("{here}/aws/~config")),
        ] {
            assert_eq!(whole(name, typed.into()), told, "{name}={typed}");
        }
    }
}
