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
        Catalog::of(&SHIPPED.into_iter().chain(over).collect::<Vec<_>>()).map_err(wrong)
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

/// A text of a user's: what is larger, or no text, is refused before more of it is read.
pub fn read_up_to(path: &Path, most: usize) -> Result<String> {
    let failed = |error| crate::bench::named(Error::io("cannot read the file", path.display(), &error));
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(most as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > most {
        let what = format!("this file has more than {} MiB", most >> 20);
        return Err(Error::invalid(what, path.display())
            .hint("a catalogue, a report or a price list of one region")
            .into());
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
    fn a_file_is_read_within_bounds_and_as_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("prices.toml");
        std::fs::write(&path, b"abc\xff").unwrap();
        let error = read(&path).unwrap_err().to_string();
        assert!(error.contains("byte 3") && error.contains("prices.toml"), "{error}");
        let error = read_up_to(Path::new("/dev/zero"), 1 << 20).unwrap_err().to_string();
        assert!(error.contains("more than 1 MiB") && error.contains("/dev/zero"), "{error}");
        assert!(read(&folder.path().join("none")).is_err());
    }
}
