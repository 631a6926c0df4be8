//! A Rust source taken apart into code and comments, as far as rules about words and lengths need it.
//!
//! It doesn't parse. Invariant: every layer has the lines of the source, so that a line number holds in all.

/// A source in layers; in each, what belongs to the others is blank.
pub struct Source {
    /// Without comments and without what stands in texts.
    pub code: String,
    pub comments: String,
}

/// A function and the lines that it takes, its signature with them.
pub struct Function {
    pub name: String,
    pub line: usize,
    pub lines: usize,
    /// Whether the harness calls it: `#[test]`, `#[tokio::test]`, and not ignored.
    pub is_test: bool,
}

/// How a suite, as `store::contract!`, begins its list of promises.
const SUITE: &str = "contract!(@each";

/// How the list of promises begins that several suites share.
const PROMISES: &str = "$($before)*";

#[derive(Clone, Copy)]
enum State {
    Code,
    LineComment,
    /// With how many are open.
    BlockComment(u32),
    Text,
    /// With the number of signs that close it.
    RawText(usize),
}

impl Source {
    pub fn read(text: &str) -> Source {
        let letters: Vec<char> = text.chars().collect();
        let (mut code, mut comments) = (String::with_capacity(text.len()), String::new());
        let (mut state, mut at) = (State::Code, 0);
        while at < letters.len() {
            let (next, taken) = step(state, &letters, at);
            let is_comment = |state| matches!(state, State::LineComment | State::BlockComment(_));
            for letter in &letters[at..at + taken] {
                let blank = if letter.is_whitespace() { *letter } else { ' ' };
                let in_comment = is_comment(state) || is_comment(next);
                let in_code = matches!((state, next), (State::Code, State::Code)) && !is_letter(&letters, at, taken);
                code.push(if in_code { *letter } else { blank });
                comments.push(if in_comment { *letter } else { blank });
            }
            (state, at) = (next, at + taken);
        }
        Source { code, comments }
    }

    /// The code without items that exist only in tests.
    pub fn shipped(&self) -> String {
        let mut shipped = self.code.clone();
        while let Some(start) = shipped.find("#[cfg(test)]") {
            let rest = &shipped[start..];
            let end = start + item_end(rest).unwrap_or(rest.len());
            let blank: String =
                shipped[start..end].chars().map(|letter| if letter == '\n' { '\n' } else { ' ' }).collect();
            shipped.replace_range(start..end, &blank);
        }
        shipped
    }

    pub fn functions(&self) -> Vec<Function> {
        let starts = word_places(&self.code, "fn");
        let named = starts.filter_map(|start| {
            let rest = self.code[start + 2..].trim_start();
            let name: String = rest.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect();
            let end = start + item_end(&self.code[start..])?;
            let lines = self.code[start..end].matches('\n').count() + 1;
            let is_test = is_tested(attributes(&self.code[..start]));
            (!name.is_empty()).then(|| Function { name, line: line_of(&self.code, start), lines, is_test })
        });
        named.collect()
    }

    /// Names of the tests: functions that the harness calls, and the promises that a suite makes a test of each.
    pub fn tests(&self) -> Vec<String> {
        let functions = self.functions().into_iter().filter(|function| function.is_test);
        let mut tests: Vec<String> = functions.map(|function| function.name).collect();
        for (at, _) in self.code.match_indices(SUITE) {
            let list = self.code[at + SUITE.len()..].split(')').next().unwrap_or_default();
            let promises = list.split_once(';').map_or("", |(_, promises)| promises);
            tests.extend(promises.split_whitespace().map(str::to_owned));
        }
        for (at, _) in self.code.match_indices(PROMISES) {
            let promises = self.code[at + PROMISES.len()..].split('}').next().unwrap_or_default();
            tests.extend(promises.split_whitespace().map(str::to_owned));
        }
        tests
    }
}

/// The next state, and how many letters belong to the step to it.
fn step(state: State, letters: &[char], at: usize) -> (State, usize) {
    let starts = |text: &str| text.chars().enumerate().all(|(index, letter)| letters.get(at + index) == Some(&letter));
    match state {
        State::Code if starts("//") => (State::LineComment, 2),
        State::Code if starts("/*") => (State::BlockComment(1), 2),
        State::Code => match raw_text(letters, at) {
            Some((signs, taken)) => (State::RawText(signs), taken),
            None if starts("\"") => (State::Text, 1),
            None => (State::Code, letter_length(letters, at).unwrap_or(1)),
        },
        State::LineComment if starts("\n") => (State::Code, 1),
        State::BlockComment(1) if starts("*/") => (State::Code, 2),
        State::BlockComment(open) if starts("*/") => (State::BlockComment(open - 1), 2),
        State::BlockComment(open) if starts("/*") => (State::BlockComment(open + 1), 2),
        State::Text if starts("\\") => (State::Text, 2.min(letters.len() - at)),
        State::Text if starts("\"") => (State::Code, 1),
        State::RawText(signs) if starts(&format!("\"{}", "#".repeat(signs))) => (State::Code, 1 + signs),
        same => (same, 1),
    }
}

/// The opening of `r"` or `r#"`, if one stands here: its signs and its length.
fn raw_text(letters: &[char], at: usize) -> Option<(usize, usize)> {
    let before = at.checked_sub(1).map(|before| letters[before]);
    if letters[at] != 'r' || before.is_some_and(|letter| letter.is_alphanumeric() && letter != 'b' || letter == '_') {
        return None;
    }
    let signs = letters[at + 1..].iter().take_while(|letter| **letter == '#').count();
    (letters.get(at + 1 + signs) == Some(&'"')).then_some((signs, signs + 2))
}

/// The length of `'x'` or `'\n'`; a lifetime has none.
fn letter_length(letters: &[char], at: usize) -> Option<usize> {
    match letters.get(at..)? {
        ['\'', '\\', rest @ ..] => Some(3 + 1 + rest.iter().skip(1).position(|letter| *letter == '\'')?),
        ['\'', _, '\'', ..] => Some(3),
        _ => None,
    }
}

fn is_letter(letters: &[char], at: usize, taken: usize) -> bool {
    taken > 1 && letters[at] == '\''
}

/// The attributes of an item whose keyword stands behind this text.
fn attributes(before: &str) -> &str {
    let start = before.rfind([';', '}', '{']).map_or(0, |at| at + 1);
    &before[start..]
}

fn is_tested(attributes: &str) -> bool {
    let names = || attributes.split("#[").skip(1).map(|one| one.split([']', '(', ' ', '=']).next().unwrap_or_default());
    names().any(|name| name == "test" || name.ends_with("::test")) && !names().any(|name| name == "ignore")
}

/// Where an item ends that begins a text: behind its braces, or at a semicolon outside of brackets.
fn item_end(item: &str) -> Option<usize> {
    let (mut braces, mut brackets) = (0, 0);
    for (at, letter) in item.char_indices() {
        match letter {
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets -= 1,
            '{' => braces += 1,
            '}' if braces == 1 && brackets == 0 => return Some(at + 1),
            '}' => braces -= 1,
            ';' if braces == 0 && brackets == 0 => return Some(at + 1),
            _ => {}
        }
        if braces < 0 || brackets < 0 {
            return None;
        }
    }
    None
}

/// Where a word stands that is not part of a longer one. What doesn't begin or end like a word is found anywhere.
pub fn word_places<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
    code.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let before = code[..at].chars().next_back().is_some_and(is_name) && word.starts_with(is_name);
        let after = code[at + word.len()..].chars().next().is_some_and(is_name) && word.ends_with(is_name);
        !before && !after
    })
}

/// The line of a place, the first being 1.
pub fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

#[test]
fn a_source_is_taken_apart() {
    let text = "let a = \"// no \\\" comment\"; // a comment\nlet b = r#\"fn raw() {\"#; /* two /* deep */ */ let c = '{';\n\
        fn f<'a>(x: [u8; 3]) -> &'a str {\n    '\\''; \"}\"\n}\n#[cfg(test)]\nmod tests {\n    #[tokio::test(start_paused = true)]\n    async fn g() {}\n}\nfn h();\n\
        #[test]\n#[ignore = \"run by g\"]\nfn i() {}\ncontract!(@each $name, $place;\n    j\n    k);\n";
    let source = Source::read(text);
    assert_eq!(source.code.matches('\n').count(), text.matches('\n').count());
    assert!(!source.code.contains("comment") && !source.code.contains("raw") && !source.code.contains("deep"));
    assert!(source.comments.contains("// a comment") && !source.comments.contains("// no"));
    let functions: Vec<_> = source.functions().into_iter().map(|found| (found.name, found.line, found.lines)).collect();
    assert_eq!(
        functions,
        [("f".to_owned(), 3, 3), ("g".to_owned(), 9, 1), ("h".to_owned(), 11, 1), ("i".to_owned(), 14, 1)]
    );
    assert_eq!(source.tests(), ["g", "j", "k"]);
    assert!(source.shipped().contains("fn h") && !source.shipped().contains("fn g"));
    let words: Vec<_> = word_places("println!() eprintln!() a.println!", "println!").collect();
    assert_eq!(words, [0, 25]);
}
