//! A row of `semel_record` and the record it is.

use bytes::Bytes;
use semel_core::{
    identity::{Identity, Kind, Namespace},
    record::{HEADER_LEN, MAGIC, Record, Rest},
};

/// The columns that a store compares or carries, as they come from the database.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Columns {
    pub(crate) v: i16,
    pub(crate) state: i16,
    pub(crate) flags: i16,
    pub(crate) fp_v: i16,
    /// `None` while free.
    pub(crate) fp: Option<Vec<u8>>,
    pub(crate) owner: Vec<u8>,
    /// 0 where nothing was ever granted.
    pub(crate) fence: i64,
    pub(crate) attempt: i32,
    pub(crate) lease_until: i64,
    pub(crate) expires_at: i64,
    pub(crate) rest: Vec<u8>,
}

impl Columns {
    /// The record. It goes through the bytes that other stores keep, so that what cannot be read is told in one place:
    /// a version, state or column that this program does not know makes a record in flight, never an absent one.
    pub(crate) fn record(&self) -> Record {
        let mut bytes = Vec::with_capacity(HEADER_LEN + self.rest.len());
        let byte = |n: i16| u8::try_from(n).ok();
        let fits = match (byte(self.state), byte(self.flags), byte(self.fp_v), self.owner.len()) {
            (Some(state), Some(flags), Some(fp_v), 16) => Some((state, flags, fp_v)),
            _ => None,
        };
        let Some((state, flags, fp_v)) = fits else {
            // Not the magic: whatever version it is, nothing of it can be read.
            bytes.extend_from_slice(&[0; HEADER_LEN]);
            bytes.extend_from_slice(&self.rest);
            return Record::decode(&Bytes::from(bytes));
        };
        bytes.extend_from_slice(&MAGIC);
        bytes.push(byte(self.v).unwrap_or(0));
        bytes.extend_from_slice(&[state, flags, fp_v, 0]);
        bytes.extend_from_slice(&self.owner);
        bytes.extend_from_slice(&u64::try_from(self.fence).unwrap_or(0).to_be_bytes());
        bytes.extend_from_slice(&self.lease_until.to_be_bytes());
        bytes.extend_from_slice(&self.expires_at.to_be_bytes());
        bytes.extend_from_slice(&u32::try_from(self.attempt).unwrap_or(0).to_be_bytes());
        match self.fp.as_deref() {
            Some(fp) if fp.len() == 32 => bytes.extend_from_slice(fp),
            _ => bytes.extend_from_slice(&[0; 32]),
        }
        bytes.extend_from_slice(&self.rest);
        Record::decode(&Bytes::from(bytes))
    }

    /// The columns of a record's bytes, readable or not.
    #[cfg(feature = "testing")]
    pub(crate) fn of(bytes: &Bytes) -> Self {
        let record = Record::decode(bytes);
        let header = bytes.first_chunk::<HEADER_LEN>();
        let magic = bytes.starts_with(&MAGIC);
        Self {
            v: i16::from(bytes.get(3).copied().filter(|_| magic).unwrap_or(0)),
            state: header.map_or(i16::from(record.state as u8), |h| i16::from(h[4])),
            flags: i16::from(record.flags.byte()),
            fp_v: i16::from(record.fingerprint.version().algorithm),
            fp: Some(record.fingerprint.digest().to_vec()),
            owner: record.owner.as_bytes().to_vec(),
            fence: record.fence.map_or(0, |f| i64::try_from(f.get()).unwrap_or(i64::MAX)),
            attempt: i32::try_from(record.attempt).unwrap_or(i32::MAX),
            lease_until: record.lease_until.as_micros(),
            expires_at: record.expires_at.as_micros(),
            rest: record.rest.to_vec(),
        }
    }
}

/// The identity of a row: `namespace` and `kind` are columns, for lists and for people.
pub(crate) fn identity(id: &[u8], namespace: &str, kind: &str) -> Option<Identity> {
    let digest: [u8; 32] = id.try_into().ok()?;
    let kind = match kind.as_bytes() {
        [letter] => Kind::from_letter(*letter)?,
        _ => return None,
    };
    Some(Identity::stored(digest, Namespace::stored(namespace), kind))
}

/// The rule in `rest`, for the column that people and lists look at; empty where `rest` cannot be read.
pub(crate) fn rule(rest: &Bytes) -> String {
    // PostgreSQL takes no zero byte in a text.
    Rest::read(rest).map(|rest| rest.meta.rule.replace('\0', "")).unwrap_or_default()
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use semel_core::{
        Fence, Owner, StoreTime,
        fingerprint::{Fingerprint, Version},
        record::{Flags, Meta, StateCode},
    };

    use super::*;

    fn meta() -> Meta<'static> {
        Meta {
            kind: Kind::Key,
            parameters: 7,
            max_attempts: 10,
            namespace: "http:orders",
            rule: "submit",
            key: "4711",
            credentials: None,
            request: None,
        }
    }

    fn bytes() -> Bytes {
        let record = Record {
            version: 1,
            state: StateCode::Unknown,
            flags: Flags::ISSUED,
            fingerprint: Fingerprint::stored(Version { algorithm: 3, parameters: 7 }, [9; 32]),
            owner: Owner::from_bytes([5; 16]),
            fence: Fence::new(77),
            attempt: 4,
            lease_until: StoreTime::from_micros(-1),
            expires_at: StoreTime::from_micros(1 << 50),
            rest: meta().rest(),
        };
        Bytes::from(record.encode())
    }

    #[test]
    fn a_record_comes_back_from_its_columns() {
        assert_eq!(Bytes::from(Columns::of(&bytes()).record().encode()), bytes());
    }

    #[test]
    fn what_cannot_be_read_is_in_flight_and_never_ends() {
        let good = Columns::of(&bytes());
        let odd = [
            Columns { v: 2, ..good.clone() },
            Columns { v: -1, ..good.clone() },
            Columns { v: 300, ..good.clone() },
            Columns { state: 9, ..good.clone() },
            Columns { state: -1, ..good.clone() },
            Columns { flags: 256, ..good.clone() },
            Columns { fp_v: -3, ..good.clone() },
            Columns { owner: vec![1; 15], ..good.clone() },
        ];
        for columns in odd {
            let record = columns.record();
            assert!(!record.is_readable() && record.is_here(StoreTime::from_micros(1 << 60)), "{columns:?}");
            assert_eq!(record.state, StateCode::InFlight);
        }
        assert_eq!(Columns { v: 2, ..good }.record().version, 2);
    }

    #[test]
    fn a_row_says_whose_it_is() {
        let id = identity(&[1; 32], "http:orders", "k").unwrap();
        assert_eq!((id.namespace().as_str(), id.kind(), *id.digest()), ("http:orders", Kind::Key, [1; 32]));
        assert!(identity(&[1; 31], "http:orders", "k").is_none() && identity(&[1; 32], "http:orders", "kk").is_none());
        assert_eq!((rule(&meta().rest()).as_str(), rule(&Bytes::new()).as_str()), ("submit", ""));
    }
}
