//! The kernel's table of mounts, as far as we ask it: what FUSE mount lies on a folder.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A FUSE mount in the table.
#[derive(Debug, PartialEq, Eq)]
pub struct There {
    /// What is mounted, as its owner named it.
    pub source: String,
}

/// The FUSE mount on exactly this folder. Not being able to tell is no reason to refuse.
pub fn fuse_at(folder: &Path) -> Option<There> {
    let table = std::fs::read("/proc/self/mountinfo").ok()?;
    find(&table, folder)
}

/// The topmost mount counts, which is the last in the table.
fn find(table: &[u8], folder: &Path) -> Option<There> {
    let mut mounts = table.split(|&byte| byte == b'\n').filter_map(parse);
    let (_, kind, source) = mounts.rfind(|(at, _, _)| at == folder)?;
    let fuse = kind == b"fuse" || kind.starts_with(b"fuse.") || kind == b"fuseblk";
    fuse.then(|| There { source: String::from_utf8_lossy(&unescape(source)).into_owned() })
}

/// Mount point, type and source of one line:
/// `36 35 98:0 /root /mount/point options fields... - type source superoptions`.
fn parse(line: &[u8]) -> Option<(PathBuf, &[u8], &[u8])> {
    let mut words = line.split(|&byte| byte == b' ');
    let at = words.nth(4)?;
    let mut after = words.skip_while(|word| *word != b"-").skip(1);
    let (kind, source) = (after.next()?, after.next()?);
    Some((PathBuf::from(OsString::from_vec(unescape(at))), kind, source))
}

/// Spaces and the like are written as a backslash and three octal digits.
fn unescape(word: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&first, after)) = rest.split_first() {
        let octal =
            after.get(..3).filter(|digits| first == b'\\' && digits.iter().all(|digit| (b'0'..=b'7').contains(digit)));
        match octal {
            Some(digits) => {
                let value = digits.iter().fold(0_u32, |value, digit| value * 8 + u32::from(digit - b'0'));
                plain.push(value as u8);
                rest = &after[3..];
            }
            None => {
                plain.push(first);
                rest = after;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"36 35 98:0 / / rw,noatime master:1 - ext4 /dev/root rw\n\
        40 36 0:52 / /mnt/my\\040data ro - fuse.stoker s3://bucket/a\\040b ro,user_id=0\n\
        41 36 0:53 / /mnt/covered ro - fuse.sshfs host: ro\n\
        42 36 0:54 / /mnt/covered ro - tmpfs tmpfs ro\n\
        broken line";

    #[test]
    fn a_fuse_mount_is_found_by_its_unescaped_folder() {
        let there = find(TABLE, Path::new("/mnt/my data"));
        assert_eq!(there, Some(There { source: "s3://bucket/a b".into() }));
    }

    #[test]
    fn only_the_topmost_mount_counts_and_only_if_it_is_fuse() {
        assert_eq!(find(TABLE, Path::new("/mnt/covered")), None);
        assert_eq!(find(TABLE, Path::new("/")), None);
        assert_eq!(find(TABLE, Path::new("/mnt")), None);
    }
}
