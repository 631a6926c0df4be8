//! One thing that was looked at: how it is, and what to do about it.
//!
//! Pure. Invariant: whatever isn't well comes with a cure.

use crate::bench::typed::without_user;
use crate::show;
use block::Error;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// How something is, the worst last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    #[default]
    Ok,
    /// It works, and something will be slower or other than was meant.
    Warning,
    /// It won't work.
    Failed,
}

impl Outcome {
    pub fn word(self) -> &'static str {
        match self {
            Outcome::Ok => "ok",
            Outcome::Warning => "warning",
            Outcome::Failed => "failed",
        }
    }

    /// The colour of a terminal that it is shown in.
    fn paint(self) -> &'static str {
        match self {
            Outcome::Ok => "\x1b[32m",
            Outcome::Warning => "\x1b[33m",
            Outcome::Failed => "\x1b[31m",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    pub about: String,
    pub outcome: Outcome,
    pub said: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cure: Option<String>,
    /// Numbers for programs, each with its unit in its name.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub figures: Map<String, Value>,
}

impl Finding {
    pub fn ok(about: &str, said: impl Into<String>) -> Finding {
        Finding { about: about.into(), outcome: Outcome::Ok, said: said.into(), cure: None, figures: Map::new() }
    }

    pub fn warning(about: &str, said: impl Into<String>, cure: impl Into<String>) -> Finding {
        Finding { outcome: Outcome::Warning, cure: Some(cure.into()), ..Finding::ok(about, said) }
    }

    pub fn failed(about: &str, said: impl Into<String>, cure: impl Into<String>) -> Finding {
        Finding { outcome: Outcome::Failed, ..Finding::warning(about, said, cure) }
    }

    /// What failed, on what, as an error tells it, with what to try. No password of a URL is in it.
    pub fn of(about: &str, error: &Error) -> Finding {
        let said = without_user(&format!("{} ({})", error.what, error.on));
        Finding::failed(about, said, without_user(&error.hint))
    }

    pub fn with(mut self, name: &str, figure: impl Into<Value>) -> Finding {
        self.figures.insert(name.into(), figure.into());
        self
    }

    /// A line, and one more with the cure; behind `before`, such as the name of a host.
    pub fn text(&self, before: &str, is_coloured: bool) -> String {
        let word = format!("{:<8}", self.outcome.word());
        let word = if is_coloured { format!("{}{word}\x1b[0m", self.outcome.paint()) } else { word };
        let mut out = format!("{before}{word} {:<12} {}\n", self.about, show::line(&self.said));
        if let Some(cure) = self.cure.as_ref().filter(|cure| !cure.is_empty()) {
            out += &format!("{before}{:21} try: {}\n", "", show::line(cure));
        }
        out
    }
}

/// The worst of several.
pub fn worst(findings: &[Finding]) -> Outcome {
    findings.iter().map(|finding| finding.outcome).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_counts_and_a_cure_has_a_line_of_its_own() {
        let all = [Finding::ok("disk", "fine"), Finding::failed("clock", "off", "set it"), Finding::ok("fuse", "fine")];
        assert_eq!((worst(&all), worst(&all[..1]), worst(&[])), (Outcome::Failed, Outcome::Ok, Outcome::Ok));
        assert_eq!(all[1].text("", false), "failed   clock        off\n                      try: set it\n");
        assert!(all[1].text("a: ", true).starts_with("a: \x1b[31mfailed  \x1b[0m clock"));
        let error = Error::denied("refused", "s3://b").hint("other keys");
        let found = Finding::of("credentials", &error).with("seconds", 1);
        let value = serde_json::to_value(&found).expect("JSON");
        assert_eq!(value["cure"], "other keys");
        assert_eq!(value["figures"]["seconds"], 1);
        assert_eq!(serde_json::from_value::<Finding>(value).expect("the same"), found);
    }

    #[test]
    fn nothing_of_a_text_steers_a_terminal() {
        let text = Finding::ok("store", "a\x1b[2Jb\nc").text("", false);
        assert!(!text.contains('\x1b') && text.lines().count() == 1, "{text:?}");
    }
}
