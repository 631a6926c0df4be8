//! What must not be in anything that is handed on: what this machine keeps as secret, and what looks like it.
//!
//! Pure, but for [`Secrets::of_machine`]. Invariant: it errs by taking away too much.

use super::beginning;
use crate::bench::typed::without_user;
use crate::place;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// In place of it.
pub const REMOVED: &str = "[removed]";

/// Words in the name of what is secret, in small letters.
const WORDS: [&str; 11] = [
    "secret",
    "token",
    "passw",
    "signature",
    "credential",
    "authorization",
    "apikey",
    "api_key",
    "private",
    "accountkey",
    "connection_string",
];

/// The whole name of a signature in URLs of Azure.
const SIGNATURE: &str = "sig";

/// Endings of such names in the environment and in files of profiles alone: elsewhere a key is the name of an object.
const ENDINGS: [&str; 4] = ["key", "key_id", "auth", "pass"];

/// Endings of names that say where a secret lies, and not what it is; the last are Google's and etcd's. Others have no
/// paths: a secret may begin with a slash.
const PLACES: [&str; 6] = ["_file", "_path", "_dir", "_location", "application_credentials", "etcdctl_key"];

/// The first and the last line of a private key begin with this, and contain what follows.
const MARK: &str = "-----";
const KEY: [&str; 3] = ["-----BEGIN", "PRIVATE KEY", "-----END"];

/// Shorter values are in many texts by chance.
const LETTERS_MIN: usize = 6;

pub struct Secrets(Vec<String>);

impl Secrets {
    /// Values of this environment, of others', and of AWS's and Google's files by the names of which they are secret.
    pub fn of_machine<'a>(others: impl Iterator<Item = &'a (String, String)>) -> Secrets {
        let mut all: Vec<(String, String)> = std::env::vars_os()
            .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
            .collect();
        all.extend(others.cloned());
        // What such a variable names holds one token and nothing else.
        let token = |(name, path): &(String, String)| {
            let is_token = name.ends_with("TOKEN_FILE");
            is_token.then(|| (name.clone(), beginning(Path::new(path)).unwrap_or_default().trim().to_owned()))
        };
        all.extend(all.iter().filter_map(token).collect::<Vec<_>>());
        let is_google = |name: &str| name == "GOOGLE_APPLICATION_CREDENTIALS";
        let google = all.iter().filter(|(name, _)| is_google(name)).flat_map(|(_, path)| members(Path::new(path)));
        all.extend(google.collect::<Vec<_>>());
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
            let is_path = value.starts_with('/') && PLACES.iter().any(|end| name.ends_with(end));
            match name.ends_with("user") {
                // A user with a password behind it.
                true => value.split_once(':').map(|(_, password)| password.to_owned()),
                false => (is_named && !is_path).then(|| value.clone()),
            }
        };
        let is_one = |value: &String| value.len() >= LETTERS_MIN;
        // Of several lines each may come alone; by the first and the last of a key others are known.
        let lines = |value: String| {
            let of_it = value.lines().filter(|line| !line.starts_with(MARK));
            of_it.map(str::to_owned).collect::<Vec<_>>()
        };
        let within = all.iter().flat_map(|(_, value)| passwords(value).into_iter().chain(parts(value)));
        let named = all.iter().filter_map(secret).chain(within);
        let mut values: Vec<String> = named.flat_map(lines).filter(is_one).collect();
        values.extend(values.iter().flat_map(|value| [percent(value), escaped(value)]).collect::<Vec<_>>());
        values.sort_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
        values.dedup();
        Secrets(values)
    }

    /// A text without them.
    pub fn cleaned(&self, text: &str) -> String {
        let known = |text: String, secret: &String| text.replace(secret.as_str(), REMOVED);
        without_named(&without_user(&self.0.iter().fold(without_keys(text), known)))
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
                    match member {
                        Value::String(ref mut text) if is_secret(&name) => *text = REMOVED.into(),
                        _ => self.clean(&mut member),
                    }
                    members.insert(clean, member);
                }
            }
            _ => {}
        }
    }
}

/// Settings of a file of profiles.
fn profiles(path: &Path) -> Vec<(String, String)> {
    let text = beginning(path).unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.split_once('='));
    lines.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned())).collect()
}

/// Texts of a file of JSON, but for addresses: a token's is none.
fn members(path: &Path) -> Vec<(String, String)> {
    let Ok(Value::Object(found)) = serde_json::from_str(&beginning(path).unwrap_or_default()) else {
        return Vec::new();
    };
    let texts = found.iter().filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
    texts.filter(|(_, text)| !text.contains("://")).collect()
}

/// Whether what is called so is secret in any text.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name == SIGNATURE || WORDS.iter().any(|word| name.contains(word))
}

/// The passwords of URLs with a user.
fn passwords(value: &str) -> Vec<String> {
    let users = value.split("://").skip(1).filter_map(|url| Some(url.rsplit_once('@')?.0));
    users.filter_map(|user| Some(user.split_once(':')?.1.to_owned())).collect()
}

/// What has a secret name within a connection string or a shared access signature.
fn parts(value: &str) -> Vec<String> {
    let named = value.split([';', '&']).filter_map(|part| part.split_once('='));
    named.filter(|(name, _)| is_secret(name.trim())).map(|(_, value)| value.to_owned()).collect()
}

/// A value as URLs have it.
fn percent(value: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    value.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// A value as texts of JSON have it.
fn escaped(value: &str) -> String {
    let quoted = Value::from(value).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// Take away private keys of several lines.
fn without_keys(text: &str) -> String {
    let (mut out, mut is_within) = (String::with_capacity(text.len()), false);
    for line in text.split_inclusive('\n') {
        let [begins, what, ends] = KEY.map(|mark| line.contains(mark));
        // One that begins and ends in a line is the value of a name, in quotes.
        let is_first = begins && what && !ends;
        if is_first {
            out += &format!("{REMOVED}\n");
        }
        is_within = is_within || is_first;
        if !is_within {
            out += line;
        }
        is_within = is_within && !ends;
    }
    out
}

/// Take away what stands behind a secret name, as `X-Amz-Signature=...`, `password: ...` or `Authorization: ...` have it.
fn without_named(text: &str) -> String {
    // A URL that stands in another is told with its signs as they were before.
    let text = ["%26", "%3D", "%3d"]
        .into_iter()
        .zip(["&", "=", "="])
        .fold(text.to_owned(), |text, (code, sign)| text.replace(code, sign));
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
        if !is_secret(name) {
            continue;
        }
        // Quotes, blanks and one sign that says that a value follows.
        let is_before = |letter: char| QUOTES_AND_BLANKS.contains(&letter);
        let before = behind.len() - behind.trim_start_matches(is_before).len();
        let Some(value) = behind[before..].strip_prefix(['=', ':']) else { continue };
        let gap = value.len() - value.trim_start_matches(is_before).len();
        let taken = behind.len() - value.len() + gap;
        let end = length(&behind[taken..], &value[..gap], name.to_ascii_lowercase().ends_with("authorization"));
        out += &behind[..taken];
        if end > 0 {
            out += REMOVED;
        }
        rest = &behind[taken + end..];
    }
    out
}

const QUOTES_AND_BLANKS: [char; 4] = ['"', '\'', ' ', '\\'];

/// How long a value is that stands behind quotes and blanks: a header, or what is quoted, has blanks in it.
fn length(value: &str, before: &str, is_header: bool) -> usize {
    let line = value.find(['\r', '\n']).unwrap_or(value.len());
    let quote = before.chars().last().filter(|letter| "\"'".contains(*letter));
    let is_in_text = before.ends_with("\\\"") || before.ends_with("\\'");
    let end = match quote {
        _ if is_header => None,
        Some(quote) if is_in_text => {
            let mut ends = value.match_indices(quote).map(|(at, _)| &value[..at]);
            ends.find(|text| text.ends_with('\\') && !text.ends_with("\\\\")).map(|text| text.len() - 1)
        }
        Some(quote) => unescaped(value, quote),
        None => value.find(|letter: char| "&\"',;\\ \t)".contains(letter)),
    };
    end.unwrap_or(line).min(line)
}

/// Where a quote stands that ends a text.
fn unescaped(value: &str, quote: char) -> Option<usize> {
    let mut is_escaped = false;
    value.char_indices().find_map(|(at, letter)| {
        let ends = letter == quote && !is_escaped;
        is_escaped = letter == '\\' && !is_escaped;
        ends.then_some(at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets() -> Secrets {
        let pairs = [
            ("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI"),
            ("ETCDCTL_USER", "root:etcd-pass"),
            ("OTHER_SECRET_ACCESS_KEY", "/bPxRfiCYEXAMPLE"),
            ("HOME", "/var/lib/me"),
            ("AWS_WEB_IDENTITY_TOKEN_FILE", "/var/run/token"),
            ("GOOGLE_APPLICATION_CREDENTIALS", "/etc/google.json"),
            ("API_KEY", "abc"),
            ("HTTPS_PROXY", "http://me:of/proxy@10.0.0.1:3128"),
            ("TLS_PRIVATE_KEY", "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADAN\n-----END PRIVATE KEY-----"),
            ("DB_PASSWORD", "with \"quotes\" & more"),
            ("AZURE_STORAGE_CONNECTION_STRING", "AccountName=acc;AccountKey=c3RyaW5n==;EndpointSuffix=here"),
            ("AZURE_STORAGE_SAS_TOKEN", "sv=2024&sp=rl&sig=c2lnbmVk%3D"),
        ];
        Secrets::of(&pairs.map(|(name, value)| (name.to_owned(), value.to_owned())))
    }

    #[test]
    fn a_signature_in_a_url_within_a_url_is_taken_away() {
        for text in ["to=https%3A%2F%2Fh%2Fk%3Fse%3D1%26sig%3Dq8Zx%2B1%26sp%3Dr", "x%26sig%3dq8Zx"] {
            assert!(!without_named(text).contains("q8Zx"), "{}", without_named(text));
        }
    }

    #[test]
    fn what_this_machine_keeps_secret_is_taken_away_wherever_it_stands() {
        let known = secrets();
        for text in ["key wJalrXUtnFEMI was", "etcd-pass", "http://a:etcd-pass@h", "\"wJalrXUtnFEMI\""] {
            let clean = known.cleaned(text);
            assert!(!clean.contains("wJalrXUtnFEMI") && !clean.contains("etcd-pass"), "{clean}");
        }
        let mut value =
            serde_json::json!({ "wJalrXUtnFEMI": [{ "said": "of root:etcd-pass", "token": "abc" }], "tokens": 7 });
        known.clean(&mut value);
        let clean = serde_json::json!({ REMOVED: [{ "said": "of root:[removed]", "token": REMOVED }], "tokens": 7 });
        assert_eq!(value, clean);
        for text in ["/var/lib/me abc", "/var/run/token", "/etc/google.json"] {
            assert_eq!(known.cleaned(text), text);
        }
        for text in [
            "by c3RyaW5n==",
            "by c2lnbmVk%3D",
            "by /bPxRfiCYEXAMPLE",
            "by %2FbPxRfiCYEXAMPLE",
            "by of/proxy",
            "by of%2Fproxy",
            "MIIEvQIBADAN",
            r#"with \"quotes\" & more"#,
            "with%20%22quotes%22%20%26%20more",
        ] {
            let clean = known.cleaned(text);
            assert!(clean.contains(REMOVED) && !clean.contains("proxy") && !clean.contains("quotes"), "{clean}");
            assert!(!clean.contains("EXAMPLE") && !clean.contains("c3Ry") && !clean.contains("c2ln"), "{clean}");
        }
    }

    #[test]
    fn a_private_key_is_taken_away_in_one_line_and_in_several() {
        let known = Secrets(Vec::new());
        let several = "before\n-----BEGIN RSA PRIVATE KEY-----\nPLANT\nPLANT=\n-----END RSA PRIVATE KEY-----\nafter\n";
        assert_eq!(known.cleaned(several), "before\n[removed]\nafter\n");
        let one = r#"{"private_key": "-----BEGIN PRIVATE KEY-----\nPLANT\n-----END PRIVATE KEY-----\n", "a": 1}"#;
        assert_eq!(known.cleaned(one), r#"{"private_key": "[removed]", "a": 1}"#);
        // What isn't ended is taken away to the end.
        assert_eq!(known.cleaned("-----BEGIN PRIVATE KEY-----\nPLANT\n"), "[removed]\n");
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
            (r#"said {\"password\": \"PLANT PLANT\", \"a\": 1}"#, r#"said {\"password\": \"[removed]\", \"a\": 1}"#),
            (r#"said {\"password\": \"PL\\\"ANT\"}"#, r#"said {\"password\": \"[removed]\"}"#),
            (r#"{"password": "PL\"ANT PLANT"}"#, r#"{"password": "[removed]"}"#),
            (
                "AccountName=me;AccountKey=PLANT==;EndpointSuffix=x",
                "AccountName=me;AccountKey=[removed];EndpointSuffix=x",
            ),
            (
                "https://me.blob.core.windows.net/c?sp=rl&sig=PLANT%3D&se=2030",
                "https://me.blob.core.windows.net/c?sp=rl&sig=[removed]&se=2030",
            ),
            ("the sigma of sig files", "the sigma of sig files"),
            ("http://me:PLANT@host/path", "http://host/path"),
            ("the credentials were refused: key (403)", "the credentials were refused: key (403)"),
            ("s3://bucket/key=1/größe", "s3://bucket/key=1/größe"),
        ] {
            assert_eq!(known.cleaned(text), clean);
        }
    }
}
