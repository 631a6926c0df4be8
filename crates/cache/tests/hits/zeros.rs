//! A disk without limits whose cache files are all zeros, so that it keeps no more of them than their lengths, and a
//! store of objects that are all zeros.

use block::{Address, BLOCK, Block, Blocks, Checksum, Door, Object, Result as Answer, Run, SMALL, Source, Waiting};
use bytes::Bytes;
use futures_util::StreamExt;
use std::collections::HashMap;
use std::io::{Error, ErrorKind, IoSlice, Result};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use stoker_cache::disk::medium::{Handle, How, Made, Medium, Space, Status};

/// All that any read of a block or of a file asks for.
static ZEROS: [u8; SMALL as usize] = [0; SMALL as usize];

/// Bytes asked of the store so far.
#[derive(Default)]
pub struct Store(pub AtomicU64);

impl Source for Store {
    fn fetch(&self, run: Run) -> Blocks {
        self.0.fetch_add(run.bytes(), Relaxed);
        let block = |address: Address| {
            let length = address.len();
            Block::verified(address, vec![Bytes::from_static(&ZEROS[..length])], block::Proof::Store)
        };
        futures_util::stream::iter(run.addresses().map(block)).boxed()
    }

    fn checksum(&self, _object: &Arc<Object>, _via: Door) -> Waiting<Option<Checksum>> {
        Box::pin(std::future::ready(Answer::Ok(None)))
    }
}

/// The disk: bytes of the index, lengths of everything else.
#[derive(Default)]
pub struct Disk(Mutex<HashMap<PathBuf, Arc<File>>>);

struct File {
    /// Nothing of a file that holds a part of an object.
    bytes: Option<Mutex<Vec<u8>>>,
    length: AtomicU64,
}

impl Medium for Disk {
    fn open(&self, path: &Path, how: How) -> Result<Arc<dyn Handle>> {
        let mut files = self.0.lock().expect("files");
        match (how, files.get(path)) {
            (How::Create { .. }, Some(_)) => Err(ErrorKind::AlreadyExists.into()),
            (_, Some(file)) => Ok(file.clone()),
            (How::Read | How::Write, None) => Err(ErrorKind::NotFound.into()),
            (How::Create { .. } | How::OpenOrCreate, None) => {
                let is_of_an_object = path.components().any(|part| part.as_os_str() == "objects");
                let bytes = (!is_of_an_object).then(Mutex::default);
                let file = Arc::new(File { bytes, length: AtomicU64::new(0) });
                files.insert(path.to_owned(), file.clone());
                Ok(file)
            }
        }
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.0.lock().expect("files").retain(|name, _| !name.starts_with(path));
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let mut files = self.0.lock().expect("files");
        let file = files.remove(from).ok_or_else(|| Error::from(ErrorKind::NotFound))?;
        files.insert(to.to_owned(), file);
        Ok(())
    }

    fn make_folder(&self, _path: &Path) -> Result<()> {
        Ok(())
    }

    fn folder(&self, _path: &Path) -> Result<Made> {
        Ok((0, 0, None))
    }

    fn list(&self, _path: &Path) -> Result<Vec<String>> {
        Ok(vec![])
    }

    fn space(&self, _path: &Path) -> Result<Space> {
        Ok(Space { free_bytes: 1 << 60, free_files: None })
    }

    fn mounted(&self, _path: &Path) -> Result<u128> {
        Ok(1)
    }

    fn is_instant(&self) -> bool {
        true
    }
}

impl Handle for File {
    fn read(&self, into: &mut Vec<u8>, at: u64) -> Result<usize> {
        let left = self.length.load(Relaxed).saturating_sub(at) as usize;
        let count = left.min(into.capacity() - into.len()).min(BLOCK as usize);
        match &self.bytes {
            None => into.extend_from_slice(&ZEROS[..count]),
            Some(bytes) => into.extend_from_slice(&bytes.lock().expect("bytes")[at as usize..at as usize + count]),
        }
        Ok(count)
    }

    fn write(&self, pieces: &[IoSlice<'_>], at: u64) -> Result<usize> {
        let total: usize = pieces.iter().map(|piece| piece.len()).sum();
        self.length.fetch_max(at + total as u64, Relaxed);
        if let Some(bytes) = &self.bytes {
            let mut bytes = bytes.lock().expect("bytes");
            let end = bytes.len().max(at as usize + total);
            bytes.resize(end, 0);
            let mut at = at as usize;
            for piece in pieces {
                bytes[at..at + piece.len()].copy_from_slice(piece);
                at += piece.len();
            }
        }
        Ok(total)
    }

    fn set_len(&self, length: u64) -> Result<()> {
        self.length.store(length, Relaxed);
        if let Some(bytes) = &self.bytes {
            bytes.lock().expect("bytes").resize(length as usize, 0);
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn status(&self) -> Result<Status> {
        Ok(Status { bytes: self.length.load(Relaxed), is_linked: true, number: (0, 0) })
    }

    fn descriptor(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }
}
