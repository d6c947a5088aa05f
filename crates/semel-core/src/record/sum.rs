//! A sum over what is stored: an outcome that was cut short or damaged since is not given out as the answer.
//!
//! It guards against accidents, not against people who can write into the store. It is XXH3 with 64 bits, which the embedded
//! store's journal has too: a change goes unseen once in 2⁶⁴.

use xxhash_rust::xxh3::xxh3_64;

/// How long it is.
pub(super) const LEN: usize = 8;

/// The sum of these bytes, big endian as all numbers of a record.
pub(super) fn sum(bytes: &[u8]) -> [u8; LEN] {
    xxh3_64(bytes).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_known_bytes_stays_what_it_is() {
        let bytes: Vec<u8> = (0..=255).collect();
        let sums = [0, 1, 8, 31, 32, 33, 255].map(|len| u64::from_be_bytes(sum(&bytes[..len])));
        assert_eq!(sums, KNOWN, "records that were written before could not be read: {sums:#x?}");
    }

    const KNOWN: [u64; 7] = [
        0x2d06_8005_38d3_94c2,
        0xc44b_dff4_074e_ecdb,
        0x3a1c_2d7c_85af_88f8,
        0x4f36_db8e_4df3_78fd,
        0x3523_581f_e96e_4c05,
        0xe68c_56ba_8899_1e58,
        0xb85f_d37a_0a05_0e63,
    ];

    #[test]
    fn every_cut_and_every_changed_byte_changes_it() {
        for len in [1, 7, 8, 9, 31, 32, 33, 64, 100] {
            let bytes = vec![0; len];
            let whole = sum(&bytes);
            for cut in 0..len {
                assert_ne!(sum(&bytes[..cut]), whole, "{len} cut to {cut}");
            }
            for at in 0..len {
                let mut other = bytes.clone();
                other[at] = 1;
                assert_ne!(sum(&other), whole, "{at} of {len}");
            }
        }
    }
}
