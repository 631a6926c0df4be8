//! The bars of a chart as an SVG picture, for a report or a page.
//!
//! It refers to nothing outside itself, runs no script, and doesn't draw the table.
//! Invariants: labels stand above their bars, so that the picture stays readable at the width of a phone; what the
//! caller wrote is escaped; colours follow the reader's preference for light or dark.

use super::{Bar, Chart, Mark, Tone, wrapped};

/// Units of the picture across. Text of 16 units is 12 pixels high on a phone, and 20 in the full width.
const WIDTH: f64 = 480.0;
/// Pixels across where there is room.
const PIXELS: f64 = 600.0;
const MARGIN: f64 = 28.0;
const INNER: f64 = WIDTH - 2.0 * MARGIN;
/// From one bar to the next.
const PITCH: f64 = 56.0;
const BAR: f64 = 14.0;
/// From the line of a label to the top of its bar.
const UNDER_LABEL: f64 = 10.0;
/// How far the mark stands out of a bar.
const OVERHANG: f64 = 5.0;
/// Space between things that aren't one.
const PAUSE: f64 = 6.0;
/// A bar is never drawn shorter, unless it is nothing.
const LEAST: f64 = 2.0;
/// Letters to a line of small text; a letter is about half as wide as high.
const LETTERS: usize = 58;
const LETTERS_TITLE: usize = 38;

const LOOK: &str = "\
svg { max-width: 100%; height: auto; font-family: system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif }
.card { fill: #ffffff; stroke: #d8dee4 } .track { fill: #eef1f4 } .plain { fill: #8b949e } .accent { fill: #e8590c }
text { fill: #1f2328; font-size: 16px } .title { font-size: 20px; font-weight: 600 } .faint { fill: #59636e; font-size: 14px }
.value { font-weight: 600; text-anchor: end; font-variant-numeric: tabular-nums } .end { text-anchor: end }
.mark { stroke: #1f2328; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) {
.card { fill: #0d1117; stroke: #30363d } .track { fill: #21262d } .plain { fill: #7d8590 } .accent { fill: #ff7b2e }
text { fill: #f0f6fc } .faint { fill: #9198a1 } .mark { stroke: #f0f6fc }
}";

pub fn svg(chart: &Chart) -> String {
    let mut page = Page { body: String::new(), y: MARGIN - 10.0 };
    page.words(&chart.title, "title", LETTERS_TITLE, 26.0);
    page.y += PAUSE;
    page.words(&chart.subtitle, "faint", LETTERS, 20.0);
    page.y += PAUSE;
    for bar in &chart.bars {
        page.bar(chart, bar);
    }
    if let Some(mark) = &chart.mark {
        page.mark(chart, mark);
    }
    if !chart.note.is_empty() {
        page.y += 2.0 * PAUSE;
        page.words(&chart.note, "faint", LETTERS, 20.0);
    }
    page.close(&chart.title, &chart.description())
}

impl Chart {
    /// The chart in words, for those who can't see it.
    fn description(&self) -> String {
        let bars = self.bars.iter().map(|bar| format!("{}: {} {}", bar.label, bar.text, self.unit));
        bars.chain(self.mark.iter().map(|mark| mark.label.clone())).collect::<Vec<_>>().join("; ")
    }
}

/// A picture that grows downwards.
struct Page {
    body: String,
    y: f64,
}

impl Page {
    fn words(&mut self, text: &str, class: &str, letters: usize, height: f64) {
        for line in wrapped(text, letters) {
            self.y += height;
            self.text(MARGIN, class, &line);
        }
    }

    fn text(&mut self, x: f64, class: &str, text: &str) {
        self.push(&format!("<text class=\"{class}\" x=\"{x}\" y=\"{}\">{}</text>", self.y, escaped(text)));
    }

    fn bar(&mut self, chart: &Chart, bar: &Bar) {
        self.y += PITCH - BAR - UNDER_LABEL;
        self.push(&format!("<text x=\"{MARGIN}\" y=\"{}\">{}</text>", self.y, escaped(&bar.label)));
        self.text(WIDTH - MARGIN, "value", &format!("{} {}", bar.text, chart.unit));
        self.y += UNDER_LABEL;
        self.shape("track", INNER);
        let share = chart.share(bar.value);
        if share > 0.0 {
            self.shape(if bar.tone == Tone::Accent { "accent" } else { "plain" }, (share * INNER).max(LEAST));
        }
        if let Some(mark) = &chart.mark {
            let (x, top, bottom) = (at(chart, mark), self.y - OVERHANG, self.y + BAR + OVERHANG);
            self.push(&format!("<path class=\"mark\" d=\"M{x:.1} {top}V{bottom}\"/>"));
        }
        self.y += BAR;
    }

    fn shape(&mut self, class: &str, width: f64) {
        let y = self.y;
        let round = (width / 2.0).min(3.0);
        self.push(&format!(
            "<rect class=\"{class}\" x=\"{MARGIN}\" y=\"{y}\" width=\"{width:.1}\" height=\"{BAR}\" rx=\"{round}\"/>"
        ));
    }

    /// The words of the mark, under its last stroke.
    fn mark(&mut self, chart: &Chart, mark: &Mark) {
        self.y += OVERHANG + 18.0;
        let x = at(chart, mark);
        let class = if x > WIDTH / 2.0 { "faint end" } else { "faint" };
        let x = if x > WIDTH / 2.0 { x + 1.0 } else { x - 1.0 };
        self.text((x * 10.0).round() / 10.0, class, &mark.label);
    }

    fn push(&mut self, line: &str) {
        self.body.push_str(line);
        self.body.push('\n');
    }

    fn close(self, title: &str, description: &str) -> String {
        let height = self.y + MARGIN;
        let (title, description, body) = (escaped(title), escaped(description), self.body);
        let tall = (height * PIXELS / WIDTH).round();
        let (right, bottom) = (WIDTH - 1.0, height - 1.0);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{PIXELS}\" height=\"{tall}\" role=\"img\">\n\
            <title>{title}</title>\n<desc>{description}</desc>\n<style>\n{LOOK}\n</style>\n\
            <rect class=\"card\" x=\"0.5\" y=\"0.5\" width=\"{right}\" height=\"{bottom}\" rx=\"10\"/>\n{body}</svg>\n"
        )
    }
}

/// Where a mark stands across the picture.
fn at(chart: &Chart, mark: &Mark) -> f64 {
    MARGIN + chart.share(mark.value) * INNER
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
