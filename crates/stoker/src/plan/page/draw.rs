//! Bars, dots and lines as SVG.
//!
//! It knows no plan. Invariant: every number that is drawn is finite; every text is escaped.

use std::fmt::Write as _;

use crate::plan::table::number;

const WIDTH: f64 = 900.0;
const ROW: f64 = 34.0;
const MARGIN: f64 = 60.0;
const HEIGHT: f64 = 380.0;
/// Classes of colours.
const KINDS: usize = 6;
/// By what factor an axis goes on beyond what is drawn.
const AROUND: f64 = 1.15;
/// About how wide a letter is, and how high a line; and where a label may stand below its dot, the best place first.
const LETTER: f64 = 6.6;
const LETTER_HIGH: f64 = 12.0;
const BELOW: [f64; 7] = [12.0, -6.0, 26.0, -20.0, 40.0, -34.0, 54.0];
/// Ticks of an axis.
const TICKS_MAX: i32 = 14;

pub struct Part {
    pub kind: usize,
    pub value: f64,
}

/// Rows of bars, each of parts in a row, with what stands behind it.
pub struct Bars<'a> {
    /// What is on the axis.
    pub unit: &'a str,
    pub legend: &'a [&'a str],
    pub bars: Vec<(String, Vec<Part>, String)>,
}

pub struct Dot {
    pub x: f64,
    pub y: f64,
    pub is_front: bool,
    pub label: String,
}

pub struct Line {
    pub label: String,
    pub points: Vec<(f64, f64)>,
}

pub fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;").replace('\'', "&#39;")
}

fn finite(value: f64) -> f64 {
    if value.is_finite() { value.max(0.0) } else { 0.0 }
}

impl Bars<'_> {
    pub fn svg(&self) -> String {
        let total = |parts: &[Part]| parts.iter().map(|part| finite(part.value)).sum::<f64>();
        let most = self.bars.iter().map(|(_, parts, _)| total(parts)).fold(f64::MIN_POSITIVE, f64::max);
        let head = if self.legend.is_empty() { 4.0 } else { 26.0 };
        let foot = head + ROW * self.bars.len() as f64;
        let height = foot + 40.0;
        let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">");
        for (kind, name) in self.legend.iter().enumerate() {
            let x = 130.0 * kind as f64;
            let _ = write!(
                svg,
                "<rect class=\"k{kind}\" x=\"{x}\" y=\"4\" width=\"12\" height=\"12\"/><text x=\"{}\" y=\"15\">{}</text>",
                x + 18.0,
                escaped(name)
            );
        }
        let room = WIDTH - 190.0;
        for tick in steps(most) {
            let x = tick / most * room;
            let _ = write!(
                svg,
                "<line class=\"axis\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{head}\" y2=\"{foot}\"/><text class=\"faint\" text-anchor=\"{}\" x=\"{x:.1}\" y=\"{}\">{}</text>",
                if tick > 0.0 { "middle" } else { "start" },
                foot + 16.0,
                short(tick)
            );
        }
        let _ = write!(svg, "<text class=\"faint\" x=\"0\" y=\"{}\">{}</text>", foot + 34.0, escaped(self.unit));
        for (row, (label, parts, text)) in self.bars.iter().enumerate() {
            let y = head + ROW * row as f64;
            let _ = write!(svg, "<text class=\"faint\" x=\"0\" y=\"{}\">{}</text>", y + 12.0, escaped(label));
            let mut x = 0.0;
            for part in parts {
                let width = finite(part.value) / most * room;
                let _ = write!(
                    svg,
                    "<rect class=\"k{}\" x=\"{x:.1}\" y=\"{}\" width=\"{width:.1}\" height=\"12\"/>",
                    part.kind % KINDS,
                    y + 16.0
                );
                x += width;
            }
            let _ = write!(svg, "<text x=\"{:.1}\" y=\"{}\">{}</text>", x + 8.0, y + 26.0, escaped(text));
        }
        svg + "</svg>"
    }
}

/// Even steps from nothing to the most: 1, 2 or 5 of a power of ten each.
fn steps(most: f64) -> Vec<f64> {
    let rough = most / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|times| times * power).into_iter().find(|step| *step >= rough);
    let step = step.unwrap_or(10.0 * power);
    (0..=(most / step) as u32).map(|count| f64::from(count) * step).collect()
}

/// Logarithms, so that a factor looks the same everywhere.
struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn over(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Axis {
        let (mut low, mut high) = (f64::INFINITY, f64::MIN_POSITIVE);
        for value in values.filter(|value| value.is_finite() && *value > 0.0) {
            low = low.min(value);
            high = high.max(value);
        }
        let low = if low.is_finite() { low } else { 1.0 };
        Axis { low: low / AROUND, high: high.max(low) * AROUND, from, to }
    }

    fn at(&self, value: f64) -> f64 {
        let share = (value.max(self.low) / self.low).ln() / (self.high / self.low).ln();
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// 1, 2 and 5 of each power of ten within; over many powers these alone, and then only some of them.
    fn ticks(&self) -> Vec<f64> {
        let first = self.low.log10().floor() as i32;
        let last = self.high.log10().ceil() as i32;
        let within = |tick: &f64| (self.low..=self.high).contains(tick);
        let all = (first..=last).flat_map(|power| [1.0, 2.0, 5.0].map(|step| step * 10f64.powi(power)));
        let ticks: Vec<f64> = all.filter(within).collect();
        if ticks.len() < 2 {
            // Nothing round lies within: the ends themselves.
            let (low, high) = (self.low * AROUND, self.high / AROUND);
            return if high > low * 1.001 { vec![low, high] } else { vec![low] };
        }
        if ticks.len() as i32 <= TICKS_MAX {
            return ticks;
        }
        let each = (last - first) / TICKS_MAX + 1;
        (first..=last).filter(|power| power % each == 0).map(|power| 10f64.powi(power)).filter(within).collect()
    }
}

fn frame(x: &Axis, y: &Axis, x_name: &str, y_name: &str, height: f64) -> String {
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">");
    for tick in y.ticks() {
        let at = y.at(tick);
        let _ = write!(
            svg,
            "<line class=\"axis\" x1=\"{}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/><text class=\"faint\" x=\"0\" y=\"{:.1}\">{}</text>",
            x.from,
            x.to,
            at + 4.0,
            short(tick)
        );
    }
    for tick in x.ticks() {
        let _ = write!(
            svg,
            "<text class=\"faint\" text-anchor=\"middle\" x=\"{:.1}\" y=\"{}\">{}</text>",
            x.at(tick),
            HEIGHT - 18.0,
            short(tick)
        );
    }
    let _ = write!(
        svg,
        "<text class=\"faint\" text-anchor=\"end\" x=\"{}\" y=\"{}\">{}</text>",
        WIDTH,
        HEIGHT - 2.0,
        escaped(x_name)
    );
    let _ = write!(svg, "<text class=\"faint\" x=\"0\" y=\"12\">{}</text>", escaped(y_name));
    svg
}

fn short(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        value if value >= 1e6 => format!("{}M", rounded(value / 1e6)),
        value if value >= 1e3 => format!("{}k", rounded(value / 1e3)),
        value if value >= 1.0 => format!("{}", rounded(value)),
        value => number(value),
    }
}

/// To three digits, as a tick has no room for more.
fn rounded(value: f64) -> f64 {
    let power = 10f64.powi(2 - value.log10().floor() as i32);
    (value * power).round() / power
}

/// Labels beside their dots, none over another: the one that finds no place stands in its dot's title alone.
fn labels(dots: &[&Dot], at: impl Fn(&Dot) -> (f64, f64)) -> String {
    let mut placed: Vec<(f64, f64, f64)> = Vec::new();
    let mut svg = String::new();
    for dot in dots {
        let (x, y) = at(dot);
        let width = LETTER * dot.label.chars().count() as f64;
        let (left, anchor) = if x + 9.0 + width > WIDTH { (x - 9.0 - width, "end") } else { (x + 9.0, "start") };
        let is_free = |top: f64| {
            let over = |(other, other_top, other_width): &(f64, f64, f64)| {
                left < other + other_width && *other < left + width && (top - other_top).abs() < LETTER_HIGH
            };
            (LETTER_HIGH..HEIGHT - 36.0).contains(&top) && !placed.iter().any(over)
        };
        let Some(top) = BELOW.iter().map(|below| y + below).find(|top| is_free(*top)) else { continue };
        placed.push((left, top, width));
        let from = if anchor == "end" { x - 9.0 } else { left };
        let label = escaped(&dot.label);
        let _ = write!(svg, "<text text-anchor=\"{anchor}\" x=\"{from:.1}\" y=\"{top:.1}\">{label}</text>");
    }
    svg
}

pub fn dots(dots: &[Dot], x_name: &str, y_name: &str) -> String {
    let x = Axis::over(dots.iter().map(|dot| dot.x), MARGIN, WIDTH - 20.0);
    let y = Axis::over(dots.iter().map(|dot| dot.y), HEIGHT - 40.0, 22.0);
    let mut svg = frame(&x, &y, x_name, y_name, HEIGHT);
    let mut front: Vec<&Dot> = dots.iter().filter(|dot| dot.is_front).collect();
    front.sort_by(|left, right| left.x.total_cmp(&right.x));
    let path: Vec<String> = front.iter().map(|dot| format!("{:.1},{:.1}", x.at(dot.x), y.at(dot.y))).collect();
    let _ = write!(svg, "<polyline class=\"l s1\" points=\"{}\"/>", path.join(" "));
    // What is not beaten is drawn over what is.
    for dot in dots.iter().filter(|dot| !dot.is_front).chain(front.iter().copied()) {
        let kind = usize::from(dot.is_front);
        let title = format!("{}: {} {x_name}, {} {y_name}", dot.label, number(dot.x), number(dot.y));
        let _ = write!(
            svg,
            "<circle class=\"k{kind}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"5\"><title>{}</title></circle>",
            x.at(dot.x),
            y.at(dot.y),
            escaped(&title)
        );
    }
    svg + &labels(&front, |dot| (x.at(dot.x), y.at(dot.y))) + "</svg>"
}

pub fn lines(lines: &[Line], x_name: &str, y_name: &str) -> String {
    let points = || lines.iter().flat_map(|line| &line.points);
    let x = Axis::over(points().map(|point| point.0), MARGIN, WIDTH - 20.0);
    let y = Axis::over(points().map(|point| point.1), HEIGHT - 40.0, 22.0);
    let columns = 3;
    let height = HEIGHT + 10.0 + 18.0 * lines.len().div_ceil(columns) as f64;
    let mut svg = frame(&x, &y, x_name, y_name, height);
    for (index, line) in lines.iter().enumerate() {
        let kind = index % KINDS;
        // After the colours come dashes.
        let dash = match index / KINDS {
            0 => String::new(),
            turn => format!(" stroke-dasharray=\"{} 4\"", turn * 5),
        };
        let path: Vec<String> =
            line.points.iter().map(|(at, value)| format!("{:.1},{:.1}", x.at(*at), y.at(*value))).collect();
        let _ = write!(
            svg,
            "<polyline class=\"l s{kind}\"{dash} points=\"{}\"><title>{}</title></polyline>",
            path.join(" "),
            escaped(&line.label)
        );
        let (left, top) =
            ((index % columns) as f64 * WIDTH / columns as f64, HEIGHT + 14.0 + 18.0 * (index / columns) as f64);
        let _ = write!(
            svg,
            "<line class=\"l s{kind}\"{dash} x1=\"{left}\" x2=\"{}\" y1=\"{}\" y2=\"{}\"/><text x=\"{}\" y=\"{top}\">{}</text>",
            left + 26.0,
            top - 4.0,
            top - 4.0,
            left + 32.0,
            escaped(&line.label)
        );
    }
    svg + "</svg>"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dot(x: f64, y: f64, is_front: bool) -> Dot {
        Dot { x, y, is_front, label: format!("a service with a long name {x}") }
    }

    #[test]
    fn what_is_not_beaten_is_drawn_last_and_labels_stand_apart() {
        let svg = dots(&[dot(1.0, 5.0, true), dot(1.001, 4.99, true), dot(1.0, 5.0, false)], "hours", "USD");
        assert!(svg.rfind("circle class=\"k0\"") < svg.find("circle class=\"k1\""), "{svg}");
        let tops: Vec<f64> = svg
            .split("<text text-anchor=\"start\"")
            .skip(1)
            .chain(svg.split("<text text-anchor=\"end\" x").filter(|part| part.contains("a service with")).skip(1))
            .filter_map(|part| part.split("y=\"").nth(1)?.split('"').next()?.parse().ok())
            .collect();
        assert!(tops.len() == 2 && (tops[0] - tops[1]).abs() >= LETTER_HIGH, "{tops:?}");
    }

    #[test]
    fn an_axis_of_one_value_has_a_tick() {
        let ticks = |value: f64| Axis::over([value].into_iter(), 0.0, 100.0).ticks();
        assert_eq!(ticks(7.0).len(), 1);
        assert_eq!(short(ticks(1234.0)[0]), "1.23k");
        assert_eq!((short(1000.0), short(20.0), short(0.5)), ("1k".into(), "20".into(), "0.50".into()));
    }
}
