//! Which catalogues a plan is made of: what is shipped, and files over it.
//!
//! Invariant: a file says by its layer what it may replace.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use ::plan::catalog::layers::Source;
use ::plan::catalog::shipped::SHIPPED;
use ::plan::catalog::{Catalog, TEXT_BYTES_MAX};
use ::plan::figure::Layer;
use anyhow::Result;
use block::Error;

use super::{measured, wrong};

const LAYERS: [(&str, Layer); 3] =
    [("refreshed", Layer::Refreshed), ("site", Layer::Site), ("measured", Layer::Measured)];

#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Catalogue")]
pub struct Layers {
    /// File over the shipped catalogue, as layer refreshed, site or measured: refreshed=prices.toml; without a name site
    #[arg(long = "catalog", value_name = "[LAYER=]FILE")]
    overlays: Vec<String>,
    /// What was measured on a service through a client: azure.blob.hot/blobfuse=run.json, a report of `stoker bench train`
    #[arg(long = "supply", value_name = "SERVICE/CLIENT=REPORT.json")]
    supplies: Vec<String>,
}

impl Layers {
    pub fn catalog(&self) -> Result<Catalog> {
        let mut texts: Vec<(Layer, String, String)> = Vec::new();
        for file in &self.overlays {
            let (layer, path) = match file.split_once('=') {
                Some((name, path)) => (layer(name, file)?, path),
                None => (Layer::Site, file.as_str()),
            };
            texts.push((layer, path.to_owned(), read(Path::new(path))?));
        }
        for supply in &self.supplies {
            texts.push((Layer::Measured, supply.clone(), measured::supply(supply)?));
        }
        let over = texts.iter().map(|(layer, place, text)| Source { layer: *layer, place, text });
        let catalog = Catalog::of(&SHIPPED.into_iter().chain(over).collect::<Vec<_>>()).map_err(wrong)?;
        self.supplies.iter().try_for_each(|supply| is_read(&catalog, supply))?;
        Ok(catalog)
    }
}

/// A measurement through a client that doesn't read the service would change nothing.
fn is_read(catalog: &Catalog, supply: &str) -> Result<()> {
    let of = supply.split_once('=').map_or(supply, |(of, _)| of);
    let (id, client) = of.split_once('/').unwrap_or((of, ""));
    let Some(service) = catalog.services.iter().find(|service| service.id == id) else { return Ok(()) };
    let readers: Vec<&str> =
        catalog.clients.iter().filter(|known| known.reads(service)).map(|known| known.id.as_str()).collect();
    match readers.contains(&client) {
        true => Ok(()),
        false => {
            let what = format!("no client `{client}` reads {id}");
            Err(Error::invalid(what, format!("--supply {supply}")).hint(readers.join(", ")).into())
        }
    }
}

fn layer(name: &str, typed: &str) -> Result<Layer> {
    let known = LAYERS.iter().find(|(known, _)| *known == name).map(|(_, layer)| *layer);
    let error = || Error::invalid(format!("there is no layer `{name}`"), format!("--catalog {typed}"));
    Ok(known.ok_or_else(|| error().hint("refreshed, site or measured"))?)
}

/// A text of a user's, of at most as many bytes as a catalogue may have.
pub fn read(path: &Path) -> Result<String> {
    read_up_to(path, TEXT_BYTES_MAX)
}

const MARK: &[u8] = b"\xef\xbb\xbf";

/// A text of a user's: what is no file, larger, or no text, is refused before more of it is read.
pub fn read_up_to(path: &Path, most: usize) -> Result<String> {
    let failed = |error| crate::bench::named(Error::io("cannot read the file", path.display(), &error));
    // A pipe would be waited for, a device read without end.
    if !path.metadata().map_err(failed)?.is_file() {
        let error = Error::invalid("this is no regular file", path.display());
        return Err(error.hint("save what it gives to a file, and name that").into());
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(most as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > most {
        let what = format!("this file has more than {} MiB", most >> 20);
        return Err(Error::invalid(what, path.display())
            .hint("a catalogue, a report or a price list of one region")
            .into());
    }
    // Some editors begin a text in UTF-8 with this mark.
    if bytes.starts_with(MARK) {
        bytes.drain(..MARK.len());
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let what = format!("this file is no text: byte {at} is not UTF-8");
        Error::invalid(what, path.display()).hint("a text in UTF-8").into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_is_of_a_client_that_reads_the_service() {
        let catalog = Catalog::of(&SHIPPED).unwrap();
        assert!(is_read(&catalog, "azure.blob.hot/blobfuse=run.json").is_ok());
        let error = is_read(&catalog, "azure.blob.hot/lustre=run.json").unwrap_err();
        let error = error.downcast_ref::<Error>().unwrap();
        assert!(error.on.contains("--supply") && error.what.contains("lustre"), "{error}");
        assert!(error.hint.contains("blobfuse") && error.hint.contains("rest"), "{error}");
    }

    #[test]
    fn a_file_is_read_within_bounds_and_as_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("prices.toml");
        std::fs::write(&path, b"\xef\xbb\xbfabc").unwrap();
        assert_eq!(read(&path).unwrap(), "abc", "a mark before a text is none of it");
        std::fs::write(&path, b"abc\xff").unwrap();
        let error = read(&path).unwrap_err().to_string();
        assert!(error.contains("byte 3") && error.contains("prices.toml"), "{error}");
        std::fs::File::create(&path).unwrap().set_len((1 << 20) + 1).unwrap();
        let error = read_up_to(&path, 1 << 20).unwrap_err().to_string();
        assert!(error.contains("more than 1 MiB") && error.contains("prices.toml"), "{error}");
        for path in [Path::new("/dev/zero"), folder.path()] {
            let error = read(path).unwrap_err().to_string();
            assert!(error.contains("no regular file"), "{error}");
        }
        assert!(read(&folder.path().join("none")).is_err());
    }
}
