//! Where a sweep or a checkpoint works: a folder of its own below the target, with a marker in it.
//!
//! It measures nothing. Invariants: nothing is removed where the marker of this run isn't, and even there only what has
//! a name that the work gives; what others put there stays, and is named.

pub(crate) mod plain;

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use block::{Error, Result};
use ranks::Ranks;
use targets::{Listed, Writable};

use crate::cold::{Cooled, Cooler};
use plain::Plain;

const MARKER: &str = "marker";

/// What a folder is for, and what it may hold.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// What the name of the folder begins with.
    pub folder: &'static str,
    /// As it is typed.
    pub command: &'static str,
    /// Whether a folder in it is one that the work makes, by its name.
    pub is_folder: fn(&str) -> bool,
    /// The same of a file in one of those.
    pub is_file: fn(&str) -> bool,
}

/// What to work on.
pub enum Site {
    Folder { root: PathBuf, direct: bool },
    Store(Box<dyn Writable>),
}

pub struct Ground {
    base: Base,
    work: Work,
    id: String,
    /// `stoker-sweep-<id>`, below the root of the target.
    name: String,
}

enum Base {
    Folder(Plain),
    Store(Box<dyn Writable>),
}

impl Ground {
    /// The folder of a work on all ranks: rank 0 makes it, and every other has to see it. The seed is rank 0's, and of this
    /// run alone.
    pub fn meet(site: Site, work: Work, seed: u64, ranks: &dyn Ranks) -> Result<(Ground, u64)> {
        let seed = crate::told(ranks, &seed)?;
        let id = format!("{seed:016x}");
        let ground = if ranks.rank() == 0 {
            let made = Ground::make(site, work, &id);
            ranks.barrier()?;
            made
        } else {
            ranks.barrier()?;
            Ground::join(site, work, &id)
        };
        let joined = ranks.gather(&[u8::from(ground.is_ok())])?;
        let all = ranks.broadcast(vec![u8::from(joined.iter().all(|one| *one == [1]))])?;
        match ground {
            Ok(ground) if all == [1] => Ok((ground, seed)),
            Ok(ground) => {
                if ranks.rank() == 0 {
                    ground.clear()?;
                }
                let what = "another rank can't work on this target";
                Err(Error::unavailable(what, &ground.name).hint("see what that rank says"))
            }
            Err(error) => Err(error),
        }
    }

    /// Make the folder and its marker; `id` is of this run alone. Only one rank does.
    fn make(site: Site, work: Work, id: &str) -> Result<Ground> {
        let ground = Ground::at(site, work, id)?;
        let text = ground.marker();
        match &ground.base {
            Base::Folder(plain) => {
                let folder = plain.path(&ground.name);
                fs::create_dir(&folder).map_err(|error| in_the_way(&folder, &error))?;
                let marker = folder.join(MARKER);
                let made = fs::File::create_new(&marker).and_then(|mut file| file.write_all(text.as_bytes()));
                made.map_err(|error| {
                    let _ = fs::remove_file(&marker);
                    let _ = fs::remove_dir(&folder);
                    Error::io("cannot mark the folder of this run", marker.display(), &error)
                })?;
            }
            Base::Store(store) => {
                let mut marker = store.create(&ground.below(MARKER), text.len() as u64)?;
                marker.write(text.as_bytes())?;
                marker.finish(true)?;
            }
        }
        Ok(ground)
    }

    /// The same folder at another rank, which has to see it.
    fn join(site: Site, work: Work, id: &str) -> Result<Ground> {
        let ground = Ground::at(site, work, id)?;
        if ground.is_marked()? {
            return Ok(ground);
        }
        let what = "this rank doesn't see the folder that rank 0 made";
        Err(Error::missing(what, &ground.name).hint("give a target that all ranks share"))
    }

    fn at(site: Site, work: Work, id: &str) -> Result<Ground> {
        let base = match site {
            Site::Folder { root, direct } => Base::Folder(Plain::at(&root, direct)?),
            Site::Store(store) => Base::Store(store),
        };
        Ok(Ground { base, work, id: id.into(), name: format!("{}-{id}", work.folder) })
    }

    fn marker(&self) -> String {
        format!("This folder belongs to run {} of `{}`, which removes it.\n", self.id, self.work.command)
    }

    fn is_marked(&self) -> Result<bool> {
        let text = self.marker();
        match &self.base {
            Base::Folder(plain) => {
                let marker = plain.path(&self.below(MARKER));
                match fs::read(&marker) {
                    Ok(found) => Ok(found == text.as_bytes()),
                    Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
                    Err(error) => Err(Error::io("cannot read the marker of this run", marker.display(), &error)),
                }
            }
            Base::Store(store) => {
                let file = Listed { name: self.below(MARKER).into(), bytes: text.len() as u64 };
                let mut found = vec![0; text.len()];
                let count = store.open(&file).and_then(|mut opened| opened.read_at(0, &mut found));
                Ok(matches!(count, Ok(count) if found[..count] == *text.as_bytes()))
            }
        }
    }

    /// A name below the folder of this run, as the target knows it.
    pub fn below(&self, name: &str) -> String {
        format!("{}/{name}", self.name)
    }

    pub fn is_store(&self) -> bool {
        matches!(self.base, Base::Store(_))
    }

    pub fn files(&self) -> &dyn Writable {
        match &self.base {
            Base::Folder(plain) => plain,
            Base::Store(store) => &**store,
        }
    }

    /// Make a folder for files; a store has none.
    pub fn make_folder(&self, name: &str) -> Result<()> {
        let Base::Folder(plain) = &self.base else { return Ok(()) };
        let path = plain.path(&self.below(name));
        fs::create_dir(&path).map_err(|error| in_the_way(&path, &error))
    }

    /// Only if it is empty: what isn't ours stays.
    pub fn remove_folder(&self, name: &str) {
        if let Base::Folder(plain) = &self.base {
            let _ = fs::remove_dir(plain.path(&self.below(name)));
        }
    }

    /// Make caches forget these files.
    pub fn cool(&self, cooler: &Cooler, names: impl Iterator<Item = String>) -> Result<Cooled> {
        match &self.base {
            Base::Store(_) => cooler.cool_store(),
            Base::Folder(plain) => {
                let files: Vec<PathBuf> = names.map(|name| plain.path(&name)).collect();
                cooler.cool_files(&plain.path(&self.name), &files)
            }
        }
    }

    /// The end of the work, which all ranks come to: rank 0 removes the folder, once no rank works in it any more, and says
    /// what stays. `left` objects of this rank could not be removed from a store; then the marker stays too.
    pub fn leave(&self, ranks: &dyn Ranks, left: u64) -> Result<Vec<String>> {
        let left: u64 = crate::gathered(ranks, &left)?.into_iter().fold(0, u64::saturating_add);
        if ranks.rank() > 0 {
            return Ok(Vec::new());
        }
        if left > 0 && self.is_store() {
            let place = format!("{}/{}", self.files().url().trim_end_matches('/'), self.name);
            return Ok(vec![format!(
                "{left} objects or fewer could not be removed, and stay: remove what is below {place}/"
            )]);
        }
        let foreign = self.clear()?;
        Ok(foreign.into_iter().map(|foreign| format!("{foreign} was not made by this run, and stays")).collect())
    }

    /// Remove everything that the work made, and name what it didn't make.
    pub fn clear(&self) -> Result<Vec<String>> {
        if !self.is_marked()? {
            let what = "the marker of this run is gone, so nothing was removed";
            return Err(Error::changed(what, &self.name).hint("look at the folder, and remove it by hand"));
        }
        let Base::Folder(plain) = &self.base else {
            self.files().remove(&self.below(MARKER))?;
            return Ok(Vec::new());
        };
        let root = plain.path(&self.name);
        let mut foreign = Vec::new();
        for (path, is_folder) in entries(&root)? {
            match name(&path) {
                MARKER if !is_folder => {}
                name if is_folder && (self.work.is_folder)(name) => self.clear_folder(&path, &mut foreign)?,
                _ => foreign.push(path.display().to_string()),
            }
        }
        if foreign.is_empty() {
            let doing =
                |error: std::io::Error| Error::io("cannot remove the folder of this run", root.display(), &error);
            fs::remove_file(root.join(MARKER)).map_err(doing)?;
            fs::remove_dir(&root).map_err(doing)?;
        }
        Ok(foreign)
    }

    fn clear_folder(&self, folder: &Path, foreign: &mut Vec<String>) -> Result<()> {
        let mut is_empty = true;
        for (path, is_folder) in entries(folder)? {
            if !is_folder && (self.work.is_file)(name(&path)) {
                fs::remove_file(&path).map_err(|error| Error::io("cannot remove a file", path.display(), &error))?;
            } else {
                is_empty = false;
                foreign.push(path.display().to_string());
            }
        }
        if is_empty {
            fs::remove_dir(folder).map_err(|error| Error::io("cannot remove a folder", folder.display(), &error))?;
        }
        Ok(())
    }
}

fn in_the_way(path: &Path, error: &std::io::Error) -> Error {
    match error.kind() {
        ErrorKind::AlreadyExists => Error::invalid("something stands where this run wants its folder", path.display())
            .hint("move it away, or give another folder"),
        _ => Error::io("cannot make a folder for this run", path.display(), error),
    }
}

fn name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// What lies in a folder, and which of it are folders; a link is none.
fn entries(folder: &Path) -> Result<Vec<(PathBuf, bool)>> {
    let doing = |error: std::io::Error| Error::io("cannot list a folder", folder.display(), &error);
    let entry = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry?;
        Ok((entry.path(), entry.file_type()?.is_dir()))
    };
    fs::read_dir(folder).map_err(doing)?.map(entry).collect::<std::io::Result<_>>().map_err(doing)
}

/// Whether a name is of these words, each with a number behind it: `f12`, `r0.c3.t7`; and of an ending.
pub fn is_numbered(name: &str, words: &[&str], ending: &str) -> bool {
    let mut rest = name;
    for word in words {
        let Some(number) = rest.strip_prefix(word) else { return false };
        let digits = number.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return false;
        }
        rest = &number[digits..];
    }
    rest == ending
}
