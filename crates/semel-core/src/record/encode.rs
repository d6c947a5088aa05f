//! The record's bytes, the same in every store that keeps bytes:
//!
//! ```text
//!  0  4  magic "SML" and the format version (1)
//!  4  1  state: 0 free, 1 in flight, 2 done, 3 unknown, 4 parked
//!  5  1  flags: 1 issued, 2 takeover, 4 body kept, 8 watched, 16 adopted
//!  6  1  fingerprint: algorithm (0: none)
//!  7  1  zero
//!  8 16  owner
//! 24  8  fence, µs                    \
//! 32  8  lease_until, µs               | big endian
//! 40  8  expires_at, µs                |
//! 48  4  attempt                      /
//! 52 32  fingerprint: digest
//! 84  …  rest (see `rest.rs`; the fingerprint's parameters are there)
//! ```

use bytes::Bytes;

use super::{Flags, Record, Rest, StateCode, VERSION};
use crate::{
    fingerprint::{Fingerprint, Version},
    ids::{Fence, Owner, StoreTime},
};

/// Length of the header before `rest`.
pub const HEADER_LEN: usize = 84;

/// The first three bytes of every record; the fourth is the version.
pub const MAGIC: [u8; 3] = *b"SML";

impl Record {
    /// The record's bytes: header, then `rest`.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_LEN + self.rest.len());
        self.encode_into(&mut out);
        out
    }

    /// Adds the bytes of [`encode`](Self::encode) to `out`, without an allocation of their own.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&MAGIC);
        out.push(self.version);
        out.push(self.state as u8);
        out.push(self.flags.byte());
        out.push(self.fingerprint.version().algorithm);
        out.push(0);
        out.extend_from_slice(self.owner.as_bytes());
        out.extend_from_slice(&self.fence.map_or(0, Fence::get).to_be_bytes());
        out.extend_from_slice(&self.lease_until.as_micros().to_be_bytes());
        out.extend_from_slice(&self.expires_at.as_micros().to_be_bytes());
        out.extend_from_slice(&self.attempt.to_be_bytes());
        out.extend_from_slice(self.fingerprint.digest());
        out.extend_from_slice(&self.rest);
    }

    /// A record from its bytes; `rest` shares them. Bytes that are no record of this version become a record with
    /// nothing but that version, zero where even the magic is missing: it reads as in flight, never as absent.
    #[must_use]
    pub fn decode(bytes: &Bytes) -> Self {
        Self::decode_known(bytes).unwrap_or_else(|| Self::unreadable(bytes))
    }

    fn decode_known(bytes: &Bytes) -> Option<Self> {
        let header: &[u8; HEADER_LEN] = bytes.first_chunk()?;
        if header[..3] != MAGIC || header[3] != VERSION {
            return None;
        }
        let rest = bytes.slice(HEADER_LEN..);
        let parameters = Rest::parameters_of(&rest);
        Some(Self {
            version: VERSION,
            state: StateCode::from_byte(header[4])?,
            flags: Flags::from_byte(header[5]),
            fingerprint: Fingerprint::stored(Version { algorithm: header[6], parameters }, array(header, 52)),
            owner: Owner::from_bytes(array(header, 8)),
            fence: Fence::new(u64::from_be_bytes(array(header, 24))),
            lease_until: StoreTime::from_micros(i64::from_be_bytes(array(header, 32))),
            expires_at: StoreTime::from_micros(i64::from_be_bytes(array(header, 40))),
            attempt: u32::from_be_bytes(array(header, 48)),
            rest,
        })
    }

    fn unreadable(bytes: &Bytes) -> Self {
        let version = match bytes.first_chunk::<4>() {
            Some([m @ .., version]) if *m == MAGIC && *version != VERSION => *version,
            _ => 0,
        };
        Self {
            version,
            state: StateCode::InFlight,
            flags: Flags::NONE,
            fingerprint: Fingerprint::NONE,
            owner: Owner::from_bytes([0; 16]),
            fence: None,
            attempt: 0,
            lease_until: StoreTime::MAX,
            expires_at: StoreTime::MAX,
            rest: bytes.clone(),
        }
    }
}

fn array<const N: usize>(from: &[u8; HEADER_LEN], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&from[at..at + N]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            version: VERSION,
            state: StateCode::Done,
            flags: Flags::BODY_KEPT.with(Flags::TAKEOVER),
            fingerprint: Fingerprint::stored(Version { algorithm: 1, parameters: 0 }, [7; 32]),
            owner: Owner::from_bytes([9; 16]),
            fence: Fence::new(42),
            attempt: 3,
            lease_until: StoreTime::from_micros(11),
            expires_at: StoreTime::from_micros(12),
            rest: Bytes::new(),
        }
    }

    #[test]
    fn a_record_survives_its_bytes() {
        let bytes = Bytes::from(record().encode());
        assert_eq!(bytes.len(), HEADER_LEN);
        let back = Record::decode(&bytes);
        assert_eq!(back.encode(), record().encode());
        assert!(back.is_readable() && back.fingerprint.same(&record().fingerprint));
    }

    #[test]
    fn what_cannot_be_read_is_in_flight_for_good() {
        let good = record().encode();
        for cut in 0..HEADER_LEN {
            let torn = Record::decode(&Bytes::from(good[..cut].to_vec()));
            assert!(!torn.is_readable() && torn.is_here(StoreTime::from_micros(i64::MAX - 1)), "{cut}");
        }
        let mut newer = good.clone();
        newer[3] = 2;
        assert_eq!(Record::decode(&Bytes::from(newer)).version, 2);
        let mut odd = good;
        odd[4] = 200;
        assert!(!Record::decode(&Bytes::from(odd)).is_readable());
    }
}
