//! `mount.stoker`, as mount(8) calls it for `mount -t stoker URL DIR -o OPTIONS` and for lines of /etc/fstab: this program under
//! another name. What it is told becomes a `stoker mount --detach` of the same meaning.
//!
//! Invariant: an option that is not understood is refused, never left out, but for those that are about who calls and when.

use crate::args::Typed;
use clap::Parser;
use clap::error::{ContextKind, ErrorKind};
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

/// The name under which mount(8) looks for it, in /sbin.
const NAME: &str = "mount.stoker";

/// Exit codes of mount(8): it was called wrongly; the mount failed.
const CALLED_WRONGLY: u8 = 1;
const FAILED: u8 = 32;

/// Options for mount(8) and systemd, and those that say what holds anyway: it is read-only, has no devices and no times of access,
/// and root mounts for all.
const ELSEWHERE: [&str; 33] = [
    "defaults",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "nofail",
    "_netdev",
    "ro",
    "rw",
    "dev",
    "nodev",
    "suid",
    "nosuid",
    "exec",
    "noexec",
    "sync",
    "async",
    "atime",
    "noatime",
    "relatime",
    "norelatime",
    "strictatime",
    "nodiratime",
    "lazytime",
    "mand",
    "nomand",
    "iversion",
    "allow_other",
    "default_permissions",
    "silent",
];

/// Beginnings of options that are notes for others.
const NOTES: [&str; 3] = ["x-", "X-", "comment="];

/// Whether this program was called under that name.
pub fn is_meant(program: Option<&OsStr>) -> bool {
    program.and_then(|program| Path::new(program).file_name()).is_some_and(|name| name == NAME)
}

/// Mount as it was told by the words behind the name, and say so by the exit codes of mount(8).
pub fn run(words: impl Iterator<Item = OsString>, run: impl FnOnce(Typed) -> anyhow::Result<ExitCode>) -> ExitCode {
    let words: Vec<OsString> = words.collect();
    let typed = match translated(&words) {
        Ok(None) => return ExitCode::SUCCESS,
        Ok(Some(words)) => Typed::try_parse_from(words),
        Err(wrong) => {
            crate::show::failure(&anyhow::Error::from(wrong));
            return ExitCode::from(CALLED_WRONGLY);
        }
    };
    let typed = match typed {
        Ok(typed) => typed,
        Err(error) if error.kind() == ErrorKind::UnknownArgument => {
            let named = error.get(ContextKind::InvalidArg).map(ToString::to_string).unwrap_or_default();
            let option = named.trim_start_matches('-').replace('-', "_");
            let error = block::Error::invalid("there is no such option", option);
            let hint = "each flag of `stoker mount --help` is one: --cache-size 1TB is cache_size=1TB";
            crate::show::failure(&error.hint(hint).into());
            return ExitCode::from(CALLED_WRONGLY);
        }
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(CALLED_WRONGLY);
        }
    };
    match run(typed) {
        Ok(code) if code == ExitCode::SUCCESS => code,
        Ok(_) => ExitCode::from(FAILED),
        Err(error) => {
            crate::show::failure(&error);
            ExitCode::from(FAILED)
        }
    }
}

/// The words of `stoker` that mean the same; none if nothing is to be done (`-f`).
fn translated(words: &[OsString]) -> block::Result<Option<Vec<OsString>>> {
    let wrong = |what: &str, on: &OsStr| {
        let error = block::Error::invalid(what, on.display());
        error.hint("mount.stoker is called by mount(8): mount -t stoker s3://bucket/prefix /data -o region=us-east-1")
    };
    let (mut plain, mut flags): (Vec<&OsString>, Vec<OsString>) = (Vec::new(), Vec::new());
    let (mut is_fake, mut rest) = (false, words.iter());
    while let Some(word) = rest.next() {
        match word.to_str() {
            Some("-o") => {
                let options = rest.next().ok_or_else(|| wrong("-o takes options", word))?;
                let text = options.to_str().ok_or_else(|| wrong("these options are not UTF-8", options))?;
                flags.extend(text.split(',').filter_map(flag));
            }
            // Of which namespace and type it is to be: mount(8) sees to the first, and there is one of the second.
            Some("-t" | "-N") => drop(rest.next()),
            Some(letters) if letters.len() > 1 && letters.starts_with('-') => {
                for letter in letters[1..].chars() {
                    match letter {
                        'f' => is_fake = true,
                        'v' => flags.push("-v".into()),
                        'n' | 's' => {}
                        _ => return Err(wrong("this option of mount(8) is not known", word)),
                    }
                }
            }
            _ => plain.push(word),
        }
    }
    let [url, dir] = plain[..] else { return Err(wrong("a URL and a folder are wanted", OsStr::new(NAME))) };
    let fixed = ["stoker", "mount", "--detach"].map(OsString::from);
    let all = fixed.into_iter().chain(flags).chain([OsString::from("--"), url.clone(), dir.clone()]);
    Ok((!is_fake).then(|| all.collect()))
}

/// An option as a flag: `cache_size=1TB` is `--cache-size=1TB`. None if it is for somebody else.
fn flag(option: &str) -> Option<OsString> {
    if option.is_empty() || ELSEWHERE.contains(&option) || NOTES.iter().any(|note| option.starts_with(note)) {
        return None;
    }
    let (name, value) = option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
    let name = name.replace('_', "-");
    Some(value.map_or_else(|| format!("--{name}"), |value| format!("--{name}={value}")).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(words: &str) -> Option<String> {
        let words: Vec<OsString> = words.split(' ').map(OsString::from).collect();
        let all = translated(&words).ok()?.unwrap_or_default();
        Some(all.join(OsStr::new(" ")).into_string().expect("text"))
    }

    #[test]
    fn options_of_a_mount_become_flags_and_those_of_others_are_left_out() {
        let words = "s3://b/x /data -o rw,noauto,x-systemd.automount,_netdev,region=us-east-1,cache_size=1TB,immutable";
        let expected = "stoker mount --detach --region=us-east-1 --cache-size=1TB --immutable -- s3://b/x /data";
        assert_eq!(told(words).as_deref(), Some(expected));
        assert_eq!(told("gs://b /d -sv -t stoker").as_deref(), Some("stoker mount --detach -v -- gs://b /d"));
        assert_eq!(told("gs://b /d -f").as_deref(), Some(""), "nothing is done");
        assert_eq!(told("s3://b /d -o remount").as_deref(), Some("stoker mount --detach --remount -- s3://b /d"));
        for wrong in ["s3://b", "s3://b /d /e", "s3://b /d -x", "s3://b /d -o"] {
            assert_eq!(told(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn it_is_meant_by_its_name_alone() {
        for (program, is) in [("/sbin/mount.stoker", true), ("mount.stoker", true), ("/usr/bin/stoker", false)] {
            assert_eq!(is_meant(Some(OsStr::new(program))), is, "{program}");
        }
        assert!(!is_meant(None));
    }
}
