//! Listings are planned against a bucket that is a sorted list of keys, page by page.

use super::*;
use std::collections::BTreeSet;

const PAGE: usize = 1000;

/// How a server answers.
#[derive(Clone, Copy, Debug, Default)]
struct Habits {
    /// It passes over where a listing is to begin.
    ignores_after: bool,
    /// It knows no delimiters.
    refuses_folding: bool,
    /// It begins with the very key that the listing is to begin after, as Google does.
    begins_with_it: bool,
}

/// What a store would answer.
fn serve(keys: &BTreeSet<String>, task: &Task, habits: Habits) -> Result<Page> {
    if task.is_folded && habits.refuses_folding {
        return Err(Error::invalid("no delimiters here", "test"));
    }
    let after = task.after.clone().filter(|_| !habits.ignores_after).unwrap_or_default();
    let start = task.next.clone().unwrap_or_else(|| after.clone());
    let is_behind =
        |key: &str| *key > *start || habits.begins_with_it && task.next.is_none() && !after.is_empty() && key == after;
    let mut page = Page::default();
    let from = start.clone().max(task.prefix.clone());
    let below = keys.range(from..).take_while(|key| key.starts_with(&task.prefix));
    for key in below.filter(|key| is_behind(key)) {
        let fold = key[task.prefix.len()..].find('/').filter(|_| task.is_folded);
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
    Ok(page)
}

/// All keys that a plan finds, how many requests it took, and in how many turns of as many requests as may be under way.
fn list(
    keys: &BTreeSet<String>,
    mut plan: Box<dyn Plan>,
    requests: usize,
    habits: Habits,
) -> (Vec<String>, usize, usize) {
    let (mut found, mut asked, mut turns) = (Vec::new(), 0, 0);
    loop {
        let mut running = Vec::new();
        while running.len() < requests {
            let Some(task) = plan.next(requests) else { break };
            running.push(task);
        }
        if running.is_empty() {
            return (found, asked, turns);
        }
        turns += 1;
        asked += running.len();
        // Answers may come in any order.
        running.sort_by_key(|task| (task.number * 7) % 5);
        for task in running {
            let page = serve(keys, &task, habits);
            found.extend(plan.learn(task.number, page).expect("it goes on").into_iter().map(|listed| listed.key));
        }
    }
}

fn checked(keys: &BTreeSet<String>, prefix: &str, plan: Box<dyn Plan>, habits: Habits) -> (usize, usize) {
    let (mut found, asked, turns) = list(keys, plan, 16, habits);
    found.sort();
    let expected: Vec<_> = keys.iter().filter(|key| key.starts_with(prefix)).cloned().collect();
    assert_eq!(found.len(), expected.len(), "as many keys as there are, each once, {habits:?}");
    assert_eq!(found, expected);
    (asked, turns)
}

/// By folders, and in rows with every habit. Requests of folders, and of rows, with the turns of these.
fn both(keys: &BTreeSet<String>, prefix: &str) -> (usize, usize, usize) {
    let (asked, _) = checked(keys, prefix, Box::new(Folders::of(prefix.into())), Habits::default());
    for bits in 1..8 {
        let habits =
            Habits { ignores_after: bits & 1 > 0, refuses_folding: bits & 2 > 0, begins_with_it: bits & 4 > 0 };
        checked(keys, prefix, Box::new(Rows::of(prefix.into())), habits);
    }
    let (rows, turns) = checked(keys, prefix, Box::new(Rows::of(prefix.into())), Habits::default());
    (asked, rows, turns)
}

fn check(keys: &BTreeSet<String>, prefix: &str) -> usize {
    both(keys, prefix).0
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
fn a_listing_in_rows_asks_for_few_pages_more_than_there_are() {
    for (keys, pages, more, turns_max) in [
        (tree(5, 100), 1, 0, 1),
        (tree(3, 600), 2, 3, 3),
        (tree(100, 1006), 101, 25, 20),
        (tree(1000, 100), 100, 25, 20),
        (tree(1000, 1000), 1000, 80, 80),
        (tree(20_000, 5), 100, 25, 110),
        (tree(1, 50_000), 50, 3, 52),
    ] {
        let (asked, turns) = checked(&keys, "", Box::new(Rows::of(String::new())), Habits::default());
        assert!(asked <= pages + more, "{asked} requests for {pages} pages");
        assert!(turns <= turns_max, "{turns} turns for {pages} pages");
    }
}

#[test]
fn folders_that_are_only_marked_are_listed_where_rows_are_split() {
    let mut keys = tree(100, 1000);
    keys.extend((0..100).map(|folder| format!("train/n{folder:05}/")));
    keys.extend((0..2000).map(|folder| format!("train/n00050x{folder:05}/")));
    both(&keys, "");
}

#[test]
fn a_server_that_orders_by_folders_is_listed_completely() {
    // A slash before all else: `a/x` comes before `a-b`.
    let spelled = |key: &String| key.replace('/', "\u{1}");
    let mut keys: Vec<String> = tree(100, 700).into_iter().collect();
    keys.extend((0..100).map(|folder| format!("train/n{folder:05}-notes.txt")));
    keys.sort_by_key(spelled);
    let mut plan: Box<dyn Plan> = Box::new(Rows::of(String::new()));
    let mut found = Vec::new();
    while let Some(task) = plan.next(4) {
        let from = task.next.clone().or(task.after.clone()).unwrap_or_default();
        let behind = keys.iter().filter(|key| spelled(key) > spelled(&from));
        let mut page = Page::default();
        if task.is_folded {
            let names = behind.filter_map(|key| {
                key[task.prefix.len()..].find('/').map(|at| key[..=task.prefix.len() + at].to_owned())
            });
            page.prefixes = names.collect();
            page.prefixes.dedup();
        } else {
            let all = behind.map(|key| Listed { key: key.clone(), version: "v".into(), size: 1, modified_ns: 0 });
            page.listed = all.take(PAGE + 1).collect();
            if page.listed.len() > PAGE {
                page.listed.pop();
                page.next = page.listed.last().map(|listed| listed.key.clone());
            }
        }
        found.extend(plan.learn(task.number, Ok(page)).expect("it goes on").into_iter().map(|listed| listed.key));
    }
    found.sort();
    keys.sort();
    assert_eq!(found.len(), keys.len());
    assert!(found == keys);
}
