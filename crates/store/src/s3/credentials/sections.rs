//! The text of a file of profiles: sections of values, line by line, as AWS's tools read them.
//!
//! Deliberately nothing of what they mean. What is indented below a value that is empty belongs to it, as the endpoint of a
//! service below `s3 =`; below any other it is more of that. Quotes and backslashes are part of a value. Invariant: of what is
//! said twice the later counts.

/// The sections of a file, as they follow each other.
#[derive(Default)]
pub struct Sections(Vec<Part>);

/// One section, which may stand in several parts of a file.
pub struct Section<'a>(Vec<&'a Part>);

struct Part {
    name: String,
    entries: Vec<Entry>,
}

struct Entry {
    name: String,
    value: String,
    /// Names and values that are indented below.
    below: Vec<(String, String)>,
}

impl Sections {
    /// Of a text that is not understood, the number of the line.
    pub fn parse(text: &str) -> Result<Sections, usize> {
        let (mut parts, mut level) = (Vec::<Part>::new(), None);
        for (line, number) in text.trim_start_matches('\u{feff}').lines().zip(1usize..) {
            let inside = line.trim();
            if inside.is_empty() || inside.starts_with(['#', ';']) {
                continue;
            }
            let indent = line.len() - line.trim_start().len();
            let above = parts.last_mut().and_then(|part| part.entries.last_mut());
            if let Some(above) = above.filter(|_| level.is_some_and(|level| indent > level)) {
                above.go_on(inside);
            } else if let Some(head) = inside.strip_prefix('[') {
                let (name, _) = head.split_once(']').ok_or(number)?;
                parts.push(Part { name: named(name), entries: Vec::new() });
                level = None;
            } else {
                let part = parts.last_mut().ok_or(number)?;
                let (name, value) = inside.split_once(['=', ':']).ok_or(number)?;
                let [name, value] = [name, value].map(|side| side.trim().to_owned());
                part.entries.push(Entry { name, value, below: Vec::new() });
                level = Some(indent);
            }
        }
        Ok(Sections(parts))
    }

    pub fn section(&self, name: &str) -> Option<Section<'_>> {
        let parts: Vec<_> = self.0.iter().filter(|part| part.name == name).collect();
        (!parts.is_empty()).then_some(Section(parts))
    }
}

/// The name of a section; that of a profile may stand in quotes.
fn named(head: &str) -> String {
    match head.trim().split_once(char::is_whitespace) {
        Some((kind, name)) => format!("{kind} {}", name.trim().trim_matches(['"', '\''])),
        None => head.trim().to_owned(),
    }
}

impl Entry {
    fn go_on(&mut self, more: &str) {
        match more.split_once('=').filter(|_| self.value.is_empty()) {
            Some((name, value)) => self.below.push((name.trim().to_owned(), value.trim().to_owned())),
            None => {
                self.value.push('\n');
                self.value.push_str(more);
            }
        }
    }
}

impl<'a> Section<'a> {
    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.entry(name).map(|entry| entry.value.trim()).filter(|value| !value.is_empty())
    }

    /// A value that is indented below another.
    pub fn below(&self, above: &str, name: &str) -> Option<&'a str> {
        let all = self.entry(above)?.below.iter().rev();
        let mut found = all.filter(|(here, _)| here.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str());
        found.next().filter(|value| !value.is_empty())
    }

    fn entry(&self, name: &str) -> Option<&'a Entry> {
        let mut all = self.0.iter().rev().flat_map(|part| part.entries.iter().rev());
        all.find(|entry| entry.name.eq_ignore_ascii_case(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(text: &str, section: &str, name: &str) -> Option<String> {
        let sections = Sections::parse(text).unwrap_or_else(|line| panic!("line {line} of {text:?}"));
        sections.section(section)?.get(name).map(str::to_owned)
    }

    #[test]
    fn a_value_is_what_stands_there_and_the_later_counts() {
        for (text, value) in [
            ("[a]\nk = v\n", "v"),
            ("\u{feff}[a]\r\n\tk=v\r\n", "v"),
            ("[a] # first\nK : v", "v"),
            ("[a]\n  # indented\n  k = 'v' # \\", "'v' # \\"),
            ("[a]\nk = v\\\nother = w", "v\\"),
            ("[a]\nk = 1\nk = 2\n[b]\nk = 3\n[a]\nk = v", "v"),
            ("[a]\nk = sh -c\n  'x = y'\nother = w", "sh -c\n'x = y'"),
            ("[a]\nk =\nk = v\ns3 =\n  k = w", "v"),
        ] {
            assert_eq!(get(text, "a", "k").as_deref(), Some(value), "{text:?}");
        }
        assert_eq!(get("[profile  \"a b\"]\nk = v", "profile a b", "k").as_deref(), Some("v"));
        assert_eq!(get("[a]\nk = v\nk =", "a", "k"), None);
        let nested = Sections::parse("[a]\nk = no\ns3 =\n  k = 1\n  K = v\nsqs =\n  k = no").expect("a text");
        assert_eq!(nested.section("a").and_then(|section| section.below("S3", "k")), Some("v"));
    }

    #[test]
    fn a_line_that_is_no_value_is_named_by_its_number() {
        for (text, line) in [("k = v", 1), ("[a]\n\nk", 3), ("[a]\nk = v\n[b", 3)] {
            assert_eq!(Sections::parse(text).err(), Some(line), "{text:?}");
        }
    }
}
