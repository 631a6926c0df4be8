//! Where one mount is by the kernel's table, and whether it can be reached there.

use super::table::{KIND, MOUNTS, Number, deepest, lines};
use std::path::{Path, PathBuf};

/// Where a mount was found.
#[derive(Debug, PartialEq, Eq)]
pub struct Found {
    /// Its own number, of all mounts of this namespace.
    mount: Option<u64>,
    pub at: PathBuf,
    /// A folder of it is bound there, and not all of it.
    pub is_part: bool,
}

/// How a mount that was found stands by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    OnTop,
    /// Another mount lies over it, or over a folder above it.
    Covered,
    Gone,
}

/// Where the file system with this number is mounted; of several places this one, if it is among them. The outer
/// `None`: the table can't be read.
pub fn of_number(number: Number, preferred: &Path) -> Option<Option<Found>> {
    Some(find(&std::fs::read(MOUNTS).ok()?, number, preferred))
}

/// Everywhere here that the mount of Stoker with this number is, or a part of it: what was mounted last comes first. `None`: the table
/// can't be read.
pub fn everywhere(number: Number) -> Option<Vec<Found>> {
    Some(all(&std::fs::read(MOUNTS).ok()?, number))
}

/// Whether a mount of Stoker is on exactly this folder, though another may lie over it.
pub fn is_below(folder: &Path) -> bool {
    let table = std::fs::read(MOUNTS).unwrap_or_default();
    lines(&table).any(|line| line.kind == KIND && line.at == folder)
}

impl Found {
    /// How it stands by now, or as it did a moment ago where the table can't be read. No file system is asked.
    pub fn now(&self) -> Standing {
        std::fs::read(MOUNTS).map_or(Standing::OnTop, |table| self.in_table(&table))
    }

    /// Numbers of mounts come again, but hardly at the same place.
    fn in_table(&self, table: &[u8]) -> Standing {
        let is_it = |line: &super::table::Line<'_>| line.mount == self.mount && line.at == self.at && line.kind == KIND;
        match lines(table).any(|line| is_it(&line)) {
            false => Standing::Gone,
            true if deepest(table, &self.at).is_some_and(|line| is_it(&line)) => Standing::OnTop,
            true => Standing::Covered,
        }
    }
}

fn find(table: &[u8], number: Number, preferred: &Path) -> Option<Found> {
    // A folder of it that is bound elsewhere is not the mount.
    let (mut whole, _): (Vec<_>, Vec<_>) = all(table, number).into_iter().partition(|found| !found.is_part);
    let is_on_top = |found: &Found| found.in_table(table) == Standing::OnTop;
    let there = || whole.iter().enumerate().filter(|(_, found)| found.at == preferred);
    let at = there().find(|(_, found)| is_on_top(found)).or_else(|| there().next()).map(|(at, _)| at);
    at.or(whole.len().checked_sub(1)).map(|at| whole.swap_remove(at))
}

fn all(table: &[u8], number: Number) -> Vec<Found> {
    // The kernel may have given the number of one that ended to somebody else's.
    let ours = lines(table).rev().filter(|line| line.number == Some(number) && line.kind == KIND);
    ours.map(|line| Found { mount: line.mount, is_part: line.root != b"/", at: line.at }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"36 35 98:0 / / rw - ext4 /dev/root rw\n\
        40 36 0:52 / /mnt/data ro - fuse.stoker s3://bucket ro,user_id=0\n\
        42 41 0:54 / /mnt/covered ro - tmpfs made_before_and_moved ro\n\
        41 36 0:53 / /mnt/covered ro - fuse.stoker s3://other ro\n\
        43 36 0:55 /folder /bound ro - fuse.stoker s3://bucket ro\n\
        44 36 0:56 / /above/below/mnt ro - fuse.stoker s3://bucket ro\n\
        45 36 0:57 / /above rw - tmpfs none rw\n\
        46 36 0:58 / /twice ro - fuse.stoker s3://bucket ro\n\
        47 46 0:59 / /twice ro - tmpfs between ro\n\
        48 47 0:58 / /twice ro - fuse.stoker s3://bucket ro";

    fn number(minor: u32) -> Number {
        Number { major: 0, minor }
    }

    #[test]
    fn a_mount_is_found_by_its_number_wherever_it_was_moved() {
        let of = |minor, preferred: &str| find(TABLE, number(minor), Path::new(preferred));
        let found = |mount, at: &str| Some(Found { mount: Some(mount), at: at.into(), is_part: false });
        assert_eq!(of(52, "/mnt/data"), found(40, "/mnt/data"));
        assert_eq!(of(52, "/somewhere/else"), found(40, "/mnt/data"));
        assert_eq!(of(53, "/mnt/covered"), found(41, "/mnt/covered"));
        assert_eq!(of(58, "/twice"), found(48, "/twice"), "the one on top");
        assert_eq!(of(54, "/mnt/covered"), None, "somebody else's, who got the number of one that ended");
        assert_eq!(of(55, "/mnt/covered"), None);
        assert_eq!(all(TABLE, number(55)), [Found { mount: Some(43), at: "/bound".into(), is_part: true }]);
    }

    #[test]
    fn what_lies_over_a_mount_goes_by_what_it_was_mounted_on_and_not_by_the_order_of_the_table() {
        let stand = |minor| all(TABLE, number(minor)).iter().map(|found| found.in_table(TABLE)).collect::<Vec<_>>();
        assert_eq!(stand(52), [Standing::OnTop]);
        assert_eq!(stand(53), [Standing::Covered], "by what was made before it, and moved");
        assert_eq!(stand(56), [Standing::Covered], "by what lies over a folder above");
        assert_eq!(stand(58), [Standing::OnTop, Standing::Covered], "with another between them");
        let gone = all(TABLE, number(52)).iter().map(|found| found.in_table(b"")).collect::<Vec<_>>();
        assert_eq!(gone, [Standing::Gone]);
    }
}
