//! What is believed of a file, and by whom: boots, stale flows, failures that are no damage.

use super::*;
use crate::disk::medium::{Handle, Made, Space, Status};
use block::Block;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32};

/// The file system of this machine, with failures, numbers of free bytes and a mount to order.
pub struct Moody {
    below: System,
    /// Errno of each open of an existing file; 0 for none.
    open_fails: AtomicI32,
    pub free_bytes: AtomicU64,
    mount: AtomicU64,
    /// Errno of the next writes to files of objects, one after the other; 0 for none.
    pub write_fails: Arc<Mutex<std::collections::VecDeque<i32>>>,
    /// Called by whoever is about to unlink something, or to read a file that was opened since; then calls take time.
    pub before_remove: OnceLock<Hook>,
    pub before_read: OnceLock<Arc<Hook>>,
    /// Held by all files that are open. True: what is read of them fails, as on a disk that fell off its bus.
    pub open: Arc<AtomicBool>,
    /// Times that files were opened for writing.
    pub opened: AtomicU64,
}

pub type Hook = Box<dyn Fn(&Path) + Send + Sync>;

impl Moody {
    pub fn new() -> Arc<Moody> {
        let (open_fails, free_bytes, mount) = (0.into(), (1 << 40).into(), 1.into());
        let (write_fails, before_remove, before_read, open, opened) = Default::default();
        let below = System;
        Arc::new(Moody { below, open_fails, free_bytes, mount, write_fails, before_remove, before_read, open, opened })
    }
}

impl Medium for Moody {
    fn open(&self, path: &Path, how: How) -> std::io::Result<Arc<dyn Handle>> {
        self.opened.fetch_add(u64::from(how == How::Write), Relaxed);
        match (how, self.open_fails.load(Relaxed)) {
            (How::Read | How::Write, errno) if errno != 0 => Err(std::io::Error::from_raw_os_error(errno)),
            _ => Ok(Arc::new(Counted {
                file: self.below.open(path, how)?,
                path: path.to_owned(),
                before_read: self.before_read.get().cloned(),
                write_fails: self.write_fails.clone(),
                is_gone: self.open.clone(),
            })),
        }
    }

    fn remove(&self, path: &Path) -> std::io::Result<()> {
        if let Some(hook) = self.before_remove.get() {
            hook(path);
        }
        self.below.remove(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> std::io::Result<()> {
        self.below.rename(from, to)
    }

    fn make_folder(&self, path: &Path) -> std::io::Result<()> {
        self.below.make_folder(path)
    }

    fn folder(&self, path: &Path) -> std::io::Result<Made> {
        self.below.folder(path)
    }

    fn list(&self, path: &Path) -> std::io::Result<Vec<String>> {
        self.below.list(path)
    }

    fn space(&self, _: &Path) -> std::io::Result<Space> {
        Ok(Space { free_bytes: self.free_bytes.load(Relaxed), free_files: None })
    }

    fn mounted(&self, _: &Path) -> std::io::Result<u128> {
        Ok(self.mount.load(Relaxed).into())
    }

    fn is_instant(&self) -> bool {
        self.before_remove.get().is_none() && self.before_read.get().is_none()
    }
}

pub fn moody(store: &Arc<Store>, folder: &Path, boot: u8, medium: &Arc<Moody>, limits: Limits) -> Disk {
    let settings = Settings { medium: medium.clone(), ..settings(folder, limits, boot) };
    Disk::over(store.clone(), settings, tokio::runtime::Handle::current()).expect("a disk tier")
}

/// One object of so many mebibytes and its bytes.
pub fn large(mebibytes: u64) -> (Arc<Store>, Arc<Object>, Vec<u8>) {
    let (mut store, bytes) = (Store::default(), content(7, mebibytes * SMALL));
    let object = store.below.add("folder/large", bytes.clone());
    (Arc::new(store), object, bytes)
}

pub async fn run(disk: &Disk, object: &Arc<Object>, blocks: std::ops::Range<u32>) {
    let got: Vec<_> = disk.fetch(Run::new(object.clone(), blocks)).collect().await;
    assert!(got.iter().all(Result::is_ok));
}

/// What a power loss leaves of bytes that were never synced.
fn forget(path: &Path, range: std::ops::Range<u64>) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::options().write(true).open(path).expect("the file");
    file.write_all_at(&vec![0; (range.end - range.start) as usize], range.start).expect("zeroed");
}

#[tokio::test(start_paused = true)]
async fn blocks_of_an_earlier_boot_are_compared_before_a_file_is_complete() {
    for remount in [false, true] {
        let folder = tempfile::tempdir().expect("a folder");
        let (store, object, bytes) = large(8);
        let medium = Moody::new();
        run(&moody(&store, folder.path(), 1, &medium, PLENTY), &object, 0..6).await;
        forget(&path(folder.path(), &object), 0..BLOCK);
        // Another boot; or the file system was away in between, within one boot.
        medium.mount.fetch_add(u64::from(remount), Relaxed);
        let disk = moody(&store, folder.path(), if remount { 1 } else { 2 }, &medium, PLENTY);
        vouches_for_no_lost_block(&disk, folder.path(), &object, &bytes).await;
    }
}

/// The rest of an object comes, whose first block is not what was written: complete is only what was compared.
async fn vouches_for_no_lost_block(disk: &Disk, folder: &Path, object: &Arc<Object>, bytes: &[u8]) {
    run(disk, object, 6..32).await;
    if let Standing::Complete(whole) = disk.settled(object, Door::default()).await {
        let file = std::fs::read(path(folder, &whole.object)).expect("the file");
        assert!(file == bytes, "the kernel would read wrong bytes");
    }
    assert!(read(disk, object).await.expect("bytes") == bytes);
    let standing = disk.settled(object, Door::default()).await;
    assert!(matches!(standing, Standing::Complete(_)), "the lost block was fetched again");
    assert!(std::fs::read(path(folder, object)).expect("the file") == bytes);
}

/// A folder that lies at a second place too, as a mount of its own.
struct Bound(PathBuf);

impl Bound {
    fn new(folder: &Path, at: &Path) -> Bound {
        rustix::mount::mount_bind(folder, at).expect("root may mount");
        Bound(at.to_owned())
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        // Also while a thread of the tier still has a file open.
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

#[tokio::test(start_paused = true)]
async fn a_file_system_that_went_away_and_came_back_counts_as_another_boot() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("SKIPPED: only root can mount");
    }
    let (folder, at) = [(); 2].map(|()| tempfile::tempdir().expect("a folder")).into();
    let (store, object, bytes) = large(8);
    let bound = Bound::new(folder.path(), at.path());
    let before = System.mounted(at.path()).expect("a mount");
    run(&disk(&store, at.path(), 1), &object, 0..6).await;
    forget(&path(at.path(), &object), 0..BLOCK);
    drop(bound);
    let _bound = Bound::new(folder.path(), at.path());
    vouches_for_no_lost_block(&disk(&store, at.path(), 1), at.path(), &object, &bytes).await;
    assert_ne!(System.mounted(at.path()).expect("a mount"), before, "the same folder, the same device, another mount");
}

#[tokio::test(start_paused = true)]
async fn a_compaction_does_not_vouch_for_what_an_earlier_boot_wrote() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, object, bytes) = large(8);
    let medium = Moody::new();
    run(&moody(&store, folder.path(), 1, &medium, PLENTY), &object, 0..6).await;
    forget(&path(folder.path(), &object), 0..BLOCK);
    moody(&store, folder.path(), 2, &medium, PLENTY).compact().expect("compacted");
    let disk = moody(&store, folder.path(), 2, &medium, PLENTY);
    run(&disk, &object, 6..32).await;
    disk.settled(&object, Door::default()).await;
    assert!(read(&disk, &object).await.expect("bytes") == bytes);
    disk.settled(&object, Door::default()).await;
    assert!(std::fs::read(path(folder.path(), &object)).expect("the file") == bytes);
}

#[tokio::test]
async fn a_flow_of_a_file_that_was_dropped_says_nothing_of_the_one_that_came_after() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, object, bytes) = large(8);
    let disk = moody(&store, folder.path(), 1, &Moody::new(), PLENTY);
    let mut old = disk.fetch(Run::new(object.clone(), 0..8));
    old.next().await.expect("a block").expect("bytes");
    let Found::Filling(filling) = disk.index().known(&Segment::whole(&object)) else { panic!("it is being filled") };
    disk.index().drop_segment(filling.residency, &object);
    run(&disk, &object, 8..32).await;
    // The old flow goes on: what it writes lies in a file without a name.
    while old.next().await.is_some() {}
    assert!(!disk.holds(&Address { object: object.clone(), index: 1 }), "nobody wrote it into this file");
    disk.index().drop_segment(filling.residency, &object);
    assert!(disk.holds(&Address { object: object.clone(), index: 9 }), "only its own file goes");
    assert!(read(&disk, &object).await.expect("bytes") == bytes);
    disk.settled(&object, Door::default()).await;
    assert!(std::fs::read(path(folder.path(), &object)).expect("the file") == bytes);
}

#[tokio::test]
async fn a_complete_file_is_not_written_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, object, _) = large(2);
    let disk = moody(&store, folder.path(), 1, &Moody::new(), PLENTY);
    run(&disk, &object, 0..4).await;
    let Found::Filling(filling) = disk.index().known(&Segment::whole(&object)) else { panic!("it is being filled") };
    run(&disk, &object, 4..8).await;
    assert!(matches!(disk.settled(&object, Door::default()).await, Standing::Complete(_)));
    let wrong =
        Block::verified(Address { object, index: 0 }, vec![vec![1; BLOCK as usize].into()], block::Proof::Store)
            .expect("a block");
    assert!(!filling.keep(&wrong, &block::sums(wrong.pieces())).expect("refused"));
}

#[tokio::test]
async fn parts_of_two_answers_are_compared_with_the_checksum_of_the_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, object, _) = large(2);
    store.checksums.lock().expect("checksums").insert(object.key.clone(), Checksum::Crc64Nvme(1));
    let disk = moody(&store, folder.path(), 1, &Moody::new(), PLENTY);
    run(&disk, &object, 2..3).await;
    // The whole run is now two answers around a block that is there.
    let all: Vec<_> = disk.fetch(Run::new(object.clone(), 0..8)).collect().await;
    assert!(all.last().expect("an end").as_ref().is_err_and(|error| error.kind == Kind::Corrupt));
    assert!(matches!(disk.find(&object), Standing::Absent));
}

#[tokio::test]
async fn a_file_that_took_the_place_of_the_one_waited_for_does_not_vouch_for_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, objects) = set();
    let (object, store) = (&objects[3].0, Arc::new(store));
    {
        let disk = disk(&store, folder.path(), 1);
        read(&disk, object).await.expect("bytes");
    }
    let disk = disk(&store, folder.path(), 2);
    let Standing::Unchecked(old) = disk.find(object) else { panic!("another boot") };
    let one = old.checking.lock().await;
    let mut second = Box::pin(disk.check(object));
    assert!(futures_util::poll!(&mut second).is_pending(), "it waits for the first");
    // The first finds it damaged, and another file comes.
    disk.index().drop_segment(old.residency, object);
    read(&disk, object).await.expect("bytes");
    assert!(matches!(disk.find(object), Standing::Complete(_)));
    drop(one);
    assert!(second.await.expect("checked").is_none(), "the old file is given to nobody");
}

#[tokio::test]
async fn what_was_wrong_does_not_come_back_with_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, object, _) = large(2);
    store.checksums.lock().expect("checksums").insert(object.key.clone(), Checksum::Crc64Nvme(1));
    {
        let disk = moody(&store, folder.path(), 1, &Moody::new(), PLENTY);
        run(&disk, &object, 2..3).await;
        let all: Vec<_> = disk.fetch(Run::new(object.clone(), 0..8)).collect().await;
        assert!(all.last().expect("an end").is_err(), "the whole differs from its checksum");
        assert_eq!(disk.usage().0.bytes, 0);
    }
    let disk = moody(&store, folder.path(), 1, &Moody::new(), PLENTY);
    assert!((0..8).all(|index| !disk.holds(&Address { object: object.clone(), index })));
}

#[tokio::test]
async fn a_half_file_that_rots_is_dropped() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, object, bytes) = large(2);
    let disk = moody(&store, folder.path(), 1, &Moody::new(), PLENTY);
    run(&disk, &object, 0..4).await;
    // Read from the disk once, and found right, which says nothing of the next read.
    run(&disk, &object, 0..1).await;
    assert!(disk.usage().0.bytes > 0 && store.blocks.load(Relaxed) == 4);
    flip(&path(folder.path(), &object), 5);
    run(&disk, &object, 0..1).await;
    assert_eq!(disk.usage().0.bytes, 0, "its log would vouch for it again");
    assert!(read(&disk, &object).await.expect("bytes") == bytes);
}

#[tokio::test]
async fn a_complete_file_that_is_cut_while_it_is_held_is_given_to_nobody_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, object, bytes) = large(2);
    let disk = moody(&store, folder.path(), 1, &Moody::new(), PLENTY);
    assert!(read(&disk, &object).await.expect("bytes") == bytes);
    let held = complete(&disk, &object).await;
    let drops = Arc::new(AtomicU64::new(0));
    let counter = drops.clone();
    disk.tell_dropped(move |_| _ = counter.fetch_add(1, Relaxed));
    let file = path(folder.path(), &object);
    std::fs::File::options().write(true).open(&file).and_then(|file| file.set_len(BLOCK)).expect("cut");
    assert!(matches!(disk.find(&object), Standing::Absent));
    assert_eq!(drops.load(Relaxed), 1, "who holds it hears of it");
    assert!(read(&disk, &object).await.expect("bytes") == bytes, "fetched again");
    assert!(complete(&disk, &object).await.read(0, object.size as u32).expect("verified") == bytes);
    drop(held);
}

#[tokio::test]
async fn a_lack_of_descriptors_is_no_damage() {
    for errno in [24, 23, 12] {
        let folder = tempfile::tempdir().expect("a folder");
        let (store, objects) = set();
        let (store, medium) = (Arc::new(store), Moody::new());
        let disk = moody(&store, folder.path(), 1, &medium, PLENTY);
        for (object, _) in &objects {
            read(&disk, object).await.expect("bytes");
            disk.settled(object, Door::default()).await;
        }
        medium.open_fails.store(errno, Relaxed);
        for (object, bytes) in &objects {
            assert!(matches!(disk.find(object), Standing::Absent));
            assert!(read(&disk, object).await.expect("from the store") == *bytes);
        }
        medium.open_fails.store(0, Relaxed);
        for (object, _) in &objects {
            assert!(matches!(disk.find(object), Standing::Complete(_)), "{object} is still there");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_cache_folder_that_was_removed_is_made_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, objects) = set();
    let (store, cache) = (Arc::new(store), folder.path().join("cache"));
    let disk = disk(&store, &cache, 1);
    for (object, _) in &objects {
        read(&disk, object).await.expect("bytes");
    }
    std::fs::remove_dir_all(&cache).expect("removed");
    tokio::time::advance(std::time::Duration::from_secs(2)).await;
    for _ in 0..2 {
        for (object, bytes) in &objects {
            assert!(read(&disk, object).await.expect("bytes") == *bytes);
            disk.settled(object, Door::default()).await;
        }
    }
    for (object, bytes) in &objects {
        assert!(std::fs::read(path(&cache, object)).expect("a file") == *bytes);
    }
    drop(disk);
    let before = store.blocks.load(Relaxed);
    let disk = super::disk(&store, &cache, 1);
    for (object, _) in &objects {
        read(&disk, object).await.expect("bytes");
    }
    assert_eq!(store.blocks.load(Relaxed), before, "the new log knows all of them");
}

#[tokio::test]
async fn files_with_holes_take_few_descriptors_and_counted_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut store = Store::default();
    let objects: Vec<_> = (0..600).map(|n| store.below.add(&format!("{n}"), content(n, SMALL + 1))).collect();
    let store = Arc::new(store);
    let medium = Moody::new();
    let open = || moody(&store, folder.path(), 1, &medium, PLENTY);
    let disk = open();
    for object in &objects {
        run(&disk, object, 0..1).await;
    }
    let open_now = Arc::strong_count(&medium.open) - 1;
    assert!((1..10).contains(&open_now), "{open_now} are open: the last ones, for the blocks that follow");
    // A byte a block, and eight for each 64 KiB.
    let (counted, least) = (disk.memory_bytes(), 600 * (900 + 5 + 8 * 17));
    assert!(counted > least, "{counted} bytes");
    drop(disk);
    let disk = open();
    assert!(disk.memory_bytes() > least, "{} bytes after a restart", disk.memory_bytes());
    assert!(disk.holds(&Address { object: objects[0].clone(), index: 0 }));
    assert!(Arc::strong_count(&medium.open) < 10, "a restart opens none of them");
    for object in &objects {
        assert_eq!(read(&disk, object).await.expect("bytes").len() as u64, SMALL + 1);
        assert!(matches!(disk.settled(object, Door::default()).await, Standing::Complete(_)));
    }
    assert!(disk.memory_bytes() < counted - least / 2, "{} bytes when all are complete", disk.memory_bytes());
}

/// An open file of it.
struct Counted {
    file: Arc<dyn Handle>,
    path: PathBuf,
    before_read: Option<Arc<Hook>>,
    write_fails: Arc<Mutex<std::collections::VecDeque<i32>>>,
    is_gone: Arc<AtomicBool>,
}

impl Handle for Counted {
    fn read(&self, into: &mut Vec<u8>, at: u64) -> std::io::Result<usize> {
        self.before_read.iter().for_each(|hook| hook(&self.path));
        if self.is_gone.load(Relaxed) {
            return Err(rustix::io::Errno::IO.into());
        }
        self.file.read(into, at)
    }

    fn write(&self, pieces: &[std::io::IoSlice<'_>], at: u64) -> std::io::Result<usize> {
        let is_of_object = self.path.components().any(|part| part.as_os_str() == "objects");
        let next = if is_of_object { self.write_fails.lock().expect("errnos").pop_front() } else { None };
        match next.filter(|errno| *errno != 0) {
            Some(errno) => Err(std::io::Error::from_raw_os_error(errno)),
            None => self.file.write(pieces, at),
        }
    }

    fn set_len(&self, bytes: u64) -> std::io::Result<()> {
        self.file.set_len(bytes)
    }

    fn sync(&self) -> std::io::Result<()> {
        self.file.sync()
    }

    fn status(&self) -> std::io::Result<Status> {
        self.file.status()
    }

    fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.file.descriptor()
    }
}

#[tokio::test]
async fn a_large_file_with_holes_is_opened_once_and_counts_its_checksums() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, object, _) = large(64);
    let medium = Moody::new();
    let disk = moody(&store, folder.path(), 1, &medium, PLENTY);
    let before = disk.memory_bytes();
    for first in [0, 16] {
        run(&disk, &object, first..first + 8).await;
    }
    assert!(medium.opened.load(Relaxed) <= 1, "{} times for sixteen blocks", medium.opened.load(Relaxed));
    // Eight bytes for each 64 KiB, and one a block.
    let counted = disk.memory_bytes() - before;
    assert!(counted > 64 * 16 * 8 + 256, "{counted} bytes");
}
