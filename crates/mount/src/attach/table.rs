//! The kernel's table of mounts, as far as we ask it: what lies on a folder, and where one mount is.

use rustix::fs::{AtFlags, StatxFlags};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A mount in the table.
#[derive(Debug, PartialEq, Eq)]
pub struct There {
    /// What is mounted, as its owner named it.
    pub source: String,
    /// The type of file system.
    pub kind: String,
}

impl There {
    /// What people would call it: a network mount by its source, `tmpfs` by its type.
    pub fn name(&self) -> &str {
        if self.source == "none" { &self.kind } else { &self.source }
    }
}

/// A mount that something lies on.
#[derive(Debug, PartialEq, Eq)]
pub struct Above {
    /// The type of file system.
    pub kind: String,
    /// Its device, or its server.
    pub source: String,
    /// Of the mount, then those of its file system that are not among them.
    pub options: String,
}

/// A mount of Stoker in the table.
#[derive(Debug, PartialEq, Eq)]
pub struct Ours {
    pub at: PathBuf,
    pub source: String,
    pub user: Option<u32>,
    pub number: Option<Number>,
}

/// The device number of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Number {
    pub major: u32,
    pub minor: u32,
}

/// Where all mounts of Stoker are at a moment: the folders above one may have other names by now.
pub struct Places(Vec<(Number, PathBuf)>);

impl Places {
    /// None, where the table can't be read.
    pub fn now() -> Places {
        Places(places(&std::fs::read(MOUNTS).unwrap_or_default()))
    }

    /// Where the file system with this number is; of several places this one, if it is among them, or if it is nowhere.
    pub(crate) fn of<'a>(&'a self, number: Option<Number>, preferred: &'a Path) -> &'a Path {
        let mut found = self.0.iter().filter(|(of, _)| Some(*of) == number).map(|(_, at)| &**at);
        let first = found.clone().next().unwrap_or(preferred);
        found.find(|at| *at == preferred).unwrap_or(first)
    }
}

/// The type of our mounts.
pub(super) const KIND: &[u8] = b"fuse.stoker";

pub(super) const MOUNTS: &str = "/proc/self/mountinfo";

/// The topmost mount on exactly this folder. Not being able to tell is no reason to refuse.
pub fn at(folder: &Path) -> Option<There> {
    topmost(&std::fs::read(MOUNTS).ok()?, folder)
}

/// What a path leads to lies on: the mount that the kernel names for it, or else the deepest on the way.
pub fn above(path: &Path) -> Option<Above> {
    let table = std::fs::read(MOUNTS).ok()?;
    let asked = rustix::fs::statx(rustix::fs::CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::MNT_ID).ok();
    let known = asked.filter(|found| found.stx_mask & StatxFlags::MNT_ID.bits() != 0);
    let line = known.and_then(|found| lines(&table).find(|line| line.mount == Some(found.stx_mnt_id)));
    line.map_or_else(|| lies_on(&table, path), |line| Some(told(&line)))
}

/// The user whose mount of Stoker is topmost on exactly this folder.
pub fn user_at(folder: &Path) -> Option<u32> {
    user(&std::fs::read(MOUNTS).ok()?, folder)
}

/// The file system that a path leads into, its links aside. No file system is asked.
pub fn system_of(path: &Path) -> Option<Number> {
    system(&std::fs::read(MOUNTS).ok()?, path)
}

/// A name of what a path leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    pub path: PathBuf,
    /// The mount of Stoker that it lies in, if it does.
    pub of: Option<PathBuf>,
}

impl Known {
    /// Whether this mount is meant: the one that the system shows there, which may have been mounted over a folder of another.
    pub fn is_in(&self, mount_point: &Path) -> bool {
        self.of.as_ref().map_or_else(|| self.path.starts_with(mount_point), |of| of == mount_point)
    }
}

/// The names that a path in a mount of Stoker has where all of that mount is: it may lie in a folder of it that is bound elsewhere. The
/// path itself comes first, if it is among them; other paths are what they are. No file system is asked.
pub fn known_as(path: &Path) -> Vec<Known> {
    known(&std::fs::read(MOUNTS).unwrap_or_default(), path)
}

/// Whether what is mounted on exactly this folder is a part of a mount of Stoker of which the whole is not here any more.
pub fn is_left_part(folder: &Path) -> bool {
    left_part(&std::fs::read(MOUNTS).unwrap_or_default(), folder)
}

/// All mounts of Stoker that no other lies over.
pub fn ours() -> Vec<Ours> {
    std::fs::read(MOUNTS).map_or_else(|_| Vec::new(), |table| all_ours(&table))
}

/// Whether the file system with this number is mounted in any mount namespace that this user may look into.
pub fn is_anywhere(number: Number) -> bool {
    let mut seen = BTreeSet::new();
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten().map(|process| process.path());
    let mut others = processes
        .filter(|process| std::fs::read_link(process.join("ns/mnt")).is_ok_and(|namespace| seen.insert(namespace)));
    others.any(|process| {
        let table = std::fs::read(process.join("mountinfo")).unwrap_or_default();
        lines(&table).any(|line| line.number == Some(number) && line.kind == KIND)
    })
}

fn topmost(table: &[u8], folder: &Path) -> Option<There> {
    let line = top(table, folder)?;
    Some(There { source: line.source(), kind: text(line.kind) })
}

fn system(table: &[u8], path: &Path) -> Option<Number> {
    deepest(table, path)?.number
}

fn lies_on(table: &[u8], path: &Path) -> Option<Above> {
    deepest(table, path).map(|line| told(&line))
}

fn told(line: &Line<'_>) -> Above {
    let [mount, system] = [line.mount_options, line.options].map(String::from_utf8_lossy);
    let mut options: Vec<&str> = mount.split(',').collect();
    for option in system.split(',') {
        if !option.is_empty() && !options.contains(&option) {
            options.push(option);
        }
    }
    Above { kind: text(line.kind), source: line.source(), options: options.join(",") }
}

/// The mount that a path lies on, as the kernel walks there: from one mount to the nearest that lies on it. The order of the table is that in
/// which mounts were made, which is not the one in which they lie.
pub(super) fn deepest<'a>(table: &'a [u8], path: &Path) -> Option<Line<'a>> {
    let mut on_the_way: Vec<Line<'a>> = lines(table).filter(|line| path.starts_with(&line.at)).collect();
    // What the first one lies on is not in the table.
    let is_first =
        |line: &Line<'_>| line.parent == line.mount || !on_the_way.iter().any(|one| one.mount == line.parent);
    let firsts: Vec<bool> = on_the_way.iter().map(is_first).collect();
    let mut here: Option<usize> = None;
    for _ in 0..on_the_way.len() {
        let lies_on_it = |(at, line): &(usize, &Line<'_>)| match here {
            None => firsts[*at],
            Some(here) => !firsts[*at] && line.parent == on_the_way[here].mount,
        };
        let next = on_the_way.iter().enumerate().rev().filter(lies_on_it);
        let Some((at, _)) = next.min_by_key(|(_, line)| line.at.components().count()) else { break };
        here = Some(at);
    }
    here.map(|at| on_the_way.swap_remove(at))
}

/// The mount that is on exactly this folder, and that no other one covers.
pub(super) fn top<'a>(table: &'a [u8], folder: &Path) -> Option<Line<'a>> {
    deepest(table, folder).filter(|line| line.at == folder)
}

fn user(table: &[u8], folder: &Path) -> Option<u32> {
    top(table, folder).filter(|line| line.kind == KIND)?.user()
}

fn all_ours(table: &[u8]) -> Vec<Ours> {
    let is_seen = |line: &Line<'_>| top(table, &line.at).is_some_and(|top| top == *line);
    let ours = lines(table).filter(|line| line.kind == KIND).filter(is_seen);
    ours.map(|line| Ours { user: line.user(), source: line.source(), number: line.number, at: line.at }).collect()
}

fn known(table: &[u8], path: &Path) -> Vec<Known> {
    let Some(line) = deepest(table, path).filter(|line| line.kind == KIND && line.number.is_some()) else {
        return vec![Known { path: path.to_owned(), of: None }];
    };
    let root = PathBuf::from(OsString::from_vec(unescape(line.root)));
    let within = [root.strip_prefix("/").ok(), path.strip_prefix(&line.at).ok()];
    let within: PathBuf = within.into_iter().flatten().collect();
    let everywhere = places(table).into_iter().filter(|(number, _)| Some(*number) == line.number);
    let named = |(_, at): (Number, PathBuf)| Known { path: at.join(&within).components().collect(), of: Some(at) };
    let mut known: Vec<Known> = everywhere.map(named).collect();
    // A container may have but a folder of it, at the place that it has for its node.
    let of = path.ancestors().nth(within.components().count()).filter(|_| known.is_empty() && path.ends_with(&within));
    known.extend(of.map(|of| Known { path: path.to_owned(), of: Some(of.to_owned()) }));
    known.sort_by_key(|one| one.path != path);
    known
}

fn left_part(table: &[u8], folder: &Path) -> bool {
    let line = top(table, folder);
    let part = line.filter(|line| line.kind == KIND && line.root != b"/" && line.number.is_some());
    part.is_some_and(|part| !places(table).iter().any(|(number, _)| Some(*number) == part.number))
}

fn places(table: &[u8]) -> Vec<(Number, PathBuf)> {
    // A folder of it that is bound elsewhere is not the mount.
    let whole = lines(table).filter(|line| line.kind == KIND && line.root == b"/");
    whole.filter_map(|line| Some((line.number?, line.at))).collect()
}

#[derive(PartialEq)]
pub(super) struct Line<'a> {
    /// Its own number, of all mounts of this namespace, and that of the mount that it lies on.
    pub mount: Option<u64>,
    parent: Option<u64>,
    pub number: Option<Number>,
    /// What of the file system is mounted.
    pub root: &'a [u8],
    pub at: PathBuf,
    pub kind: &'a [u8],
    source: &'a [u8],
    mount_options: &'a [u8],
    /// Of the file system itself.
    options: &'a [u8],
}

impl Line<'_> {
    fn source(&self) -> String {
        text(self.source)
    }

    /// Who mounted it.
    fn user(&self) -> Option<u32> {
        let options = str::from_utf8(self.options).ok()?;
        options.split(',').find_map(|option| option.strip_prefix("user_id=")?.parse().ok())
    }
}

fn text(word: &[u8]) -> String {
    String::from_utf8_lossy(&unescape(word)).into_owned()
}

pub(super) fn lines(table: &[u8]) -> impl DoubleEndedIterator<Item = Line<'_>> {
    table.split(|&byte| byte == b'\n').filter_map(parse)
}

/// `36 35 98:0 /root /mount/point options fields... - type source superoptions`.
fn parse(line: &[u8]) -> Option<Line<'_>> {
    let mut words = line.split(|&byte| byte == b' ');
    let mount = words.next().and_then(|word| str::from_utf8(word).ok()?.parse().ok());
    let parent = words.next().and_then(|word| str::from_utf8(word).ok()?.parse().ok());
    let number = words.next()?;
    let (root, at) = (words.next()?, words.next()?);
    let mount_options = words.next()?;
    let mut after = words.skip_while(|word| *word != b"-").skip(1);
    let (kind, source, options) = (after.next()?, after.next()?, after.next().unwrap_or_default());
    let number = str::from_utf8(number).ok().and_then(|number| number.split_once(':'));
    let number = number.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    let number = number.map(|(major, minor)| Number { major, minor });
    Some(Line {
        mount,
        parent,
        number,
        root,
        at: PathBuf::from(OsString::from_vec(unescape(at))),
        kind,
        source,
        mount_options,
        options,
    })
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
        41 36 0:53 / /mnt/covered ro - fuse.stoker s3://other ro\n\
        42 36 0:54 / /mnt/covered ro - tmpfs tmpfs ro\n\
        broken line";

    #[test]
    fn a_mount_is_found_by_its_unescaped_folder() {
        let there = topmost(TABLE, Path::new("/mnt/my data"));
        assert_eq!(there, Some(There { source: "s3://bucket/a b".into(), kind: "fuse.stoker".into() }));
    }

    #[test]
    fn only_the_topmost_mount_of_a_folder_counts() {
        assert_eq!(topmost(TABLE, Path::new("/mnt/covered")).map(|there| there.kind), Some("tmpfs".into()));
        assert_eq!(topmost(TABLE, Path::new("/mnt")), None);
    }

    #[test]
    fn a_path_leads_into_the_topmost_mount_of_the_deepest_folder_above_it() {
        let minor = |path: &str| system(TABLE, Path::new(path)).map(|number| number.minor);
        assert_eq!([minor("/mnt/my data/deep"), minor("/mnt/covered"), minor("/mnt")], [Some(52), Some(54), Some(0)]);
        assert_eq!(minor("relative"), None);
    }

    #[test]
    fn what_a_path_lies_on_is_named_with_the_options_of_mount_and_system() {
        let table = [
            TABLE,
            b"\n43 40 0:56 / /my\\011data rw,nosuid - tmpfs none rw,size=4k\n\
            44 36 0:57 / /my\\011data ro,noatime shared:7 - fuse.s3fs s3fs rw,user_id=0",
        ]
        .concat();
        let on = |path: &str| lies_on(&table, Path::new(path)).map(|above| (above.kind, above.source, above.options));
        let of =
            |kind: &str, source: &str, options: &str| Some((kind.to_owned(), source.to_owned(), options.to_owned()));
        assert_eq!(on("/my\tdata/set"), of("fuse.s3fs", "s3fs", "ro,noatime,rw,user_id=0"));
        assert_eq!(on("/my\tdatabase"), of("ext4", "/dev/root", "rw,noatime"));
        assert_eq!(on("relative"), None);
    }

    #[test]
    fn the_user_of_a_mount_is_the_kernels_word_and_only_of_ours() {
        assert_eq!(user(TABLE, Path::new("/mnt/my data")), Some(0));
        assert_eq!([user(TABLE, Path::new("/mnt/covered")), user(TABLE, Path::new("/mnt"))], [None, None]);
    }

    #[test]
    fn our_mounts_are_listed_unless_another_lies_over_them() {
        let number = Some(Number { major: 0, minor: 52 });
        let ours = |at: &str| Ours { at: at.into(), source: "s3://bucket/a b".into(), user: Some(0), number };
        assert_eq!(all_ours(TABLE), [ours("/mnt/my data")]);
        let covered = [TABLE, b"\n43 40 0:56 / /mnt/my\\040data rw - tmpfs tmpfs rw"].concat();
        assert_eq!(all_ours(&covered), []);
    }

    #[test]
    fn a_path_below_what_was_bound_is_known_by_the_name_that_it_has_in_the_mount() {
        let bound = [
            TABLE,
            b"\n43 36 0:52 /a\\040folder /bound ro - fuse.stoker s3://bucket/a\\040b ro\n\
            44 36 0:52 / /all ro - fuse.stoker s3://bucket/a\\040b ro\n\
            45 36 98:0 /x /mnt/x rw - ext4 /dev/root rw\n\
            46 36 0:57 / /my ro - fuse.stoker s3://other ro\n\
            47 46 0:52 / /my/sub ro - fuse.stoker s3://bucket/a\\040b ro\n\
            48 36 0:58 /deep /rest ro - fuse.stoker s3://ended ro\n\
            49 36 0:59 /deep /its/deep ro - fuse.stoker s3://outside ro",
        ]
        .concat();
        let known = |path: &str| known(&bound, Path::new(path)).into_iter().map(|known| known.path).collect::<Vec<_>>();
        let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
        let deep = paths(&["/mnt/my data/a folder/deep", "/all/a folder/deep", "/my/sub/a folder/deep"]);
        assert_eq!(known("/bound/deep"), deep);
        assert_eq!(known("/mnt/my data"), paths(&["/mnt/my data", "/all", "/my/sub"]), "itself first");
        assert_eq!(known("/all/deep"), paths(&["/all/deep", "/mnt/my data/deep", "/my/sub/deep"]));
        assert_eq!(
            known("/my/sub/x"),
            paths(&["/my/sub/x", "/mnt/my data/x", "/all/x"]),
            "over another mount's folder"
        );
        for path in ["/mnt/covered", "/mnt/x", "/mnt", "relative", "/my/else"] {
            assert_eq!(known(path), paths(&[path]));
        }
        assert_eq!(known("/rest/x"), paths(&[]), "the rest of one that is unmounted");
        assert_eq!(known("/its/deep/x"), paths(&["/its/deep/x"]), "a folder of it at its own place, as in a container");
        let is_left =
            ["/all", "/my/sub", "/rest", "/its/deep", "/mnt", "/nowhere"].map(|at| left_part(&bound, Path::new(at)));
        assert_eq!(is_left, [false, false, true, true, false, false]);
        let of = |path: &str| super::known(&bound, Path::new(path)).remove(0).of;
        assert_eq!((of("/my/sub/x"), of("/mnt/x")), (Some("/my/sub".into()), None), "of the mount that lies there");
        assert_eq!(of("/its/deep/x"), Some("/its".into()));
    }

    #[test]
    fn a_mount_is_called_by_where_it_is_by_now() {
        let bound = [TABLE, b"\n43 36 0:55 /folder /bound ro - fuse.stoker s3://bucket ro"].concat();
        let places = Places(places(&bound));
        let now = |minor, before| places.of(Some(Number { major: 0, minor }), Path::new(before));
        assert_eq!(
            [now(52, "/before/my data"), now(54, "/mnt/covered")].map(Path::to_str),
            [Some("/mnt/my data"), Some("/mnt/covered")]
        );
        assert_eq!((now(55, "/ended"), places.of(None, Path::new("/x"))), (Path::new("/ended"), Path::new("/x")));
    }
}
