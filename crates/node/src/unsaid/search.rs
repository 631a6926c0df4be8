//! Which sampler first opens come from: files get the numbers that a data set of the folder gives them, and sums of seed
//! and epoch are tried.

use crate::declared::FILES_MAX;
use crate::load::{self, Reach};
use crate::select::Wanted;
use order::{Finding, Trail, sums};
use std::collections::HashMap;

/// Samples of a set of which an order says something.
const SAMPLES_MIN: usize = 64;

/// What was found, of which files.
pub struct Found {
    pub wanted: Wanted,
    /// They, in the order of their numbers.
    pub nodes: Vec<u64>,
    pub finding: Finding,
}

/// Search; `sum` is what was found before.
pub fn search(reach: &Reach, readers: &[Vec<u64>], sum: Option<u64>, is_over: &dyn Fn() -> bool) -> Option<Found> {
    if reach.manifest.totals().files > FILES_MAX as u64 {
        return None;
    }
    let paths: Vec<Vec<u8>> = readers.iter().flatten().filter_map(|node| reach.manifest.path(*node)).collect();
    let under = String::from_utf8(common(&paths)?.to_vec()).ok()?;
    let all = Wanted { under, ..Wanted::default() };
    // Beside samples there may be files that are none.
    let of_kind = ending(&paths).map(|ending| Wanted { include: vec![format!("*{ending}")], ..all.clone() });
    let mut before = 0;
    for wanted in [Some(all), of_kind].into_iter().flatten() {
        let nodes: Vec<u64> = load::chosen(&reach.manifest, &wanted).ok()?.into_iter().map(|(node, _)| node).collect();
        if nodes.len() == before || nodes.len() < SAMPLES_MIN {
            continue;
        }
        before = nodes.len();
        let finding = find(&nodes, readers, sum, is_over);
        if let Some(finding) = finding {
            return Some(Found { wanted, nodes, finding });
        }
    }
    None
}

fn find(nodes: &[u64], readers: &[Vec<u64>], sum: Option<u64>, is_over: &dyn Fn() -> bool) -> Option<Finding> {
    let mut numbers: HashMap<u64, Option<u32>> = readers.iter().flatten().map(|node| (*node, None)).collect();
    for (number, node) in nodes.iter().enumerate() {
        if let Some(known) = numbers.get_mut(node) {
            *known = u32::try_from(number).ok();
        }
    }
    let numbered = |opens: &Vec<u64>| opens.iter().filter_map(|node| numbers[node]).collect();
    let mut trail = Trail::of(readers.iter().map(numbered).collect(), u32::try_from(nodes.len()).ok()?);
    let next = sum.into_iter().flat_map(|sum| [sum + 1, sum, sum.saturating_sub(1)]);
    next.chain(sums()).take_while(|_| !is_over()).find_map(|sum| trail.try_sum(sum))
}

/// The folder that holds all of these.
fn common(paths: &[Vec<u8>]) -> Option<&[u8]> {
    let (first, rest) = paths.split_first()?;
    let folder = |path: &[u8]| path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    let mut length = folder(first);
    for path in rest {
        let same = first.iter().zip(path).take_while(|(one, other)| one == other).count();
        if same < length || path.len() > length && length > 0 && path[length] != b'/' {
            length = folder(&first[..same.min(length)]);
        }
    }
    Some(&first[..length])
}

/// How all of their names end.
fn ending(paths: &[Vec<u8>]) -> Option<String> {
    let of = |path: &Vec<u8>| {
        let name = path.rsplit(|byte| *byte == b'/').next()?;
        let at = name.iter().rposition(|byte| *byte == b'.')?;
        String::from_utf8(name[at..].to_vec()).ok()
    };
    let first = of(paths.first()?)?;
    let is_plain = first.bytes().skip(1).all(|byte| byte.is_ascii_alphanumeric());
    (is_plain && paths.iter().all(|path| of(path).as_ref() == Some(&first))).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(paths: &[&str]) -> Vec<Vec<u8>> {
        paths.iter().map(|path| path.as_bytes().to_vec()).collect()
    }

    #[test]
    fn the_folder_of_all_files_and_their_ending_are_found() {
        let folder = |names: &[&str]| common(&paths(names)).map(|folder| String::from_utf8_lossy(folder).into_owned());
        assert_eq!(folder(&["train/a/1.jpg", "train/b/2.jpg"]).as_deref(), Some("train"));
        assert_eq!(folder(&["train/a/1.jpg", "train/ab/2.jpg"]).as_deref(), Some("train"));
        assert_eq!(folder(&["train/a/1.jpg", "train/a/2.jpg"]).as_deref(), Some("train/a"));
        assert_eq!(folder(&["train/1", "train2/1"]).as_deref(), Some(""));
        assert_eq!(folder(&["x", "y"]).as_deref(), Some(""));
        assert_eq!(folder(&["a/b/x", "a/y"]).as_deref(), Some("a"));
        assert_eq!(folder(&[]), None);
        assert_eq!(ending(&paths(&["a.b/1.jpg", "2.jpg"])).as_deref(), Some(".jpg"));
        assert_eq!(ending(&paths(&["1.jpg", "2.png"])), None);
        assert_eq!(ending(&paths(&["1", "2"])), None);
    }
}
