//! Sixty-four shares of all digests, in their order.
//!
//! A hash table doubles. Were all shares as wide as each other, all their tables would double at about the same number of
//! records, and just after it take twice the memory. So the last share is twice as wide as the first, with all widths in
//! between: the tables double one after the other, and together take about the same for each record at any time.

use crate::disk::Digest;

/// How many shares there are.
pub(crate) const SHARES: usize = 64;

/// One more than the largest first two bytes.
const ALL: u32 = 1 << 16;

/// The share of a digest or of its first half, by the first two bytes.
pub(crate) fn share_of<const N: usize>(digest: &[u8; N]) -> usize {
    const { assert!(N >= 2) };
    share_at(u32::from(u16::from_be_bytes([digest[0], digest[1]])))
}

/// `SHARES · x (4 − x) / 3` with `x` from 0 to 1: its slope falls from 4/3 to 2/3.
#[expect(clippy::cast_possible_truncation, reason = "the quotient is below SHARES")]
const fn share_at(first_two: u32) -> usize {
    let x = first_two as u64;
    (x * (4 * ALL as u64 - x) * SHARES as u64 / (3 * (ALL as u64).pow(2))) as usize
}

/// The least digest of a share; `None` behind the last one.
pub(crate) fn first_of(share: usize) -> Option<Digest> {
    let mut digest = [0; 32];
    digest[..2].copy_from_slice(&u16::try_from(begin(share)).ok()?.to_be_bytes());
    Some(digest)
}

/// How much of `whole` is a share's by its width.
pub(crate) fn part_of(whole: usize, share: usize) -> usize {
    let width = begin(share + 1) - begin(share);
    let part = whole as u128 * u128::from(width) / u128::from(ALL);
    usize::try_from(part).unwrap_or(whole)
}

/// The least first two bytes of a share.
fn begin(share: usize) -> u32 {
    let (mut low, mut high) = (0, ALL);
    while low < high {
        let middle = u32::midpoint(low, high);
        if share_at(middle) < share { low = middle + 1 } else { high = middle }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_follow_each_other_without_a_gap_and_the_last_is_twice_as_wide_as_the_first() {
        let shares: Vec<_> = (0..ALL).map(share_at).collect();
        assert!(shares.is_sorted() && shares[0] == 0 && shares.last() == Some(&(SHARES - 1)));
        let mut widths = [0_u32; SHARES];
        shares.iter().for_each(|share| widths[*share] += 1);
        for (share, width) in widths.iter().enumerate() {
            assert_eq!(share_of(&first_of(share).unwrap()), share);
            assert_eq!(*width, begin(share + 1) - begin(share), "{share}");
        }
        assert_eq!(first_of(SHARES), None);
        let ratio = f64::from(widths[SHARES - 1]) / f64::from(widths[0]);
        assert!((1.9..2.1).contains(&ratio), "{ratio}");
        assert!(widths.windows(2).all(|w| w[0] <= w[1] + 1));
    }

    #[test]
    fn parts_make_up_the_whole_but_for_what_cannot_be_divided() {
        let whole = 64 << 20;
        let parts: usize = (0..SHARES).map(|share| part_of(whole, share)).sum();
        assert!(parts <= whole && parts > whole - SHARES);
    }

    /// What all tables of the shares take for each record, each full to seven eighths when it doubles.
    #[test]
    fn no_number_of_records_makes_the_tables_take_much_more_than_any_other() {
        let places = |records: f64| {
            let of_share = |share| {
                let records = records * f64::from(begin(share + 1) - begin(share)) / f64::from(ALL);
                2_f64.powf((records * 8.0 / 7.0).log2().ceil())
            };
            (0..SHARES).map(of_share).sum::<f64>() / records
        };
        let each = (0..100).map(|step| places(20_000.0 * 2_f64.powf(f64::from(step) / 100.0)));
        let (least, most) = each.fold((f64::MAX, f64::MIN), |(l, m), e| (l.min(e), m.max(e)));
        assert!(least > 1.5 && most < 1.8, "{least} to {most}");
    }
}
