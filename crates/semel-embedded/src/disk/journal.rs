//! The journal's end after a crash, looked at before fjall reads it.
//!
//! fjall drops a last batch that is cut short, but refuses one whose pages came to the disk in another order than they
//! were written: a batch with a hole in it and a good end. That is what a power cut leaves of batches that nobody synced,
//! so we cut them off; and only them. A hole before a batch that was synced is damage, and is refused.
//!
//! How fjall 3 writes a batch (integers little endian, key and value as they are):
//!
//! ```text
//! start  1: 1, items: u32, sequence: u64
//! item   1: 2, kind: u8, compression: u8, table: u64, key length: u16, value length: u32, stored length: u32, key, value
//! clear  1: 4, table: u64
//! end    1: 3, xxh3 of all items as stored: u64, 4: "FJL" 3
//! ```

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek},
    path::{Path, PathBuf},
};

use rustix::fs::{SeekFrom, seek};
use xxhash_rust::xxh3::xxh3_64;

use super::{Mark, tables::MARK};
use crate::OpenError;

const TRAILER: [u8; 4] = *b"FJL\x03";

/// What one whole batch says.
struct Batch {
    /// The byte after it.
    end: usize,
    mark: Option<Mark>,
}

/// Cuts a torn end off the newest journal of the tables at `path`.
pub(super) fn cut_torn_end(path: &Path) -> Result<(), OpenError> {
    // There is one from the first moment on, and fjall would begin another without a word.
    let Some(journal) = newest(path)? else {
        return Err(OpenError::Damaged { path: path.to_owned(), why: "its journal (*.jnl) is missing".to_owned() });
    };
    let bytes = read_data(&journal).map_err(OpenError::io("reading", &journal))?;
    let bytes = without_zeros(&bytes);
    match good_len(bytes) {
        Ok(len) if bytes[len..].iter().all(|b| *b == 0) => Ok(()),
        Ok(len) => {
            tracing::warn!(path = %journal.display(), kept = len, "cutting a torn batch off the end of the journal");
            let cut = |file: File| file.set_len(len as u64).and_then(|()| file.sync_all());
            OpenOptions::new().write(true).open(&journal).and_then(cut).map_err(OpenError::io("cutting", journal))
        }
        Err(at) => {
            let why = format!("byte {at} is in no whole batch, yet synced batches follow it");
            Err(OpenError::Damaged { path: journal, why })
        }
    }
}

fn newest(path: &Path) -> Result<Option<PathBuf>, OpenError> {
    let mut newest: Option<(u64, PathBuf)> = None;
    for entry in fs::read_dir(path).map_err(OpenError::io("reading", path))? {
        let entry = entry.map_err(OpenError::io("reading", path))?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|n| n.strip_suffix(".jnl")).and_then(|n| n.parse().ok());
        if let Some(number) = number
            && newest.as_ref().is_none_or(|(n, _)| *n < number)
        {
            newest = Some((number, entry.path()));
        }
    }
    Ok(newest.map(|(_, path)| path))
}

/// The file up to its last hole: a journal is made longer than it is, 64 MiB, and need not be read as zeros.
fn read_data(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let mut end = 0;
    while let Ok(data) = seek(&file, SeekFrom::Data(end)) {
        end = seek(&file, SeekFrom::Hole(data))?;
    }
    file.rewind()?;
    let mut bytes = Vec::new();
    file.take(end).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Without the zeros at the end, down to a page of them at most.
fn without_zeros(mut bytes: &[u8]) -> &[u8] {
    const ZEROS: &[u8; 4096] = &[0; 4096];
    while let Some((head, ZEROS)) = bytes.split_last_chunk() {
        bytes = head;
    }
    bytes
}

/// How many bytes from the start are whole batches; an error is where the first damage is, when something behind it
/// cannot be given up.
fn good_len(bytes: &[u8]) -> Result<usize, usize> {
    let mut at = 0;
    let mut last = None;
    while let Some(batch) = batch_at(bytes, at) {
        at = batch.end;
        last = batch.mark.map(|m| m.batch).or(last);
    }
    let mut look = at;
    while let Some(found) = bytes[look..].iter().position(|b| *b == 1) {
        look += found;
        if let Some(batch) = batch_at(bytes, look) {
            // What was never synced may be given up. Batches that do not say so are fjall's own. With nothing whole
            // before the hole, the one right before this batch stands for what is lost.
            if batch.mark.is_none_or(|m| m.synced > last.unwrap_or(m.batch.saturating_sub(2))) {
                return Err(at);
            }
            look = batch.end;
        } else {
            look += 1;
        }
    }
    Ok(at)
}

fn batch_at(bytes: &[u8], at: usize) -> Option<Batch> {
    let mut rest = bytes.get(at..)?;
    if take::<1>(&mut rest)? != [1] {
        return None;
    }
    let items = u32::from_le_bytes(take(&mut rest)?);
    take::<8>(&mut rest)?;
    let body = rest;
    let mut mark = None;
    for _ in 0..items {
        match take::<1>(&mut rest)? {
            [2] => {
                take::<10>(&mut rest)?;
                let key_len = usize::from(u16::from_le_bytes(take(&mut rest)?));
                let value_len = u32::from_le_bytes(take(&mut rest)?);
                let stored_len = u32::from_le_bytes(take(&mut rest)?);
                // We store nothing compressed; fjall asserts this equality.
                if value_len != stored_len {
                    return None;
                }
                let (key, tail) = rest.split_at_checked(key_len)?;
                let (value, tail) = tail.split_at_checked(usize::try_from(stored_len).ok()?)?;
                rest = tail;
                if key == MARK {
                    mark = Mark::decode(value).or(mark);
                }
            }
            [4] => {
                take::<8>(&mut rest)?;
            }
            _ => return None,
        }
    }
    let sum = xxh3_64(&body[..body.len() - rest.len()]);
    let whole = take::<1>(&mut rest)? == [3] && take(&mut rest)? == sum.to_le_bytes() && take(&mut rest)? == TRAILER;
    whole.then(|| Batch { end: bytes.len() - rest.len(), mark })
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk()?;
    *rest = tail;
    Some(*head)
}

#[cfg(test)]
mod tests {
    use semel_core::StoreTime;

    use super::*;

    fn batch(number: u64, synced: u64) -> Vec<u8> {
        let mark = Mark { time: StoreTime::from_micros(1), records: 0, batch: number, synced };
        let mut items = Vec::new();
        for (key, value) in [(&b"some key"[..], &b"some value"[..]), (MARK, &mark.encode()[..])] {
            items.push(2);
            items.extend([0; 10]);
            items.extend(u16::try_from(key.len()).unwrap().to_le_bytes());
            items.extend(u32::try_from(value.len()).unwrap().to_le_bytes());
            items.extend(u32::try_from(value.len()).unwrap().to_le_bytes());
            items.extend(key);
            items.extend(value);
        }
        let mut out = vec![1];
        out.extend(2_u32.to_le_bytes());
        out.extend(number.to_le_bytes());
        out.extend(&items);
        out.push(3);
        out.extend(xxh3_64(&items).to_le_bytes());
        out.extend(TRAILER);
        out
    }

    #[test]
    fn whole_batches_before_zeros_are_all_kept() {
        let bytes = [batch(1, 0), batch(2, 1), vec![0; 100]].concat();
        assert_eq!(good_len(&bytes), Ok(bytes.len() - 100));
        assert_eq!(good_len(&[]), Ok(0));
    }

    #[test]
    fn a_last_batch_damaged_anywhere_is_cut_off() {
        let first = batch(1, 0);
        let bytes = [first.clone(), batch(2, 1)].concat();
        for at in first.len()..bytes.len() {
            assert_eq!(good_len(&bytes[..at]), Ok(first.len()), "cut at {at}");
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x40;
            // The sequence number stands outside the checksum, as fjall writes it.
            let in_sequence = (first.len() + 5..first.len() + 13).contains(&at);
            let in_item_without_meaning = good_len(&flipped) == Ok(bytes.len());
            assert_eq!(in_sequence, in_item_without_meaning, "flipped at {at}");
        }
    }

    #[test]
    fn a_hole_before_batches_that_nobody_synced_is_cut_off_with_them() {
        let mut bytes = [batch(1, 0), batch(2, 1), batch(3, 1)].concat();
        let len = batch(1, 0).len();
        bytes[len + 30] ^= 1;
        assert_eq!(good_len(&bytes), Ok(len));
    }

    #[test]
    fn a_hole_before_a_synced_batch_is_damage() {
        let mut bytes = [batch(1, 0), batch(2, 1), batch(3, 2)].concat();
        let len = batch(1, 0).len();
        bytes[len + 30] ^= 1;
        assert_eq!(good_len(&bytes), Err(len));
    }
}
