//! A file mapped for reading that survives what others do to it. A page that can't be read any more, because
//! somebody cut the file short or its disk failed, reads as zeros from then on, where the kernel would otherwise
//! end the process with SIGBUS; [`Map::is_damaged`] tells.
//!
//! Doesn't check what the bytes say. Invariant: a signal on any page that is not of a map goes to whoever would
//! have got it without us.

use rustix::fs::MemfdFlags;
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

/// Maps at a time: seventeen snapshots each of sixty data sets. The signal looks through all of them.
const MAPS_MAX: usize = 1024;

/// Read at a time, of what can't be mapped.
const PIECE_BYTES: usize = 1 << 20;

/// Where maps lie, for the signal, which may take no lock.
static MAPS: [Slot; MAPS_MAX] = [const { Slot::empty() }; MAPS_MAX];

/// What was done on SIGBUS before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

struct Slot {
    taken: AtomicBool,
    start: AtomicUsize,
    bytes: AtomicUsize,
    damaged: AtomicBool,
}

impl Slot {
    const fn empty() -> Slot {
        Slot {
            taken: AtomicBool::new(false),
            start: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            damaged: AtomicBool::new(false),
        }
    }

    fn take() -> std::io::Result<&'static Slot> {
        let free = MAPS.iter().find(|place| !place.taken.swap(true, SeqCst));
        free.ok_or_else(|| std::io::Error::other(format!("{MAPS_MAX} snapshots are open already")))
    }

    fn holds(&self, address: usize) -> bool {
        address.checked_sub(self.start.load(SeqCst)).is_some_and(|at| at < self.bytes.load(SeqCst))
    }
}

/// A file in memory.
pub struct Map {
    start: *const u8,
    place: &'static Slot,
}

// SAFETY: the memory is only read, and belongs to the map until it is dropped.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    /// Map all of a file; or a copy of it in memory, where its file system reads but maps nothing any more, as an ext4
    /// that found itself broken (Linux 6.15 and later).
    pub fn of(file: &File) -> std::io::Result<Map> {
        match Map::made(file) {
            Err(error) if error.kind() == ErrorKind::ReadOnlyFilesystem => Map::made(&copied(file)?),
            made => made,
        }
    }

    fn made(file: &File) -> std::io::Result<Map> {
        listen()?;
        let bytes = usize::try_from(file.metadata()?.len()).map_err(std::io::Error::other)?;
        let mut map = Map { start: std::ptr::null(), place: Slot::take()? };
        if bytes == 0 {
            return Ok(map);
        }
        let (anywhere, how, descriptor) = (std::ptr::null_mut(), libc::MAP_SHARED, file.as_raw_fd());
        // SAFETY: the kernel chooses a free range, which nobody else uses until it is unmapped in `drop`.
        let start = unsafe { libc::mmap(anywhere, bytes, libc::PROT_READ, how, descriptor, 0) };
        if start == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        map.start = start.cast();
        map.place.start.store(start.addr(), SeqCst);
        map.place.bytes.store(bytes, SeqCst);
        Ok(map)
    }

    /// The bytes of the file.
    pub fn bytes(&self) -> &[u8] {
        match self.place.bytes.load(SeqCst) {
            0 => &[],
            // SAFETY: so many are mapped here until `drop`, and readable: a page that is lost is replaced by zeros.
            // Nothing of ours writes a snapshot that has its name. If others do, any bytes will do: the manifest
            // believes none of them (its first invariant).
            bytes => unsafe { std::slice::from_raw_parts(self.start, bytes) },
        }
    }

    /// Whether some of it could not be read any more.
    pub fn is_damaged(&self) -> bool {
        self.place.damaged.load(SeqCst)
    }
}

/// The same bytes in memory.
fn copied(file: &File) -> std::io::Result<File> {
    let copy = File::from(rustix::fs::memfd_create("stoker-names", MemfdFlags::CLOEXEC)?);
    let (mut at, mut piece) = (0, vec![0; PIECE_BYTES]);
    loop {
        let read = file.read_at(&mut piece, at)?;
        if read == 0 {
            return Ok(copy);
        }
        copy.write_all_at(&piece[..read], at)?;
        at += read as u64;
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // Out of the signal's sight before the range can become somebody else's.
        let bytes = self.place.bytes.swap(0, SeqCst);
        self.place.start.store(0, SeqCst);
        self.place.damaged.store(false, SeqCst);
        if bytes > 0 {
            // SAFETY: it was mapped in `of`, and slices of it do not outlive the map.
            unsafe { libc::munmap(self.start.cast_mut().cast(), bytes) };
        }
        self.place.taken.store(false, SeqCst);
    }
}

/// Hear of SIGBUS, from the first map on.
fn listen() -> std::io::Result<()> {
    static HEARD: std::sync::Mutex<bool> = std::sync::Mutex::new(false);
    let mut heard = HEARD.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if *heard {
        return Ok(());
    }
    // SAFETY: an action of zeros is a valid one, and both calls are given valid ones. `BEFORE` is set before the
    // handler can run.
    let done = unsafe {
        let mut before = std::mem::zeroed::<libc::sigaction>();
        libc::sigaction(libc::SIGBUS, std::ptr::null(), &mut before);
        BEFORE.get_or_init(|| before);
        let mut action = std::mem::zeroed::<libc::sigaction>();
        action.sa_sigaction = (replace as extern "C" fn(_, _, _)) as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut())
    };
    if done != 0 {
        return Err(std::io::Error::last_os_error());
    }
    *heard = true;
    Ok(())
}

/// Put a page of zeros where one could not be read. Runs as a signal: it takes no lock and no memory.
extern "C" fn replace(_: libc::c_int, details: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes what it knows of the signal, and for SIGBUS that has an address.
    let address = unsafe { (*details).si_addr() }.addr();
    let place = MAPS.iter().find(|place| place.holds(address));
    // SAFETY: `mmap` and `sigaction` are system calls that a signal may make, and errno is put back as it was. The
    // page lies in a map of ours, so nobody's memory is replaced but that which can't be read.
    unsafe {
        let errno = *libc::__errno_location();
        let is_replaced = place.is_some_and(|place| {
            place.damaged.store(true, SeqCst);
            let page = libc::sysconf(libc::_SC_PAGESIZE) as usize;
            let start = std::ptr::without_provenance_mut(address & !(page - 1));
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            libc::mmap(start, page, libc::PROT_READ, flags, -1, 0) != libc::MAP_FAILED
        });
        if !is_replaced && let Some(before) = BEFORE.get() {
            // The access is made again, and ends as it would have.
            libc::sigaction(libc::SIGBUS, before, std::ptr::null_mut());
        }
        *libc::__errno_location() = errno;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_cut_short_under_its_map_reads_as_zeros_and_is_reported() {
        let file = tempfile::tempfile().expect("a file");
        let bytes = vec![7; 3 << 14];
        std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).expect("room");
        let (map, other) = (Map::of(&file).expect("a map"), Map::of(&file).expect("a second map"));
        assert!(map.bytes() == bytes && !map.is_damaged());
        file.set_len(1 << 14).expect("it is cut");
        assert!(map.bytes()[..1 << 14] == bytes[..1 << 14] && !map.is_damaged());
        assert!(map.bytes()[1 << 14..].iter().all(|byte| *byte == 0) && map.is_damaged());
        assert!(!other.is_damaged(), "nobody has looked at it since");
        drop(map);
        assert!(!Map::of(&file).expect("its place is free again").is_damaged());
    }

    #[test]
    fn an_empty_file_has_no_bytes() {
        assert!(Map::of(&tempfile::tempfile().expect("a file")).expect("a map").bytes().is_empty());
    }
}
