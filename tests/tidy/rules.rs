//! What is not allowed where, and what to use instead.
//!
//! Invariant: an exception names the file that it is for and says why.

use super::source::{Source, line_of, word_places};
use super::{File, Offence};

const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;

/// Which crates a crate may use. A new crate gets a line here and in ARCHITECTURE.md.
const ARROWS: [(&str, &[&str]); 23] = [
    ("block", &[]),
    ("order", &[]),
    ("store", &["block"]),
    ("cache", &["block"]),
    ("peer", &["block"]),
    ("client", &["block"]),
    ("node", &["store", "cache", "peer", "order", "block"]),
    ("mount", &["node", "block"]),
    ("daemon", &["client", "mount", "node", "peer", "store", "block"]),
    ("emulate", &["store", "block"]),
    ("workload", &["block"]),
    ("targets", &["store", "block"]),
    ("data", &["targets", "workload", "block"]),
    ("trace", &["workload", "block"]),
    ("report", &["block"]),
    ("ranks", &["block"]),
    ("bench", &["data", "targets", "workload", "report", "ranks", "order", "block"]),
    ("observe", &["trace", "node", "block"]),
    ("fleet", &[]),
    ("plan", &[]),
    (
        "stoker",
        &[
            "block", "store", "cache", "peer", "client", "node", "mount", "daemon", "emulate", "workload", "targets",
            "data", "trace", "report", "ranks", "bench", "observe", "fleet", "plan", "order",
        ],
    ),
    // A bare program beside Stoker, the least that a mount costs, and one that asks members.
    ("benchmarks", &["block", "mount", "node", "peer"]),
    // What reads foreign bytes, to be given hostile ones.
    ("fuzz", &["bench", "cache", "daemon", "emulate", "fleet", "mount", "node", "peer", "store", "workload"]),
];

/// Tests may use what they like, except that who measures never sees what is measured.
const BLIND: [&str; 7] = ["workload", "targets", "data", "trace", "report", "ranks", "bench"];
const UNSEEN: [&str; 4] = ["node", "cache", "peer", "mount"];

/// Names that say nothing, for crates.
const DRAWERS: [&str; 6] = ["common", "core", "util", "utils", "misc", "helpers"];

/// Words that must not stand in code that is shipped.
struct Ban {
    words: &'static [&'static str],
    what: &'static str,
    instead: &'static str,
    /// Beginnings of paths for which it does not hold.
    except: &'static [(&'static str, &'static str)],
}

const EDGE: (&str, &str) =
    ("crates/stoker/", "the command is the edge: it reads the environment and the clock, and prints");
const MEASURES: (&str, &str) = ("benchmarks/", "a program of its own that measures and prints");

const BANS: [Ban; 6] = [
    Ban {
        words: &["env::var", "env::var_os", "env::vars", "env::args", "env::args_os", "OsEnv"],
        what: "the environment is read outside of crates/stoker",
        instead: "take the value as a setting; crates/stoker reads it (args.rs, place.rs)",
        except: &[
            EDGE,
            MEASURES,
            (
                "crates/store/src/s3/credentials.rs",
                "AWS's chain of credentials begins there, and each process of it is the library's",
            ),
            (
                "crates/store/src/command.rs",
                "what finds credentials is taken out of what a program has of this process",
            ),
        ],
    },
    Ban {
        words: &["SystemTime::now", "Utc::now", "Timestamp::now"],
        what: "the time of day is taken instead of passed",
        instead: "take the time, or a function that tells it, as an argument",
        except: &[
            EDGE,
            MEASURES,
            ("crates/emulate/src/clock.rs", "the one place of that crate where time is read"),
            ("crates/store/src/folder.rs", "the default of a setting, which tests replace"),
            ("crates/store/src/s3/sign.rs", "a signature is of the moment in which it is made"),
            ("crates/store/src/s3/credentials/sso.rs", "a login says when it ends by the time of day"),
            ("crates/store/src/cloud/azure/cli.rs", "a token says when it ends by the time of day"),
            (
                "crates/node/src/view/listing.rs",
                "when a listing began, for people; the builder of the manifest is given it",
            ),
        ],
    },
    Ban {
        words: &["Instant::now"],
        what: "a clock is read instead of passed",
        instead: "take the time as an argument; a wait is tokio's, whose clock tests stop",
        except: &[
            EDGE,
            MEASURES,
            ("crates/emulate/src/clock.rs", "the one place of that crate where time is read"),
            (
                "crates/store/src/",
                "silences and patience are timed on tokio's clock, which tests stop; decisions are given durations",
            ),
            ("crates/cache/src/disk/histories/", "simulated time: the clock that stands still until a step moves it"),
            ("crates/cache/src/waits.rs", "how long readers waited, shown to people; no decision follows from it"),
            (
                "crates/bench/src/sweep/clock.rs",
                "measuring is what it is for; nothing is decided by it but a limit on time",
            ),
            ("crates/observe/src/recorder.rs", "when something was asked is what it takes down"),
            ("crates/node/src/fill.rs", "how old a reader's wait is; the pace, `window`, is given the waits"),
            (
                "crates/node/src/prefetch.rs",
                "how fast files are opened; `declared`, which decides by it, is given the time",
            ),
            ("crates/node/src/view.rs", "how long a reader waited, for the pace of the fill"),
            ("crates/peer/src/contact.rs", "when a member was slow; the breaker is given it"),
            (
                "crates/peer/src/lines.rs",
                "how long this node has been a member, for those who ask; and whether it stood still",
            ),
        ],
    },
    Ban {
        words: &["rand::", "fastrand::", "getrandom::", "thread_rng", "RandomState::new"],
        what: "chance is taken instead of passed",
        instead: "take a seed (store::retry::Chance, emulate::chance, data::noise)",
        except: &[EDGE],
    },
    Ban {
        words: &["unbounded_channel", "unbounded", "mpsc::channel()"],
        what: "a channel without a limit",
        instead: "a bounded channel whose length is a named constant: tokio::sync::mpsc::channel(N), std::sync::mpsc::sync_channel(N)",
        except: &[],
    },
    Ban {
        words: &["println!", "print!", "eprintln!", "eprint!"],
        what: "something prints, and panics where nobody reads or a disk is full",
        instead: "return the text, or log it: tracing::info!; the command has say! and note! (print.rs)",
        except: &[MEASURES, ("crates/stoker/build.rs", "what it prints is for cargo")],
    },
];

/// Words that must not stand in any code.
const LEFT_OVER: [(&str, &str); 3] = [
    ("todo!", "write it, or return an error that says what is missing"),
    ("unimplemented!", "write it, or return an error that says what is missing"),
    ("dbg!", "remove it, or log with tracing::debug!"),
];

/// Endings of type names that say nothing.
const EMPTY_WORDS: [&str; 5] = ["Manager", "Helper", "Handler", "Info", "Data"];

/// Rules for a file of Rust.
pub fn rust(file: &File, source: &Source, out: &mut Vec<Offence>) {
    lengths(file, source, out);
    banned(file, source, out);
    left_over(file, source, out);
    names(file, source, out);
    unsafe_code(file, source, out);
}

/// Whether a whole file exists only for tests.
fn is_test(path: &str) -> bool {
    path.starts_with("tests/") || path.contains("/tests/") || path.ends_with("/tests.rs") || path.starts_with("fuzz/")
}

fn lengths(file: &File, source: &Source, out: &mut Vec<Offence>) {
    let lines = file.text.lines().count();
    if lines > FILE_LINES_MAX {
        let what = format!("a file of {lines} lines, over {FILE_LINES_MAX}");
        out.push(Offence::new(
            &file.path,
            1,
            &what,
            "one noun a file: move a part of it into a folder of the file's name",
        ));
    }
    if !file.text.starts_with("//!") {
        let cure = "begin with //! and what the file is for, what it doesn't do, and the invariant it keeps";
        out.push(Offence::new(&file.path, 1, "no word on what the file is for", cure));
    }
    for function in source.functions().iter().filter(|function| function.lines > FUNCTION_LINES_MAX) {
        let what = format!("`{}` has {} lines, over {FUNCTION_LINES_MAX}", function.name, function.lines);
        let cure = "the parent decides, the leaves compute: give its steps names of their own";
        out.push(Offence::new(&file.path, function.line, &what, cure));
    }
}

fn banned(file: &File, source: &Source, out: &mut Vec<Offence>) {
    if is_test(&file.path) {
        return;
    }
    let shipped = source.shipped();
    for ban in BANS.iter().filter(|ban| !ban.except.iter().any(|(path, _)| file.path.starts_with(path))) {
        for word in ban.words {
            for at in word_places(&shipped, word) {
                let what = format!("`{word}`: {}", ban.what);
                out.push(Offence::new(&file.path, line_of(&shipped, at), &what, ban.instead));
            }
        }
    }
}

fn left_over(file: &File, source: &Source, out: &mut Vec<Offence>) {
    for (word, cure) in LEFT_OVER {
        for at in word_places(&source.code, word) {
            out.push(Offence::new(&file.path, line_of(&source.code, at), &format!("`{word}` was left over"), cure));
        }
    }
    for at in word_places(&source.comments, "FIXME") {
        let cure = "do it now, or open an issue and say in the comment what holds meanwhile";
        out.push(Offence::new(&file.path, line_of(&source.comments, at), "`FIXME` was left over", cure));
    }
    for (number, line) in source.code.lines().enumerate() {
        let text = file.text.lines().nth(number).unwrap_or_default();
        if line.trim_start().starts_with("#[ignore") && !text.contains("\"run by ") {
            let cure = "make it run; if another test runs it as a process, say which: #[ignore = \"run by ...\"]";
            out.push(Offence::new(&file.path, number + 1, "a test that never runs", cure));
        }
    }
}

fn names(file: &File, source: &Source, out: &mut Vec<Offence>) {
    for keyword in ["struct", "enum", "trait", "union"] {
        for at in word_places(&source.code, keyword) {
            let rest = source.code[at + keyword.len()..].trim_start();
            let name: String = rest.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect();
            if let Some(word) = EMPTY_WORDS.iter().find(|word| name.ends_with(**word)) {
                let what = format!("`{name}`: the word {word} says nothing");
                let cure = "name the thing by what it is: Ring, Tally, Shelf, Counts";
                out.push(Offence::new(&file.path, line_of(&source.code, at), &what, cure));
            }
        }
    }
}

fn unsafe_code(file: &File, source: &Source, out: &mut Vec<Offence>) {
    let (code, comments): (Vec<&str>, Vec<&str>) = (source.code.lines().collect(), source.comments.lines().collect());
    for at in word_places(&source.code, "unsafe") {
        let rest = source.code[at + "unsafe".len()..].trim_start();
        if !(rest.starts_with('{') || rest.starts_with("impl")) {
            continue;
        }
        let line = line_of(&source.code, at);
        let is_above = |&index: &usize| {
            let (code, comment) = (code[index].trim(), comments[index].trim());
            code.starts_with("#[") || code.is_empty() && !comment.is_empty()
        };
        let above = (0..line - 1).rev().take_while(is_above);
        if !above.chain([line - 1]).any(|index| comments[index].contains("SAFETY:")) {
            let cure = "say in a comment right above, beginning with SAFETY:, why it is sound";
            out.push(Offence::new(&file.path, line, "unsafe code without its reason", cure));
        }
    }
}

/// With which git begins and ends the sides of a conflict, seven times.
const MARKS: [&str; 2] = ["<", ">"];

/// Rules for a file of any text.
pub fn text(file: &File, out: &mut Vec<Offence>) {
    let homes = ["work", "root", "home"].map(|name| ["/", name, "/"].concat());
    for (number, line) in file.text.lines().enumerate() {
        for home in homes.iter().filter(|home| line.contains(home.as_str())) {
            let cure = "a path below the repository, or one that every machine has";
            out.push(Offence::new(&file.path, number + 1, &format!("`{home}`: a path of one machine"), cure));
        }
        if MARKS.iter().any(|mark| line.starts_with(&mark.repeat(7))) {
            let cure = "keep what both sides meant, and remove the marks";
            out.push(Offence::new(&file.path, number + 1, "a conflict that was not solved", cure));
        }
        for letter in line.chars().filter(|letter| is_invisible(*letter)) {
            let what = format!("an invisible character, U+{:04X}", u32::from(letter));
            out.push(Offence::new(&file.path, number + 1, &what, "remove it; in a text of Rust write \\u{...}"));
        }
    }
}

/// Controls but the tab, and what changes a text without being seen: zero widths, turns of direction, a byte order mark.
fn is_invisible(letter: char) -> bool {
    let steers =
        matches!(letter, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
    letter.is_control() && letter != '\t' || steers
}

/// Rules for a manifest of cargo.
pub fn arrows(manifest: &File, out: &mut Vec<Offence>) {
    let Some(folder) = manifest.path.strip_suffix("/Cargo.toml") else { return };
    let name = folder.strip_prefix("crates/").unwrap_or(folder);
    if DRAWERS.contains(&name) {
        let cure = "a helper lives with its first user; with three users it gets a noun";
        out.push(Offence::new(&manifest.path, 1, &format!("a crate called {name} is a drawer"), cure));
    }
    let Some((_, allowed)) = ARROWS.iter().find(|(known, _)| *known == name) else {
        let cure = "give it a line in ARROWS (tests/tidy/rules.rs) and in ARCHITECTURE.md";
        return out.push(Offence::new(&manifest.path, 1, &format!("nothing is said of what {name} may use"), cure));
    };
    for (number, section, used) in dependencies(manifest) {
        let is_ours = ARROWS.iter().any(|(known, _)| *known == used);
        let is_wrong = match section {
            "dev-dependencies" => BLIND.contains(&name) && UNSEEN.contains(&used),
            _ => is_ours && !allowed.contains(&used),
        };
        if is_wrong {
            let what = format!("a wrong arrow: {name} must not use {used}");
            let cure = "arrows point down only: take what is needed as an argument or a trait of block";
            out.push(Offence::new(&manifest.path, number, &what, cure));
        }
    }
}

/// What a manifest depends on: line, section, name.
pub fn dependencies(manifest: &File) -> Vec<(usize, &str, &str)> {
    let (mut section, mut found) = ("", Vec::new());
    for (number, line) in manifest.text.lines().enumerate() {
        if let Some(title) = line.strip_prefix('[') {
            section = title.trim_end_matches(']');
        } else if section.ends_with("dependencies") && line.starts_with(|letter: char| letter.is_alphanumeric()) {
            let name = line.split(['.', '=', ' ']).next().unwrap_or_default();
            found.push((number + 1, section, name));
        }
    }
    found
}

/// Each library that is used, and none other, has its line of reason.
pub fn libraries(manifests: &[File], reasons: &File, out: &mut Vec<Offence>) {
    let is_ours = |name: &str| ARROWS.iter().any(|(known, _)| *known == name);
    let table =
        || reasons.text.lines().filter(|line| line.starts_with("| `")).filter_map(|line| line.split('|').nth(1));
    let reasoned: Vec<&str> = table().flat_map(|names| names.split('`').skip(1).step_by(2)).collect();
    let mut used = Vec::new();
    for manifest in manifests {
        for (number, _, name) in dependencies(manifest).into_iter().filter(|(_, _, name)| !is_ours(name)) {
            used.push(name);
            if !reasoned.contains(&name) {
                let cure = format!("a line of reason in {}, or do without it", reasons.path);
                out.push(Offence::new(&manifest.path, number, &format!("nobody knows what {name} is for"), &cure));
            }
        }
    }
    for gone in reasoned.iter().filter(|name| !used.contains(name)) {
        out.push(Offence::new(&reasons.path, 1, &format!("{gone} is not used"), "take its line out"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offences(path: &str, text: &str) -> Vec<String> {
        let (file, mut out) = (File { path: path.into(), text: text.into() }, Vec::new());
        if path.ends_with(".toml") {
            arrows(&file, &mut out)
        } else {
            rust(&file, &Source::read(text), &mut out)
        }
        super::text(&file, &mut out);
        out.into_iter().map(|offence| offence.0).collect()
    }

    #[test]
    fn each_rule_finds_what_breaks_it_and_nothing_else() {
        let path = "crates/cache/src/x.rs";
        for (line, found) in [
            ("fn f() { std::env::var(\"HOME\"); }", "environment"),
            ("fn f() { std::time::Instant::now(); }", "clock"),
            ("fn f() { SystemTime::now(); }", "time of day"),
            ("fn f() { rand::random() }", "chance"),
            ("fn f() { std::sync::mpsc::channel(); }", "without a limit"),
            ("fn f() { println!(); }", "prints"),
            ("fn f() { todo!() }", "left over"),
            ("// FIXME later", "left over"),
            ("#[ignore]\nfn f() {}", "never runs"),
            ("struct CacheManager;", "says nothing"),
            ("fn f() { unsafe { g() } }", "unsafe"),
            ("// \u{200b}", "invisible"),
            (&"<".repeat(7), "conflict"),
        ] {
            let offences_found = offences(path, &format!("//! A file.\n{line}\n"));
            assert!(
                offences_found.len() == 1
                    && offences_found[0].starts_with(&format!("{path}:2: "))
                    && offences_found[0].contains(found),
                "{line}: {offences_found:?}"
            );
        }
        assert!(offences(path, "fn f() {}")[0].contains("what the file is for"));
        assert!(offences(path, &format!("//! A file.\n{}", "\n".repeat(FILE_LINES_MAX)))[0].contains("lines"));
        assert!(
            offences(path, &format!("//! A file.\nfn f() {{\n{}}}", "a();\n".repeat(FUNCTION_LINES_MAX)))[0]
                .contains("`f`")
        );
        let fine = "//! A file.\n// println! SystemTime::now\nfn f() { \"todo! dbg!\"; }\n// SAFETY: sound.\nunsafe impl A for B {}\n\
            #[cfg(test)]\nmod tests {\n    fn g() { println!(); Instant::now(); }\n}\n#[ignore = \"run by g\"]\nfn h() {}\n";
        assert!(offences(path, fine).is_empty(), "{:?}", offences(path, fine));
        assert!(offences("crates/stoker/build.rs", "//! A file.\nfn f() { println!(); }").is_empty());
    }

    #[test]
    fn a_wrong_arrow_is_found() {
        for (path, section, used, is_wrong) in [
            ("crates/cache/Cargo.toml", "dependencies", "store", true),
            ("crates/cache/Cargo.toml", "dependencies", "block", false),
            ("crates/cache/Cargo.toml", "dev-dependencies", "store", false),
            ("crates/bench/Cargo.toml", "dev-dependencies", "node", true),
            ("crates/targets/Cargo.toml", "dev-dependencies", "mount", true),
            ("crates/report/Cargo.toml", "dependencies", "bench", true),
            ("crates/misc/Cargo.toml", "dependencies", "bytes", true),
        ] {
            let text = format!("[package]\nname = \"x\"\n\n[{section}]\n{used}.workspace = true\n");
            assert_eq!(!offences(path, &text).is_empty(), is_wrong, "{path} {section} {used}");
        }
    }
}
