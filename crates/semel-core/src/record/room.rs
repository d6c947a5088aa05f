//! Where a record's bytes lie.

use bytes::Bytes;

/// Bytes and their count of users in one allocation. `Bytes` made from a vector take a second one when they are first
/// cloned, and what a record carries always is: by the store.
struct Room<const N: usize>([u8; N]);

impl<const N: usize> AsRef<[u8]> for Room<N> {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

fn room<const N: usize>(len: usize, write: impl FnOnce(&mut [u8])) -> Bytes {
    let mut room = Room([0; N]);
    write(&mut room.0[..len]);
    let mut bytes = Bytes::from_owner(room);
    bytes.truncate(len);
    bytes
}

/// `len` bytes as `write` fills them, in the smallest room that takes them. Cost: one allocation up to 504 bytes, at most
/// 40 bytes (above 248: 72) more than asked for; above that two, of the exact size. With the count of users, 8 bytes, the
/// rooms have the sizes that allocators hand out.
pub(super) fn written(len: usize, write: impl FnOnce(&mut [u8])) -> Bytes {
    match len {
        0..=56 => room::<56>(len, write),
        57..=88 => room::<88>(len, write),
        89..=120 => room::<120>(len, write),
        121..=152 => room::<152>(len, write),
        153..=184 => room::<184>(len, write),
        185..=216 => room::<216>(len, write),
        217..=248 => room::<248>(len, write),
        249..=312 => room::<312>(len, write),
        313..=376 => room::<376>(len, write),
        377..=440 => room::<440>(len, write),
        441..=504 => room::<504>(len, write),
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
