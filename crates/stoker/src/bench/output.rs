//! Where the result of a measurement goes: a document after each step, a page and a table at the end.
//!
//! Invariants: what an interrupted run measured is in the document, marked as not finished; nothing secret that was typed is.

use super::typed;
use crate::place;
use crate::report as page;
use block::Result;
use report::Report;
use std::path::PathBuf;

#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Output")]
pub struct Output {
    /// Write the whole result to this file, after each step of the measurement
    #[arg(long, value_name = "FILE.json")]
    pub save: Option<PathBuf>,
    /// Draw the result as a page that needs nothing but a browser
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
    /// Write the result as comma-separated values
    #[arg(long, value_name = "FILE.csv")]
    pub csv: Option<PathBuf>,
}

impl Output {
    /// Refuse what can't be written, before anything is measured.
    pub fn check(&self) -> Result<()> {
        let (save, report, csv) = (self.save.as_deref(), self.report.as_deref(), self.csv.as_deref());
        place::can_be_written(&[(save, place::JSON), (report, place::PAGE), (csv, place::TABLE)], [])
    }

    /// What was measured so far.
    pub fn save(&self, report: &Report) -> Result<()> {
        let hint = "name a file in a folder that exists and has room as --save";
        self.save.as_ref().map_or(Ok(()), |path| typed::cleaned(report).save(path).map_err(|error| error.hint(hint)))
    }

    /// Everything, at the end. Says where it is.
    pub fn finish(&self, report: &Report) -> anyhow::Result<()> {
        self.save(report)?;
        let all = &[typed::cleaned(report)];
        self.report.as_ref().map_or(Ok(()), |path| page::write(all, path))?;
        self.csv.as_ref().map_or(Ok(()), |path| page::csv(all, path))?;
        for path in [&self.save, &self.report, &self.csv].into_iter().flatten() {
            say!("  {}", path.display())?;
        }
        if self.report.is_some() && !page::has_charts() {
            note!("  {}", page::PLAIN);
        }
        Ok(())
    }
}
