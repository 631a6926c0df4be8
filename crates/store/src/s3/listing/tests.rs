//! Listings are planned against a bucket that is a sorted list of keys, page by page.

use super::*;
use std::collections::BTreeSet;

const PAGE: usize = 1000;

/// How a server answers.
#[derive(Clone, Copy, Debug)]
struct Habits {
    /// It passes over where a listing is to begin.
    ignores_after: bool,
    /// It knows no delimiters.
    refuses_folding: bool,
    /// It begins with the very key that the listing is to begin after, as Google does.
    begins_with_it: bool,
    /// A slash comes before all else: `a/x` before `a-b`.
    orders_by_folders: bool,
    /// Names of a page.
    page: usize,
}

const USUAL: Habits = Habits {
    ignores_after: false,
    refuses_folding: false,
    begins_with_it: false,
    orders_by_folders: false,
    page: PAGE,
};

impl Habits {
    fn slash(self) -> char {
        if self.orders_by_folders { '\u{1}' } else { '/' }
    }

    /// A key as it is ordered.
    fn spelled(self, key: &str) -> String {
        key.replace('/', &self.slash().to_string())
    }

    fn told(self, key: &str) -> String {
        key.replace(self.slash(), "/")
    }
}

/// What a store would answer. Its keys are spelled as they are ordered.
fn serve(keys: &BTreeSet<String>, task: &Task, habits: Habits) -> Result<Page> {
    if task.is_folded && habits.refuses_folding {
        return Err(Error::invalid("no delimiters here", "test"));
    }
    let prefix = habits.spelled(&task.prefix);
    let after = habits.spelled(task.after.as_deref().filter(|_| !habits.ignores_after).unwrap_or_default());
    let start = task.next.clone().unwrap_or_else(|| after.clone());
    let is_behind =
        |key: &str| *key > *start || habits.begins_with_it && task.next.is_none() && !after.is_empty() && key == after;
    let mut page = Page::default();
    let (from, mut last) = (start.clone().max(prefix.clone()), None);
    let below = keys.range(from..).take_while(|key| key.starts_with(&prefix));
    for key in below.filter(|key| is_behind(key)) {
        let fold = key[prefix.len()..].find(habits.slash()).filter(|_| task.is_folded);
        let folder = fold.map(|at| key[..=prefix.len() + at].to_owned());
        if folder.as_ref().is_some_and(|folder| last.as_ref() == Some(folder) || start.starts_with(folder)) {
            continue;
        }
        if page.listed.len() + page.prefixes.len() == habits.page {
            page.next = last;
            break;
        }
        last = folder.clone().or(Some(key.clone()));
        let key = habits.told(key);
        match folder {
            Some(folder) => page.prefixes.push(habits.told(&folder)),
            None => page.listed.push(Listed { key, version: "v".into(), size: 1, modified_ns: 0 }),
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
    let keys = keys.iter().map(|key| habits.spelled(key)).collect();
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
            let page = serve(&keys, &task, habits);
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
    let (asked, _) = checked(keys, prefix, Box::new(Folders::of(prefix.into())), USUAL);
    for bits in 1..32 {
        let is = |bit: u32| bits & 1 << bit > 0;
        let habits = Habits {
            ignores_after: is(0),
            refuses_folding: is(1),
            begins_with_it: is(2),
            orders_by_folders: is(3),
            page: if is(4) { PAGE } else { 10 },
        };
        checked(keys, prefix, Box::new(Rows::of(prefix.into())), habits);
        checked(keys, prefix, Box::new(Folders::of(prefix.into())), habits);
    }
    let (rows, turns) = checked(keys, prefix, Box::new(Rows::of(prefix.into())), USUAL);
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
        let (asked, turns) = checked(&keys, "", Box::new(Rows::of(String::new())), USUAL);
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
    let mut loose = tree(100, 700);
    loose.extend((0..100).map(|folder| format!("train/n{folder:05}-notes.txt")));
    // Pages of ten folders end with `m/`, and our order has those of the next before it.
    let below = |folder: String, files: usize| (0..files).map(move |file| format!("{folder}/{file:06}"));
    let wide = |large: usize, last: usize, small: usize| -> BTreeSet<String> {
        let large = (0..9).flat_map(|folder| below(format!("a{folder}"), large));
        let small = (0..40).flat_map(|folder| below(format!("m-{folder:02}"), small));
        large.chain(below("m".into(), last)).chain(small).chain(below("z".into(), 3000)).collect()
    };
    let (rows, held) = (wide(300, 500, 10), wide(2000, 5000, 1));
    let mut folders: BTreeSet<String> = (0..900).map(|folder| format!("n{folder:04}/x")).collect();
    folders.insert("n0050.tar".into());
    for keys in [loose, rows, held, folders] {
        for page in [1, 3, 10, 51, PAGE].into_iter().filter(|page| keys.len() / page < 10_000) {
            for orders_by_folders in [false, true] {
                let habits = Habits { orders_by_folders, page, ..USUAL };
                checked(&keys, "", Box::new(Rows::of(String::new())), habits);
                checked(&keys, "", Box::new(Folders::of(String::new())), habits);
            }
        }
    }
}

#[test]
fn a_row_that_begins_with_keys_that_are_deleted_meanwhile_ends_the_one_before() {
    for gone in [1, 1000, 5000] {
        let mut keys = tree(100, 1000);
        let (mut plan, mut found, mut asked, mut split) = (Rows::of(String::new()), Vec::new(), 0, 0);
        loop {
            let running: Vec<_> = std::iter::from_fn(|| plan.next(4)).take(4).collect();
            if running.is_empty() {
                break;
            }
            for task in running {
                let page = serve(&keys, &task, USUAL);
                found.extend(plan.learn(task.number, page).expect("it goes on").into_iter().map(|listed| listed.key));
                if let Some(after) = task.after {
                    let first: Vec<_> = keys.range(after..).take(gone).cloned().collect();
                    for key in first {
                        keys.remove(&key);
                    }
                    split += 1;
                }
                asked += 1;
            }
        }
        let told = found.len();
        found.sort();
        found.dedup();
        assert_eq!((told, keys.iter().all(|key| found.binary_search(key).is_ok())), (found.len(), true));
        assert!(asked < 200 && split > 2, "{asked} requests, {split} of them for splits");
    }
}

/// A store whose pages lead from one to another by these tokens.
struct Circle {
    leads: fn(usize) -> usize,
    begins_anywhere: bool,
    identity: Arc<str>,
    counters: Arc<Counters>,
    chance: Chance,
}

impl Listing for Circle {
    fn page<'a>(&'a self, question: Question<'a>) -> BoxFuture<'a, Result<Page>> {
        let at = question.next.map_or(0, |next| next.parse().expect("a token of ours"));
        Counters::add(&self.counters.lists, 1);
        let next = Some((self.leads)(at).to_string());
        Box::pin(std::future::ready(Ok(Page { next, ..Page::default() })))
    }

    fn manner(&self) -> Manner<'_> {
        let Circle { identity, counters, chance, begins_anywhere, .. } = self;
        let (requests, budget, begins_anywhere) = (4, Duration::from_secs(60), *begins_anywhere);
        Manner { identity, counters, chance, requests, budget, begins_anywhere }
    }
}

#[tokio::test]
async fn a_listing_that_goes_round_in_a_circle_is_an_error_however_long_that_is() {
    type Leads = fn(usize) -> usize;
    let circles: [(Leads, u64); 4] =
        [(|_| 1, 2), (|at| at % 2 + 1, 5), (|at| if at == 99 { 90 } else { at + 1 }, 150), (|at| at % 1000 + 1, 3000)];
    for (leads, pages_max) in circles {
        for begins_anywhere in [false, true] {
            let (identity, counters) = ("s3://b".into(), Arc::<Counters>::default());
            let chance = Chance::new(0);
            let bucket = Circle { leads, begins_anywhere, identity, counters: counters.clone(), chance };
            let error = pages(Arc::new(bucket), String::new()).next().await.expect("an end").expect_err("no page");
            assert!(error.what.contains("round in a circle") && error.hint.contains("server"), "{error}");
            assert!(counters.snapshot().lists <= pages_max, "{} pages", counters.snapshot().lists);
        }
    }
}
