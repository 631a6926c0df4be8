//! Rows of text in aligned columns, under a header and a rule.
//!
//! It doesn't cut text: a table too wide for its output first breaks its header, then runs over.
//! Invariant: every cell of a column starts or ends where its header does.

use super::{FAINT, GAP, INDENT, Style, widest, wrapped};

#[derive(Clone, Debug, Default)]
pub struct Table {
    pub columns: Vec<Column>,
    /// A cell for each column; missing ones are empty.
    pub rows: Vec<Vec<String>>,
}

#[derive(Clone, Debug)]
pub struct Column {
    name: String,
    align: Align,
}

/// Words start, numbers end at a common edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Align {
    Left,
    Right,
}

impl Column {
    pub fn left(name: impl Into<String>) -> Column {
        Column { name: name.into(), align: Align::Left }
    }

    pub fn right(name: impl Into<String>) -> Column {
        Column { name: name.into(), align: Align::Right }
    }

    /// The least width that holds the name in at most `height` lines.
    fn narrowest(&self, height: usize) -> usize {
        let mut layouts = (1..).map(|width| wrapped(&self.name, width));
        let lines = layouts.find(|lines| lines.len() <= height).expect("a wide enough line holds any name");
        widest(lines.iter())
    }
}

impl Table {
    /// The lines of the table, without newlines.
    pub(super) fn lines(&self, style: &Style) -> Vec<String> {
        if self.columns.is_empty() {
            return Vec::new();
        }
        // The lowest header that fits, else the narrowest.
        let most = self.columns.iter().map(|column| column.name.split_whitespace().count()).max().unwrap_or(0);
        let mut widths = (1..=most.max(1)).map(|height| self.widths(height));
        let narrowest = self.widths(most.max(1));
        let widths = widths.find(|widths| total(widths) <= style.width).unwrap_or(narrowest);
        let mut lines = self.header(style, &widths);
        let rule = if style.unicode { "─" } else { "-" }.repeat(total(&widths) - INDENT);
        lines.push(format!("{:INDENT$}{}", "", style.paint(&rule, FAINT)));
        lines.extend(self.rows.iter().map(|row| {
            let cells: Vec<&str> = row.iter().map(String::as_str).collect();
            self.line(&cells, &widths)
        }));
        lines
    }

    /// The names of the columns, broken to their widths. A short name stands next to the rule.
    fn header(&self, style: &Style, widths: &[usize]) -> Vec<String> {
        let names: Vec<Vec<String>> =
            self.columns.iter().zip(widths).map(|(column, width)| wrapped(&column.name, *width)).collect();
        let height = names.iter().map(Vec::len).max().unwrap_or(0);
        let lines = (0..height).map(|line| {
            let words = names.iter().map(|name| (line + name.len()).checked_sub(height).map_or("", |at| &name[at]));
            let line = self.line(&words.collect::<Vec<_>>(), widths);
            let words = line.trim_start();
            format!("{:blank$}{}", "", style.paint(words, FAINT), blank = line.len() - words.len())
        });
        lines.collect()
    }

    fn line(&self, cells: &[&str], widths: &[usize]) -> String {
        let mut line = " ".repeat(INDENT);
        for (place, (column, &width)) in self.columns.iter().zip(widths).enumerate() {
            let gap = if place == 0 { 0 } else { GAP };
            let cell = cells.get(place).copied().unwrap_or("");
            line += &match column.align {
                Align::Left => format!("{:gap$}{cell:<width$}", ""),
                Align::Right => format!("{:gap$}{cell:>width$}", ""),
            };
        }
        line.trim_end().to_string()
    }

    /// How wide each column must be for its cells, and for its name in at most `height` lines.
    fn widths(&self, height: usize) -> Vec<usize> {
        let cells = |place: usize| self.rows.iter().filter_map(move |row| row.get(place));
        let columns = self.columns.iter().enumerate();
        columns.map(|(place, column)| widest(cells(place)).max(column.narrowest(height))).collect()
    }
}

fn total(widths: &[usize]) -> usize {
    INDENT + widths.iter().sum::<usize>() + GAP * (widths.len() - 1)
}
