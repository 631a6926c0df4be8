//! Words for a remote `sh`.
//!
//! Invariant: whatever the bytes of a word are, the shell takes it as that one word.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// A word in single quotes, in which nothing but a quote means anything to `sh`.
pub fn quoted(word: &OsStr) -> Vec<u8> {
    let mut text = vec![b'\''];
    for byte in word.as_bytes() {
        match byte {
            b'\'' => text.extend(b"'\\''"),
            byte => text.push(*byte),
        }
    }
    text.push(b'\'');
    text
}

/// Words as one line of a shell.
pub fn line<S: AsRef<OsStr>>(words: &[S]) -> Vec<u8> {
    words.iter().map(|word| quoted(word.as_ref())).collect::<Vec<_>>().join(&b' ')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;
    use std::process::Command;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_shell_gives_each_word_back_as_it_was(words in proptest::collection::vec(proptest::collection::vec(1_u8..=255, 0..20), 1..5)) {
            let words: Vec<OsString> = words.into_iter().map(OsString::from_vec).collect();
            let script = [b"printf '%s\\0' ".as_slice(), &line(&words)].concat();
            let said = Command::new("sh").arg("-c").arg(OsString::from_vec(script)).output().expect("a shell");
            let mut expected = words.iter().flat_map(|word| [word.as_bytes(), b"\0"].concat()).collect::<Vec<u8>>();
            prop_assert_eq!(said.stdout, std::mem::take(&mut expected));
        }
    }
}
