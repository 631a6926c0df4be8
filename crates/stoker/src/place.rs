//! Folders and limits of this user on this machine. The only reader of the environment beside the arguments.

mod cgroup;

use crate::args::Reach;
use block::{Error, Result};
use cache::disk::Limits;
use std::path::{Path, PathBuf};

/// Memory of a node unless it is told otherwise.
const MEMORY_DEFAULT: u64 = 256 << 20;

/// The least that a node runs with: below it the index and the connections leave nothing for blocks.
const MEMORY_MIN: u64 = 64 << 20;

/// Folder of the cache, by default the system's for root and the user's otherwise. It is made here, so that its
/// canonical name, which names the socket, exists.
pub fn cache(asked: Option<&Path>) -> Result<PathBuf> {
    use std::os::unix::fs::DirBuilderExt;
    let folder = match asked {
        Some(folder) => folder.to_owned(),
        None if rustix::process::geteuid().is_root() => "/var/cache/stoker".into(),
        None => match (std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME")) {
            (Some(cache), _) => PathBuf::from(cache).join("stoker"),
            (None, Some(home)) => PathBuf::from(home).join(".cache/stoker"),
            (None, None) => {
                return Err(
                    Error::invalid("there is no home folder to keep a cache in", "HOME").hint("give --cache DIR")
                );
            }
        },
    };
    let doing = |error: std::io::Error| {
        Error::io("cannot make the cache folder", folder.display(), &error).hint("choose another folder with --cache")
    };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(doing)?;
    std::fs::canonicalize(&folder).map_err(doing)
}

/// Folder of the control sockets, open to this user alone.
pub fn runtime() -> Result<PathBuf> {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};
    let user = rustix::process::geteuid();
    // Root may have the variables of the user who called sudo, whose folder is no place for its sockets.
    let of_session = std::env::var_os("XDG_RUNTIME_DIR").filter(|_| !user.is_root());
    let folder = match std::env::var_os("STOKER_RUNTIME_DIR").or(of_session) {
        Some(folder) => PathBuf::from(folder).join("stoker"),
        None if user.is_root() => "/run/stoker".into(),
        None => std::env::temp_dir().join(format!("stoker-{}", user.as_raw())),
    };
    let doing = |error: std::io::Error| {
        Error::io("cannot make the folder of control sockets", folder.display(), &error)
            .hint("set XDG_RUNTIME_DIR to a folder of yours")
    };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(doing)?;
    let found = std::fs::symlink_metadata(&folder).map_err(doing)?;
    if !found.is_dir() || found.uid() != user.as_raw() || found.mode() & 0o022 != 0 {
        return Err(Error::denied("the folder of control sockets is not this user's alone", folder.display())
            .hint("remove it, or set XDG_RUNTIME_DIR to a folder of yours"));
    }
    Ok(folder)
}

/// Folders of the control sockets that this user may use: root, those of all users, its own first.
pub fn runtimes() -> Result<Vec<PathBuf>> {
    let mut folders = vec![runtime()?];
    // Who names a folder means it and no other.
    if rustix::process::geteuid().is_root() && std::env::var_os("STOKER_RUNTIME_DIR").is_none() {
        let within = |folder: &str| std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let is_ours = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.and_then(|name| name.strip_prefix("stoker-")).is_some_and(|user| user.parse::<u32>().is_ok())
        };
        folders.extend(within("/run/user").map(|user| user.join("stoker")).filter(|folder| folder.is_dir()));
        folders.extend(within("/tmp").filter(is_ours));
    }
    Ok(folders)
}

/// Seconds since 1970.
pub fn now() -> f64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0.0, |since| since.as_secs_f64())
}

/// How a store is reached, with what the environment adds. Keys in it go before AWS_PROFILE, `--profile` before both.
pub fn reach(asked: &Reach) -> Reach {
    let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let is_somebody = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_WEB_IDENTITY_TOKEN_FILE"];
    let is_somebody = is_somebody.into_iter().any(|name| set(name).is_some());
    let profile = asked.profile.clone().or_else(|| set("AWS_PROFILE").filter(|_| !is_somebody));
    let endpoint = asked.endpoint.clone().or_else(|| set("AWS_ENDPOINT_URL"));
    Reach { endpoint, profile, ..asked.clone() }
}

/// Static AWS credentials of the environment, for a node that may not share it.
pub fn keys() -> Option<client::messages::Keys> {
    Some(client::messages::Keys {
        access_key: std::env::var("AWS_ACCESS_KEY_ID").ok()?,
        secret_key: std::env::var("AWS_SECRET_ACCESS_KEY").ok()?,
        session_token: std::env::var("AWS_SESSION_TOKEN").ok(),
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

/// The memory limit: what was asked, else the default, within a quarter of what the cgroup allows.
pub fn memory(asked: Option<u64>) -> Result<u64> {
    let allowed = cgroup::memory_limit(Path::new("/"));
    match (asked, allowed) {
        (Some(asked), _) if asked < MEMORY_MIN => {
            Err(Error::invalid("a node needs at least 64 MiB of memory", format!("--memory {asked}"))
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

/// Limits of the disk tier on the file system of the cache: by default what is free and what the cache holds already,
/// but for a tenth of the file system. What others keep there is not promised away.
pub fn limits(cache: &Path, asked: Option<u64>) -> Result<Limits> {
    let found = rustix::fs::statvfs(cache)
        .map_err(|error| Error::io("cannot ask the file system of the cache", cache.display(), &error.into()))?;
    let (bytes, files) = (found.f_blocks * found.f_frsize, found.f_files);
    let free = found.f_bavail * found.f_frsize;
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
