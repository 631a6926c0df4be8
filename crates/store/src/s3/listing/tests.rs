//! Listings are planned against a bucket that is a sorted list of keys, page by page.

use super::*;
use std::collections::BTreeSet;

const PAGE: usize = 1000;

/// What S3 would answer.
fn serve(keys: &BTreeSet<String>, task: &Task) -> Page {
    let folders = matches!(task.shape, Shape::Folders);
    let start = match &task.shape {
        Shape::Rest { after, .. } => after.clone(),
        _ => String::new(),
    };
    let start = task.next.clone().unwrap_or(start);
    let mut page = Page::default();
    for key in keys.iter().filter(|key| key.starts_with(&task.prefix) && **key > start) {
        let fold = key[task.prefix.len()..].find('/').filter(|_| folders);
        let folder = fold.map(|at| key[..=task.prefix.len() + at].to_owned());
        if folder.as_ref().is_some_and(|folder| page.prefixes.last() == Some(folder) || start.starts_with(folder)) {
            continue;
        }
        if page.listed.len() + page.prefixes.len() == PAGE {
            let last = page.listed.last().map(|listed| listed.key.clone());
            page.next = last.max(page.prefixes.last().cloned());
            break;
        }
        match folder {
            Some(folder) => page.prefixes.push(folder),
            None => page.listed.push(Listed { key: key.clone(), version: "v".into(), size: 1, modified_ns: 0 }),
        }
    }
    page
}

/// All keys that a plan finds, and how many requests it took.
fn list(keys: &BTreeSet<String>, prefix: &str, requests: usize) -> (Vec<String>, usize) {
    let first = Task { prefix: prefix.into(), level: 0, shape: Shape::Folders, next: None, found: 0 };
    let levels = vec![Level { prefix: prefix.into(), ..Level::default() }];
    let mut plan = Plan { waiting: VecDeque::from([first]), levels };
    let (mut found, mut running, mut asked) = (Vec::new(), VecDeque::new(), 0);
    loop {
        while running.len() < requests {
            let Some(task) = plan.next(requests) else { break };
            running.push_back(task);
        }
        let Some(task) = running.pop_front() else { return (found, asked) };
        asked += 1;
        let page = serve(keys, &task);
        found.extend(plan.learn(task, page).into_iter().map(|listed| listed.key));
    }
}

fn check(keys: &BTreeSet<String>, prefix: &str) -> usize {
    let (mut found, asked) = list(keys, prefix, 16);
    found.sort();
    let expected: Vec<_> = keys.iter().filter(|key| key.starts_with(prefix)).cloned().collect();
    assert_eq!(found.len(), expected.len(), "as many keys as there are, each once");
    assert_eq!(found, expected);
    asked
}

fn tree(folders: usize, files: usize) -> BTreeSet<String> {
    (0..folders).flat_map(|folder| (0..files).map(move |file| format!("train/n{folder:05}/{file:06}.jpg"))).collect()
}

#[test]
fn large_folders_are_listed_side_by_side() {
    let asked = check(&tree(50, 1300), "");
    assert!(asked <= 2 + 100, "{asked} requests");
}

#[test]
fn small_folders_are_not_asked_one_by_one() {
    let asked = check(&tree(100, 99), "");
    assert!((11..=60).contains(&asked), "{asked} requests");
    let asked = check(&tree(3000, 3), "train/");
    assert!(asked < 60, "{asked} requests");
}

#[test]
fn every_shape_of_a_bucket_is_listed_completely() {
    check(&BTreeSet::new(), "");
    check(&(0..2500).map(|n| format!("{n:05}")).collect(), "");
    let mut mixed = tree(40, 2);
    mixed.extend((0..3000).map(|n| format!("train/{n:05}-loose")));
    mixed
        .extend(["train/n00017", "train/n00017.txt", "/lead", "a//b", "a//b//c", "a/", "train", "z"].map(String::from));
    for prefix in ["", "train", "train/", "train/n0001", "a/", "a//", "none"] {
        check(&mixed, prefix);
    }
    check(&(0..5).flat_map(|a| (0..5).map(move |b| format!("{a}/{b}/c/d/e/f/g"))).collect(), "");
}

#[test]
fn a_server_that_does_not_sort_is_never_skipped_through() {
    let mut level = Level { listed: 100, keys: 100, next: Some("more".into()), ..Level::default() };
    assert!(level.is_better_in_a_row());
    level.learn(&[], vec!["b/".into(), "a/".into()], Some("more".into()));
    assert!(!level.is_better_in_a_row());
}
