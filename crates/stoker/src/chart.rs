//! A table and bars for the terminal, and the same bars as a picture.
//!
//! Pure text in and out: it doesn't print, measure, format numbers or ask what the terminal can do; the caller knows.
//! Characters are taken to be one cell wide.
//! Invariants: the same chart in the same style gives the same text; no line ends in a space; without `colour` there is
//! no escape sequence, without `unicode` nothing beyond ASCII is added to what the caller wrote.

mod drawing;
mod table;

#[cfg(test)]
mod tests;

pub use table::{Column, Table};

/// What the output can show.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    pub colour: bool,
    pub unicode: bool,
    /// Cells of a line. Words that can't be narrower run over it.
    pub width: usize,
}

/// One result: its numbers in a table, and what matters most of them as bars.
#[derive(Clone, Debug, Default)]
pub struct Chart {
    pub title: String,
    /// What was done, in one sentence.
    pub subtitle: String,
    pub table: Table,
    /// What the bars count: "MB/s".
    pub unit: String,
    pub bars: Vec<Bar>,
    pub mark: Option<Mark>,
    /// What a reader must know to judge it; under everything else.
    pub note: String,
}

#[derive(Clone, Debug)]
pub struct Bar {
    pub label: String,
    pub value: f64,
    /// The value as it is to be read.
    pub text: String,
    pub tone: Tone,
}

/// A bound that the bars are judged by.
#[derive(Clone, Debug)]
pub struct Mark {
    pub label: String,
    pub value: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// What is compared with.
    Plain,
    /// What the chart is about.
    Accent,
}

/// Space before each line.
const INDENT: usize = 2;
/// Space between columns.
const GAP: usize = 2;
/// A chart is at least so wide where the terminal allows, and no wider than its table: long bars say no more.
const WIDTH: usize = 64;
/// Shorter bars can't be compared.
const CELLS_MIN: usize = 10;

const BOLD: &str = "1";
const FAINT: &str = "2";
/// Ember; readable on light and dark.
const ACCENT: &str = "38;5;208";
/// Grey.
const PLAIN: &str = "38;5;245";

impl Chart {
    /// For the terminal. Ends in a newline.
    pub fn text(&self, style: &Style) -> String {
        let table = self.table.lines(style);
        let widest = table.iter().map(|line| visible(line)).max().unwrap_or(0);
        let width = widest.saturating_sub(INDENT).max(WIDTH - INDENT).min(style.width.saturating_sub(INDENT));
        let words = |text: &str, code| -> Vec<String> {
            wrapped(text, width).iter().map(|line| format!("{:INDENT$}{}", "", style.paint(line, code))).collect()
        };
        let head = [words(&self.title, BOLD), words(&self.subtitle, FAINT)].concat();
        let paragraphs = [head, table, self.bar_lines(style, width), words(&self.note, FAINT)];
        let paragraphs: Vec<String> =
            paragraphs.iter().filter(|lines| !lines.is_empty()).map(|lines| lines.join("\n") + "\n").collect();
        paragraphs.join("\n")
    }

    /// A picture of the bars, complete in itself, light or dark as its reader prefers.
    pub fn svg(&self) -> String {
        drawing::svg(self)
    }

    /// The largest value that the bars have to hold; never zero.
    fn extent(&self) -> f64 {
        let values = self.bars.iter().map(|bar| bar.value).chain(self.mark.iter().map(|mark| mark.value));
        let most = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
        if most > 0.0 { most } else { 1.0 }
    }

    /// A value as a share of the longest bar; what isn't a number is nothing.
    fn share(&self, value: f64) -> f64 {
        if value.is_nan() { 0.0 } else { (value / self.extent()).clamp(0.0, 1.0) }
    }

    fn bar_lines(&self, style: &Style, width: usize) -> Vec<String> {
        if self.bars.is_empty() {
            return Vec::new();
        }
        let labels = widest(self.bars.iter().map(|bar| &bar.label).chain([&self.unit]));
        let values = widest(self.bars.iter().map(|bar| &bar.text));
        // The cell beyond a full bar is for a mark at its very end.
        let cells = width.saturating_sub(labels + values + 2 * GAP + 1).max(CELLS_MIN);
        // Never in the first cell, where it would hide what stays below it.
        let mark = self.mark.as_ref().map(|mark| ((self.share(mark.value) * cells as f64) as usize).max(1));
        let above = self.mark_line(style, cells, mark);
        let blank = labels - visible(&self.unit) + GAP;
        let head = format!("{:INDENT$}{}{:blank$}", "", style.paint(&self.unit, FAINT), "");
        let mut lines = vec![format!("{head}{above}").trim_end().to_string()];
        for bar in &self.bars {
            let filled = style.bar(self.share(bar.value), cells, mark, bar.tone);
            let line =
                format!("{:INDENT$}{:labels$}{:GAP$}{filled}{:GAP$}{:>values$}", "", bar.label, "", "", bar.text);
            lines.push(line.trim_end().to_string());
        }
        lines
    }

    /// The words of the mark, on whichever side of it has room.
    fn mark_line(&self, style: &Style, cells: usize, mark: Option<usize>) -> String {
        let (Some(column), Some(mark)) = (mark, &self.mark) else {
            return String::new();
        };
        let sign = if style.unicode { "╷" } else { "|" };
        let long = visible(&mark.label) + 1;
        let line = if column + long <= cells || column < long {
            format!("{:column$}{sign} {}", "", mark.label)
        } else {
            format!("{:>before$} {sign}", mark.label, before = column - 1)
        };
        let blank = line.len() - line.trim_start().len();
        format!("{:blank$}{}", "", style.paint(line.trim_start(), FAINT))
    }
}

impl Style {
    /// Text in a colour, or as it is.
    fn paint(&self, text: &str, code: &str) -> String {
        if self.colour && !text.trim().is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
    }

    /// A bar of `cells` and one more, cut by the mark.
    fn bar(&self, share: f64, cells: usize, mark: Option<usize>, tone: Tone) -> String {
        let mut row: Vec<char> = self.blocks(share, cells);
        row.resize(cells + 1, ' ');
        let code = if tone == Tone::Accent { ACCENT } else { PLAIN };
        let Some(column) = mark else {
            return self.paint_filled(&row, code);
        };
        let sign = self.paint(if self.unicode { "│" } else { "|" }, FAINT);
        let (before, after) = (&row[..column], &row[column + 1..]);
        format!("{}{sign}{}", self.paint_filled(before, code), self.paint_filled(after, code))
    }

    /// The filled cells of a bar. Something is never shown as nothing.
    fn blocks(&self, share: f64, cells: usize) -> Vec<char> {
        let steps = if self.unicode { EIGHTHS.len() } else { 1 };
        let exact = (share * (cells * steps) as f64).round() as usize;
        let filled = if share > 0.0 { exact.max(1) } else { 0 };
        let full = if self.unicode { EIGHTHS[steps - 1] } else { '#' };
        let mut row = vec![full; filled / steps];
        if !filled.is_multiple_of(steps) {
            row.push(EIGHTHS[filled % steps - 1]);
        }
        row
    }

    /// Blanks stay without colour, so that a copied line is clean.
    fn paint_filled(&self, row: &[char], code: &str) -> String {
        let row: String = row.iter().collect();
        let filled = row.trim_end();
        let blanks = row.len() - filled.len();
        format!("{}{:blanks$}", self.paint(filled, code), "")
    }
}

/// A cell filled from the left by one to eight eighths.
const EIGHTHS: [char; 8] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];

/// Cells that a text takes up, escape sequences aside.
fn visible(text: &str) -> usize {
    let mut escaped = false;
    let shown = text.chars().filter(|letter| {
        let hidden = escaped || *letter == '\x1b';
        escaped = hidden && *letter != 'm';
        !hidden
    });
    shown.count()
}

fn widest<'a>(texts: impl Iterator<Item = &'a String>) -> usize {
    texts.map(|text| visible(text)).max().unwrap_or(0)
}

/// The words of a text in lines of at most `width`, longer words excepted.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if visible(line) + 1 + visible(word) <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_string()),
        }
    }
    lines
}
