//! Where a record's bytes lie.

use bytes::Bytes;

/// Bytes and their count of users in one allocation. `Bytes` made from a vector take a second one when they are first
/// cloned, and what a record carries always is: by the store.
struct Room<const N: usize> {
    len: usize,
    bytes: [u8; N],
}

impl<const N: usize> AsRef<[u8]> for Room<N> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

fn room<const N: usize>(len: usize, write: impl FnOnce(&mut [u8])) -> Bytes {
    let mut room = Room { len, bytes: [0; N] };
    write(&mut room.bytes[..len]);
    Bytes::from_owner(room)
}

/// `len` bytes as `write` fills them, in the smallest room that takes them. Cost: one allocation up to 512 bytes, at most
/// 64 bytes (above 256: 128) more than asked for; above that two, of the exact size.
pub(super) fn written(len: usize, write: impl FnOnce(&mut [u8])) -> Bytes {
    match len {
        0..=64 => room::<64>(len, write),
        65..=128 => room::<128>(len, write),
        129..=192 => room::<192>(len, write),
        193..=256 => room::<256>(len, write),
        257..=384 => room::<384>(len, write),
        385..=512 => room::<512>(len, write),
        _ => {
            let mut bytes = vec![0; len];
            write(&mut bytes);
            Bytes::from(bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_comes_back_as_it_was_written() {
        for len in 0..1_100 {
            let bytes = written(len, |out| {
                for (i, byte) in (0..=255).cycle().zip(out) {
                    *byte = i;
                }
            });
            assert!(bytes.len() == len && (0..=255).cycle().zip(&bytes).all(|(i, byte)| i == *byte), "{len}");
            assert_eq!(bytes.clone(), bytes.slice(..));
        }
    }
}
