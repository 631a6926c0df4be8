//! Listings that are read in parts, while names change.

use super::support::content::noise;
use super::support::{self, Bed, text};
use rustix::fs::RawDir;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Names of a folder, read in small parts; after ten of them something else is done.
fn listed_in_parts(folder: &Path, then: impl FnOnce()) -> HashSet<OsString> {
    let (folder, mut room) = (File::open(folder).expect("a folder"), [const { MaybeUninit::uninit() }; 1024]);
    let (mut listing, mut names, mut then) = (RawDir::new(&folder, &mut room), HashSet::new(), Some(then));
    while let Some(entry) = listing.next() {
        let name = OsStr::from_bytes(entry.expect("it goes on").file_name().to_bytes()).to_owned();
        assert!(names.insert(name), "each once");
        if names.len() == 10 {
            then.take().expect("once")();
        }
    }
    names
}

#[test]
fn a_listing_ends_no_earlier_where_another_one_fills_whole_pages_with_later_names() {
    // An entry takes 32 bytes in the kernel's pages: with two dots, these fill one of 4 KiB.
    const FILLING: usize = 126;
    let Some(bed) = Bed::new() else { return };
    (0..FILLING + 100).for_each(|number| bed.put(&format!("many/{number:08}"), b"x"));
    let _daemon = bed.mount(&["--fill", "off"]);
    let count = || fs::read_dir(bed.mounted("many")).expect("a listing").count();
    assert_eq!(count(), FILLING + 100, "the kernel keeps it");
    let names = listed_in_parts(&bed.mounted("many"), || {
        (0..100).for_each(|number| {
            fs::remove_file(bed.path("data").join(format!("many/{number:08}"))).expect("it is there")
        });
        let done = bed.run(["refresh".as_ref(), bed.path("mnt").as_os_str()]);
        assert!(done.status.success(), "{}", text(&done));
        assert_eq!(count(), FILLING);
    });
    assert_eq!(names.len(), FILLING + 100 + 2);
    assert_eq!((count(), count()), (FILLING, FILLING));
}

#[test]
fn a_listing_whose_beginning_the_kernel_kept_from_names_that_are_gone_is_whole() {
    const COUNT: usize = 3000;
    let Some(bed) = Bed::new() else { return };
    (0..COUNT).for_each(|number| bed.put(&format!("many/{number:04}"), b""));
    let _daemon = bed.mount(&["--fill", "off"]);
    let refresh = |change: usize| {
        bed.put("changed", &noise(change, 1));
        let done = bed.run(["refresh".as_ref(), bed.path("mnt").as_os_str()]);
        assert!(done.status.success(), "{}", text(&done));
    };
    // The names of the mount hold the folder, so that no later ones need to.
    fs::metadata(bed.mounted("many")).expect("a folder");
    for (number, is_changed) in [(0, false), (1, true)] {
        [1, 2].iter().for_each(|change| refresh(10 * number + change));
        assert_eq!(fs::read_dir(bed.mounted("many")).expect("a listing").count(), COUNT);
        // Nobody holds the latest names any more, of which the kernel keeps this folder, in which nothing changed.
        refresh(10 * number + 3);
        let names = listed_in_parts(&bed.mounted("many"), || {
            if is_changed {
                bed.put("many/new", b"");
                refresh(10 * number + 4);
            } else {
                support::drop_page_cache();
            }
        });
        assert_eq!(names.len(), COUNT + 2, "with the dots");
    }
}
