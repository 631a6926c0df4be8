//! The head of NumPy's format of one array, version 1.
//!
//! Invariant: the array begins at a multiple of 64 bytes, as the format asks for.

const START: &[u8] = b"\x93NUMPY\x01\x00";
/// Of an array of bytes, however many of them.
pub const HEAD_BYTES: u64 = 128;

/// The head of an array of so many elements of a kind, in a shape as Python writes it.
pub fn head(kind: &str, shape: &str) -> Vec<u8> {
    let fields = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}");
    // The last byte before the array is a newline.
    let padded = (START.len() + 2 + fields.len() + 1).next_multiple_of(64);
    let length = u16::try_from(padded - START.len() - 2).expect("a head is about a hundred bytes");
    let mut head = START.to_vec();
    head.extend_from_slice(&length.to_le_bytes());
    head.extend_from_slice(fields.as_bytes());
    head.resize(padded - 1, b' ');
    head.push(b'\n');
    head
}

/// The head of an array of bytes in a file of so many.
pub fn bytes_head(file: u64) -> Vec<u8> {
    head("|u1", &format!("({},)", file - HEAD_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_of_bytes_has_one_length() {
        for file in [HEAD_BYTES + 1, 100_000, 1 << 50] {
            assert_eq!(bytes_head(file).len() as u64, HEAD_BYTES, "{file}");
        }
    }
}
