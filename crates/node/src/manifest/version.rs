//! Versions in sixteen bytes: the etags that stores really give are digits in a fixed dress.
//!
//! Doesn't judge what a version means. Invariant: what was packed unpacks to the same text, byte for byte;
//! a text that would not is refused and kept as it is.

use std::fmt::Write;

/// Kept elsewhere: eight bytes of offset and four of length in the text of the snapshot.
pub const TEXT: u8 = 0;
/// Up to sixteen bytes as they are; `extra` is the length.
const SHORT: u8 = 1;
/// `"d41d8cd98f00b204e9800998ecf8427e"`: an MD5, as S3 gives it; `extra` is N of `-N`, the parts of an upload.
const HASH_QUOTED: u8 = 2;
/// The same without quotes.
const HASH: u8 = 3;
/// `"0x8DC582B7D2F3A1C"`: a time in hexadecimal, as Azure gives it.
const TIME_QUOTED: u8 = 4;
/// The same without quotes.
const TIME: u8 = 5;

/// A version as an entry holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packed {
    pub form: u8,
    pub extra: u16,
    pub bytes: [u8; 16],
}

impl Packed {
    /// Nothing: the version of a folder.
    pub const NONE: Packed = Packed { form: SHORT, extra: 0, bytes: [0; 16] };

    /// A version that is kept in the text of the snapshot.
    pub fn text(offset: u64, length: u32) -> Packed {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&offset.to_le_bytes());
        bytes[8..12].copy_from_slice(&length.to_le_bytes());
        Packed { form: TEXT, extra: 0, bytes }
    }

    /// Offset and length of a version kept in the text, if it is one.
    pub fn place(&self) -> Option<(u64, u32)> {
        let [o0, o1, o2, o3, o4, o5, o6, o7, l0, l1, l2, l3, ..] = self.bytes;
        let (offset, length) = ([o0, o1, o2, o3, o4, o5, o6, o7], [l0, l1, l2, l3]);
        (self.form == TEXT).then(|| (u64::from_le_bytes(offset), u32::from_le_bytes(length)))
    }

    /// The version in sixteen bytes, if it fits.
    pub fn pack(text: &str) -> Option<Packed> {
        let packed = short(text).or_else(|| hash(text)).or_else(|| time(text))?;
        (packed.unpack().as_deref() == Some(text)).then_some(packed)
    }

    /// The text that was packed; `None` for one kept elsewhere and for bytes that no text packs to.
    pub fn unpack(&self) -> Option<String> {
        let mut out = String::with_capacity(48);
        match self.form {
            SHORT => {
                let bytes = self.bytes.get(..usize::from(self.extra))?;
                out.push_str(std::str::from_utf8(bytes).ok()?);
            }
            HASH | HASH_QUOTED => {
                write!(out, "{:032x}", u128::from_be_bytes(self.bytes)).ok()?;
                if self.extra > 0 {
                    write!(out, "-{}", self.extra).ok()?;
                }
            }
            TIME | TIME_QUOTED => write!(out, "0x{:X}", u128::from_be_bytes(self.bytes)).ok()?,
            _ => return None,
        }
        Some(if matches!(self.form, HASH_QUOTED | TIME_QUOTED) { format!("\"{out}\"") } else { out })
    }
}

fn short(text: &str) -> Option<Packed> {
    let mut bytes = [0; 16];
    bytes.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
    Some(Packed { form: SHORT, extra: u16::try_from(text.len()).ok()?, bytes })
}

fn hash(text: &str) -> Option<Packed> {
    let (inner, form) = undress(text, HASH, HASH_QUOTED);
    let (digits, extra) = match inner.split_once('-') {
        Some((digits, uploads)) => (digits, uploads.parse().ok()?),
        None => (inner, 0),
    };
    let value = u128::from_str_radix(digits, 16).ok()?;
    Some(Packed { form, extra, bytes: value.to_be_bytes() })
}

fn time(text: &str) -> Option<Packed> {
    let (inner, form) = undress(text, TIME, TIME_QUOTED);
    let value = u128::from_str_radix(inner.strip_prefix("0x")?, 16).ok()?;
    Some(Packed { form, extra: 0, bytes: value.to_be_bytes() })
}

/// The text without quotes, and which of the two forms it is.
fn undress(text: &str, bare: u8, quoted: u8) -> (&str, u8) {
    match text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
        Some(inner) => (inner, quoted),
        None => (text, bare),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_etags_of_the_stores_fit() {
        for text in [
            "",
            "v1",
            "1712345678901234",
            "d41d8cd98f00b204e9800998ecf8427e",
            "\"d41d8cd98f00b204e9800998ecf8427e\"",
            "\"9b2cf535f27731c974343645a3985328-10000\"",
            "\"0x8DC582B7D2F3A1C\"",
            "0x8DC582B7D2F3A1C",
        ] {
            assert_eq!(Packed::pack(text).and_then(|packed| packed.unpack()).as_deref(), Some(text));
        }
    }

    #[test]
    fn what_would_not_come_back_is_refused() {
        for text in [
            "\"D41D8CD98F00B204E9800998ECF8427E\"",
            "\"9b2cf535f27731c974343645a3985328-007\"",
            "\"9b2cf535f27731c974343645a3985328-0\"",
            "+41d8cd98f00b204e9800998ecf8427e",
            "\"0x08DC582B7D2F3A1C\"",
            "W/\"d41d8cd98f00b204e9800998ecf8427e\"",
            "1712345678.123456789-42",
        ] {
            assert_eq!(Packed::pack(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn packing_never_changes_a_text(text in "\"?(0x)?[0-9a-fA-F+]{0,34}(-[0-9]{1,6})?\"?") {
            if let Some(packed) = Packed::pack(&text) {
                prop_assert_eq!(packed.unpack(), Some(text));
            }
        }
    }
}
