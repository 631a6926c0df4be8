//! What the charts look like, to the letter.

use super::*;

const PLAIN_STYLE: Style = Style { colour: false, unicode: true, width: 64 };

fn bar(label: &str, value: f64, text: &str, tone: Tone) -> Bar {
    Bar { label: label.into(), value, text: text.into(), tone }
}

fn table() -> Table {
    let rows = [["1", "bucket", "41", "2,000"], ["1", "Stoker", "98", "2,000"], ["2", "Stoker", "301", "0"]];
    Table {
        columns: vec![
            Column::right("epoch"),
            Column::left("source"),
            Column::right("MB/s"),
            Column::right("requests to the store"),
        ],
        rows: rows.iter().map(|row| row.map(String::from).to_vec()).collect(),
    }
}

fn chart() -> Chart {
    Chart {
        title: "Two epochs over a bucket".into(),
        subtitle: "The store gives 100 MB/s".into(),
        table: table(),
        unit: "MB/s".into(),
        bars: vec![
            bar("bucket", 41.0, "41", Tone::Plain),
            bar("Stoker, epoch 1", 98.0, "98", Tone::Accent),
            bar("Stoker, epoch 2", 301.0, "301", Tone::Accent),
        ],
        mark: Some(Mark { label: "wire limit".into(), value: 100.0 }),
        note: "Every byte was checked.".into(),
    }
}

#[test]
fn a_chart_is_a_table_and_bars_with_one_right_edge() {
    let text = "  Two epochs over a bucket
  The store gives 100 MB/s

  epoch  source  MB/s  requests to the store
  ──────────────────────────────────────────
      1  bucket    41                  2,000
      1  Stoker    98                  2,000
      2  Stoker   301                      0

  MB/s                         ╷ wire limit
  bucket           █████▎      │                              41
  Stoker, epoch 1  ████████████│                              98
  Stoker, epoch 2  ████████████│██████████████████████████   301

  Every byte was checked.
";
    assert_eq!(chart().text(&PLAIN_STYLE), text);
}

#[test]
fn without_unicode_it_is_ascii() {
    let text = chart().text(&Style { unicode: false, ..PLAIN_STYLE });
    assert!(text.is_ascii());
    let bars = "  MB/s                         | wire limit
  bucket           #####       |                              41
  Stoker, epoch 1  ############|                              98
  Stoker, epoch 2  ############|##########################   301
";
    assert!(text.contains(bars), "{text}");
}

#[test]
fn colours_change_nothing_but_colours() {
    let coloured = chart().text(&Style { colour: true, ..PLAIN_STYLE });
    assert!(coloured.contains("\x1b[1mTwo epochs over a bucket\x1b[0m"));
    assert!(coloured.contains("\x1b[38;5;245m█████▎\x1b[0m      \x1b[2m│\x1b[0m"), "{coloured}");
    let mut plain = coloured;
    for code in [BOLD, FAINT, ACCENT, PLAIN, "0"] {
        plain = plain.replace(&format!("\x1b[{code}m"), "");
    }
    assert_eq!(plain, chart().text(&PLAIN_STYLE));
}

#[test]
fn no_line_ends_in_a_space_or_runs_over_the_width() {
    for width in 44..200 {
        for colour in [false, true] {
            for line in chart().text(&Style { colour, unicode: true, width }).lines() {
                assert_eq!(line.trim_end(), line);
                assert!(visible(line) <= width, "{width}: {line}");
            }
        }
    }
}

#[test]
fn a_table_too_wide_breaks_its_header_as_little_as_it_must() {
    let lines = |width| table().lines(&Style { width, ..PLAIN_STYLE });
    let two = [
        "                       requests to",
        "  epoch  source  MB/s    the store",
        "  ────────────────────────────────",
        "      1  bucket    41        2,000",
    ];
    assert_eq!(lines(43)[..4], two);
    assert_eq!(lines(34)[..4], two);
    let narrowest = [
        "                       requests",
        "                         to the",
        "  epoch  source  MB/s     store",
        "  ─────────────────────────────",
        "      1  bucket    41     2,000",
    ];
    assert_eq!(lines(33)[..5], narrowest);
    assert_eq!(lines(1)[..5], narrowest, "it runs over rather than losing a number");
}

#[test]
fn the_words_of_a_mark_stand_where_there_is_room() {
    let mut chart = Chart { table: Table::default(), ..chart() };
    chart.bars.truncate(2);
    let text = "  MB/s                                      wire limit ╷
  bucket           ██████████████▊                     │  41
  Stoker, epoch 1  ███████████████████████████████████▎│  98
";
    let drawn = chart.text(&Style { width: 60, ..PLAIN_STYLE });
    assert!(drawn.contains(text), "{drawn}");
}

#[test]
fn something_is_never_shown_as_nothing() {
    assert_eq!(PLAIN_STYLE.blocks(0.000_1, 20), ['▏']);
    assert!(PLAIN_STYLE.blocks(0.0, 20).is_empty());
    assert_eq!(PLAIN_STYLE.blocks(1.0, 2), ['█', '█']);
    assert_eq!(PLAIN_STYLE.blocks(0.5, 1), ['▌']);
}

#[test]
fn what_is_not_a_number_is_drawn_as_nothing() {
    let bars = vec![bar("none", f64::NAN, "-", Tone::Plain), bar("below", -3.0, "-3", Tone::Plain)];
    let chart = Chart { bars, unit: "MB/s".into(), ..Chart::default() };
    assert_eq!(chart.text(&PLAIN_STYLE).matches('█').count(), 0);
    assert!(!chart.svg().contains("NaN"));
    assert_eq!(Chart::default().text(&PLAIN_STYLE), "");
}

#[test]
fn the_picture_holds_the_same_bars() {
    let svg = chart().svg();
    let body = r#"<rect class="card" x="0.5" y="0.5" width="479" height="326" rx="10"/>
<text class="title" x="28" y="44">Two epochs over a bucket</text>
<text class="faint" x="28" y="70">The store gives 100 MB/s</text>
<text x="28" y="108">bucket</text>
<text class="value" x="452" y="108">41 MB/s</text>
<rect class="track" x="28" y="118" width="424.0" height="14" rx="3"/>
<rect class="plain" x="28" y="118" width="57.8" height="14" rx="3"/>
<path class="mark" d="M168.9 113V137"/>
"#;
    assert!(svg.contains(body), "{svg}");
    assert!(
        svg.ends_with("<text class=\"faint\" x=\"28\" y=\"299\">Every byte was checked.</text>\n</svg>\n"),
        "{svg}"
    );
    assert!(
        svg.contains("<desc>bucket: 41 MB/s; Stoker, epoch 1: 98 MB/s; Stoker, epoch 2: 301 MB/s; wire limit</desc>")
    );
    assert!(svg.contains("prefers-color-scheme: dark"));
}

#[test]
fn a_picture_escapes_what_it_is_given() {
    let chart = Chart { title: "a < b & \"c\"".into(), ..chart() };
    assert!(chart.svg().contains("<title>a &lt; b &amp; &quot;c&quot;</title>"));
}
