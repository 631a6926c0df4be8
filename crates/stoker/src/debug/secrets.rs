//! What must not be in anything that is handed on: what this machine keeps as secret, and what looks like it.
//!
//! Pure, but for [`Secrets::of_machine`]. Invariant: it errs by taking away too much.

use crate::bench::typed::without_user;
use crate::place;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// In place of it.
pub const REMOVED: &str = "[removed]";

/// Words in the name of what is secret, in small letters.
const WORDS: [&str; 9] =
    ["secret", "token", "passw", "signature", "credential", "authorization", "apikey", "api_key", "private"];

/// Endings of such names in the environment and in files of profiles alone: elsewhere a key is the name of an object.
const ENDINGS: [&str; 4] = ["key", "key_id", "auth", "pass"];

/// Shorter values are in many texts by chance.
const LETTERS_MIN: usize = 6;

/// Of a file of profiles that is looked at.
const FILE_MAX: usize = 1 << 20;

pub struct Secrets(Vec<String>);

impl Secrets {
    /// Values of the environment and of AWS's files by the names of which they are secret.
    pub fn of_machine() -> Secrets {
        let mut all: Vec<(String, String)> = std::env::vars_os()
            .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
            .collect();
        let home = || place::variable("HOME").map(|home| PathBuf::from(home).join(".aws"));
        for (variable, name) in [("AWS_SHARED_CREDENTIALS_FILE", "credentials"), ("AWS_CONFIG_FILE", "config")] {
            let named = place::variable(variable).filter(|named| !named.is_empty()).map(PathBuf::from);
            let path = named.or_else(|| Some(home()?.join(name)));
            all.extend(path.iter().flat_map(|path| profiles(path)));
        }
        Secrets::of(&all)
    }

    /// Those of these names and values that are secret, the longest first.
    fn of(all: &[(String, String)]) -> Secrets {
        let secret = |(name, value): &(String, String)| {
            let name = name.to_ascii_lowercase();
            let is_named =
                WORDS.iter().any(|word| name.contains(word)) || ENDINGS.iter().any(|end| name.ends_with(end));
            match name.ends_with("user") {
                // A user with a password behind it.
                true => value.split_once(':').map(|(_, password)| password.to_owned()),
                false => is_named.then(|| value.clone()),
            }
        };
        // A path tells where something lies, and not what it is.
        let is_one = |value: &String| value.len() >= LETTERS_MIN && !value.starts_with('/');
        // As it is, and as URLs have it.
        let encoded = |value: &String| value.replace('/', "%2F").replace('+', "%2B").replace('=', "%3D");
        let mut values: Vec<String> = all.iter().filter_map(secret).filter(is_one).collect();
        values.extend(values.iter().map(encoded).collect::<Vec<_>>());
        values.sort_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
        values.dedup();
        Secrets(values)
    }

    /// A text without them.
    pub fn cleaned(&self, text: &str) -> String {
        let text = self.0.iter().fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), REMOVED));
        without_named(&without_user(&text))
    }

    /// All texts of a value, in it wherever; and what stands under a secret name.
    pub fn clean(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.cleaned(text),
            Value::Array(values) => values.iter_mut().for_each(|value| self.clean(value)),
            Value::Object(members) => {
                let names: Vec<String> = members.keys().cloned().collect();
                for name in names {
                    let clean = self.cleaned(&name);
                    let mut member = members.remove(&name).unwrap_or_default();
                    self.clean(&mut member);
                    members.insert(clean, member);
                }
            }
            _ => {}
        }
    }
}

/// Settings of a file of profiles.
fn profiles(path: &Path) -> Vec<(String, String)> {
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text[..text.len().min(FILE_MAX)]).into_owned();
    let lines = text.lines().filter_map(|line| line.split_once('='));
    lines.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned())).collect()
}

/// Take away what stands behind a secret name, as `X-Amz-Signature=...`, `password: ...` or `Authorization: ...` have it.
fn without_named(text: &str) -> String {
    text.split_inclusive('\n').map(line_without_named).collect()
}

fn line_without_named(line: &str) -> String {
    let is_of_word = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let word = rest.find(|letter: char| !is_of_word(letter)).unwrap_or(rest.len());
        // A word, or a sign between two.
        let (name, behind) = rest.split_at(if word == 0 { first.len_utf8() } else { word });
        out += name;
        rest = behind;
        let small = name.to_ascii_lowercase();
        if !WORDS.iter().any(|known| small.contains(known)) {
            continue;
        }
        // Quotes, blanks and one sign that says that a value follows.
        let before = behind.len() - behind.trim_start_matches(['"', '\'', ' ', '\\']).len();
        let Some(value) = behind[before..].strip_prefix(['=', ':']) else { continue };
        let gap = value.len() - value.trim_start_matches(['"', '\'', ' ', '\\']).len();
        let taken = behind.len() - value.len() + gap;
        let is_header = small.ends_with("authorization");
        let ends = |letter: char| if is_header { "\r\n".contains(letter) } else { "&\"',;\\ \r\n\t)".contains(letter) };
        let value = &behind[taken..];
        let end = value.find(ends).unwrap_or(value.len());
        out += &behind[..taken];
        if end > 0 {
            out += REMOVED;
        }
        rest = &value[end..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets() -> Secrets {
        let pairs = [
            ("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI"),
            ("ETCDCTL_USER", "root:etcd-pass"),
            ("HOME", "/var/lib/me"),
            ("AWS_WEB_IDENTITY_TOKEN_FILE", "/var/run/token"),
            ("API_KEY", "abc"),
        ];
        Secrets::of(&pairs.map(|(name, value)| (name.to_owned(), value.to_owned())))
    }

    #[test]
    fn what_this_machine_keeps_secret_is_taken_away_wherever_it_stands() {
        let known = secrets();
        for text in ["key wJalrXUtnFEMI was", "etcd-pass", "http://a:etcd-pass@h", "\"wJalrXUtnFEMI\""] {
            let clean = known.cleaned(text);
            assert!(!clean.contains("wJalrXUtnFEMI") && !clean.contains("etcd-pass"), "{clean}");
        }
        let mut value = serde_json::json!({ "wJalrXUtnFEMI": [{ "said": "of root:etcd-pass" }], "bytes": 7 });
        known.clean(&mut value);
        assert_eq!(value, serde_json::json!({ REMOVED: [{ "said": "of root:[removed]" }], "bytes": 7 }));
        assert_eq!(known.cleaned("/var/lib/me abc"), "/var/lib/me abc");
    }

    #[test]
    fn what_looks_like_a_secret_is_taken_away_and_nothing_else() {
        let known = Secrets(Vec::new());
        for (text, clean) in [
            ("GET /k?X-Amz-Signature=PLANT&x=1", "GET /k?X-Amz-Signature=[removed]&x=1"),
            ("X-Amz-Credential=PLANT/2026/us\n", "X-Amz-Credential=[removed]\n"),
            ("{\"password\": \"PLANT\", \"a\": 1}", "{\"password\": \"[removed]\", \"a\": 1}"),
            ("Authorization: AWS4 Credential=PLANT, Signature=PLANT\nnext", "Authorization: [removed]\nnext"),
            ("aws_secret_access_key = PLANT", "aws_secret_access_key = [removed]"),
            ("http://me:PLANT@host/path", "http://host/path"),
            ("the credentials were refused: key (403)", "the credentials were refused: key (403)"),
            ("s3://bucket/key=1/größe", "s3://bucket/key=1/größe"),
        ] {
            assert_eq!(known.cleaned(text), clean);
        }
    }
}
