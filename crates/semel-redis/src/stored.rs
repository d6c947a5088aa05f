//! A record as this store has it: flags of its own stand beside the record's, and concern nobody else.

use bytes::Bytes;
use semel_core::{
    StoreTime,
    record::{Flags, Record},
};

/// In flight as a claim without a script wrote it; see [`claim`](crate::store::claim).
pub(crate) const RECKONED: Flags = Flags::from_byte(32);

/// It is there to be found, and stands for nothing.
const HUSK: Flags = Flags::from_byte(64);

/// Its key stays until nothing comes any more that was taken back here.
const BARRED: Flags = Flags::from_byte(128);

/// A record, with the flags of this store.
#[derive(Debug)]
pub(crate) struct Stored {
    record: Record,
    own: Flags,
}

impl Stored {
    pub(crate) fn read(bytes: Vec<u8>) -> Self {
        let record = Record::decode(&Bytes::from(bytes));
        let all = RECKONED.with(HUSK).with(BARRED);
        Self { own: record.flags.only(all), record: Record { flags: record.flags.without(all), ..record } }
    }

    /// The record; `None` where this stands for nothing.
    pub(crate) fn record(&self) -> Option<&Record> {
        Some(&self.record).filter(|_| !self.own.has(HUSK))
    }

    pub(crate) fn into_record(self) -> Option<Record> {
        Some(self.record).filter(|_| !self.own.has(HUSK))
    }

    pub(crate) fn is_reckoned(&self) -> bool {
        self.own.has(RECKONED)
    }

    /// Whether it is a record that is over.
    pub(crate) fn is_over(&self, now: StoreTime) -> bool {
        self.record().is_some_and(|record| !record.is_here(now))
    }
}

#[cfg(test)]
mod tests {
    use semel_core::{
        Owner,
        fingerprint::{Fingerprint, Version},
        record::{StateCode, VERSION},
    };

    use super::*;

    const END: StoreTime = StoreTime::from_micros(1_000);

    fn stored(flags: Flags) -> Stored {
        let record = Record {
            version: VERSION,
            state: StateCode::Done,
            flags,
            fingerprint: Fingerprint::stored(Version { algorithm: 1, parameters: 0 }, [0; 32]),
            owner: Owner::from_bytes([1; 16]),
            fence: None,
            attempt: 1,
            lease_until: StoreTime::default(),
            expires_at: END,
            rest: Bytes::new(),
        };
        Stored::read(record.encode())
    }

    #[test]
    fn nobody_else_sees_the_flags_of_the_store() {
        for own in [RECKONED, BARRED] {
            let stored = stored(own.with(Flags::BODY_KEPT));
            assert_eq!(stored.record().unwrap().flags, Flags::BODY_KEPT);
            assert_eq!(stored.is_reckoned(), own == RECKONED);
        }
    }

    #[test]
    fn a_husk_is_no_record_and_stays() {
        let husk = stored(HUSK);
        assert!(husk.record().is_none() && !husk.is_over(END));
        assert!(husk.into_record().is_none());
    }

    #[test]
    fn a_record_is_over_at_its_end() {
        for own in [Flags::NONE, BARRED] {
            assert!(stored(own).is_over(END) && !stored(own).is_over(StoreTime::from_micros(999)));
        }
    }
}
