//! Stored bytes: whatever they are, they are a record; one that can be read survives being written.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use semel_core::{
    StoreTime,
    record::{Record, Rest, StateCode, without_body},
};

fuzz_target!(|bytes: &[u8]| {
    look(Bytes::copy_from_slice(bytes));
    // Most bytes have no magic; so that the rest is looked at too.
    look([b"SML\x01", bytes].concat().into());
});

fn look(bytes: Bytes) {
    let record = Record::decode(&bytes);
    let now = StoreTime::from_micros(1_000_000);
    if record.is_readable() {
        let again = Record::decode(&Bytes::from(record.encode()));
        // What the last bytes mean is the payload's affair; the header comes back as it was.
        assert_eq!(again.encode(), record.encode());
    } else {
        assert_eq!(record.reads_as(now), StateCode::InFlight, "unreadable is in flight, never absent");
        assert!(record.is_here(now));
    }
    for rest in [&record.rest, &bytes] {
        let Ok(read) = Rest::read(rest) else { continue };
        let written = Rest::write(&rest[..read.meta_len], &read.payload);
        let again = Rest::read(&written).expect("what was written can be read");
        assert_eq!(again.payload, read.payload);
        let _ = without_body(rest);
    }
}
