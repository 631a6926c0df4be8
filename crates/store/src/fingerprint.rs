//! What tells secrets apart and gives none away: part of the name of a principal, which is kept on disk, sent to members of a
//! cluster and shown to people.
//!
//! Invariant: it is the same on all machines.

use sha2::{Digest, Sha256};
use std::fmt::Write;

/// Bytes of it: as many as nobody finds a second secret for.
const BYTES: usize = 16;

/// That of a secret, which is of a kind: the same text as another kind of secret has another one.
pub fn of(kind: &str, secret: impl AsRef<[u8]>) -> String {
    let hash = Sha256::new_with_prefix("stoker principal\0").chain_update(kind).chain_update("\0").chain_update(secret);
    hash.finalize().iter().take(BYTES).fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_told_apart_by_their_kind_too_and_alike_on_all_machines() {
        // printf 'stoker principal\0key\0a2V5' | sha256sum | cut -c -32
        assert_eq!(of("key", "a2V5"), "c47c9726bfb5c547e79359c2cedd1818");
        assert_ne!(of("key", "a"), of("token", "a"));
        assert_ne!(of("key", "a"), of("key", "b"));
        // Kinds hold no zero, so that no two pairs are one text.
        assert_ne!(of("key", "a"), of("ke", "ya"));
    }
}
