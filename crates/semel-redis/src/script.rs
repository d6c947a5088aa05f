//! The scripts: one key each, declared; the server's clock; one command per call.

use std::{io::Write as _, sync::LazyLock};

use redis::{Cmd, RedisWrite, ToRedisArgs};
use semel_core::{StoreTime, record::StateCode};

use crate::stored::RECKONED;

/// Where in a record's header its state and flags stand.
const STATE: usize = 4;

/// Where in a record's header its times begin, the last of them, and what comes after them.
pub(crate) const FENCE: usize = 24;
const LEASE_UNTIL: usize = 32;
const EXPIRES_AT: usize = 40;
pub(crate) const ATTEMPT: usize = 48;

/// A script's source and digest, with and without the line that only servers from 7.0 on know.
#[derive(Debug)]
pub(crate) struct Script {
    plain: Source,
    /// May write past the server's memory limit: running work has to settle.
    past_the_limit: Option<Source>,
}

#[derive(Debug)]
struct Source {
    text: String,
    sha: String,
}

impl Source {
    fn new(text: String) -> Self {
        let sha = redis::Script::new(&text).get_hash().to_owned();
        Self { text, sha }
    }
}

const HEAD: &str = include_str!("script/head.lua");

impl Script {
    /// Refused at the memory limit where it writes more than is there.
    fn plain(body: &str) -> Self {
        Self { plain: Source::new(format!("{HEAD}{body}")), past_the_limit: None }
    }

    fn reading(text: &str) -> Self {
        Self { plain: Source::new(text.to_owned()), past_the_limit: None }
    }

    fn settling(body: &str) -> Self {
        Self::settling_whole(&format!("{HEAD}{body}"))
    }

    /// As [`plain`](Self::plain), with what `first` does for the usual case.
    fn plain_after(first: &str, body: &str) -> Self {
        Self::reading(&format!("{first}{HEAD}{body}"))
    }

    fn settling_after(first: &str, body: &str) -> Self {
        Self::settling_whole(&format!("{first}{HEAD}{body}"))
    }

    fn settling_whole(text: &str) -> Self {
        let past_the_limit = Some(Source::new(format!("#!lua flags=allow-oom\n{text}")));
        Self { plain: Source::new(text.to_owned()), past_the_limit }
    }

    fn source(&self, is_modern: bool) -> &Source {
        self.past_the_limit.as_ref().filter(|_| is_modern).unwrap_or(&self.plain)
    }
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Scripts {
    pub(crate) claim: Script,
    pub(crate) renew: Script,
    pub(crate) complete: Script,
    pub(crate) unknown: Script,
    pub(crate) release: Script,
    pub(crate) issue: Script,
    pub(crate) extend: Script,
    pub(crate) withdraw: Script,
    pub(crate) get: Script,
    pub(crate) watch: Script,
    pub(crate) resolve: Script,
    pub(crate) delete: Script,
    pub(crate) sweep: Script,
    pub(crate) mark: Script,
    pub(crate) room: Script,
    pub(crate) audit: Script,
    pub(crate) audited: Script,
    pub(crate) touch: Script,
}

/// Made once: their digests are.
pub(crate) static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| Scripts {
    claim: Script::plain_after(include_str!("script/claim_fresh.lua"), include_str!("script/claim.lua")),
    renew: Script::settling(include_str!("script/renew.lua")),
    complete: Script::settling_after(include_str!("script/complete_held.lua"), include_str!("script/complete.lua")),
    unknown: Script::settling(include_str!("script/unknown.lua")),
    release: Script::settling(include_str!("script/release.lua")),
    issue: Script::plain(include_str!("script/issue.lua")),
    extend: Script::settling(include_str!("script/extend.lua")),
    withdraw: Script::plain(include_str!("script/withdraw.lua")),
    get: Script::reading(include_str!("script/get.lua")),
    watch: Script::plain(include_str!("script/watch.lua")),
    resolve: Script::settling(include_str!("script/resolve.lua")),
    delete: Script::plain(include_str!("script/delete.lua")),
    sweep: Script::plain(include_str!("script/sweep.lua")),
    mark: Script::settling_whole(include_str!("script/mark.lua")),
    room: Script::reading(include_str!("script/room.lua")),
    audit: Script::settling_whole(include_str!("script/audit.lua")),
    audited: Script::reading(include_str!("script/audited.lua")),
    touch: Script::settling_whole(include_str!("script/touch.lua")),
});

/// An argument of a script.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Arg<'a> {
    Bytes(&'a [u8]),
    /// One after the other: together one argument.
    Joined(&'a [u8], &'a [u8]),
    /// A record that ends so many microseconds after it is sent, by the server's clock: header, rest, span. Where nobody knows
    /// that clock it says no end.
    Ending(&'a [u8], &'a [u8], i64),
    /// What the record of the same claim has from its state to its fence, where it is as a claim without a script made it: by
    /// another header of it.
    Made(&'a [u8]),
    /// The server's clock as it is sent; more than anything where nobody knows it.
    Now,
    Number(i64),
}

impl Arg<'_> {
    /// How long it is, about.
    fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Joined(first, second) | Self::Ending(first, second, _) => first.len() + second.len(),
            Self::Made(_) => LEASE_UNTIL - STATE,
            Self::Number(_) | Self::Now => 20,
        }
    }
}

/// An argument, and what the server's clock shows as it is sent.
struct Timed<'a>(Arg<'a>, Option<StoreTime>);

impl ToRedisArgs for Timed<'_> {
    fn write_redis_args<W: RedisWrite + ?Sized>(&self, out: &mut W) {
        let Self(arg, now) = self;
        match arg {
            Arg::Bytes(bytes) => out.write_arg(bytes),
            Arg::Number(number) => number.write_redis_args(out),
            Arg::Now => now.map_or(i64::MAX, StoreTime::as_micros).write_redis_args(out),
            Arg::Made(header) => {
                let state = [StateCode::InFlight as u8, RECKONED.byte()];
                write(out, &[&state, &header[STATE + state.len()..LEASE_UNTIL]]);
            }
            Arg::Joined(first, second) => write(out, &[first, second]),
            Arg::Ending(header, rest, span) => {
                let ends = now.map_or(0, |now| now.as_micros().saturating_add(*span));
                write(out, &[&header[..EXPIRES_AT], &ends.to_be_bytes(), &header[ATTEMPT..], rest]);
            }
        }
    }
}

/// Writes one argument of these parts.
fn write<W: RedisWrite + ?Sized>(out: &mut W, parts: &[&[u8]]) {
    let mut out = out.writer_for_next_arg();
    for part in parts {
        // Into memory: it cannot fail.
        let _ = out.write_all(part);
    }
}

/// One script on one key: all that is needed to send it, and to send it again.
#[derive(Clone, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) script: &'static Script,
    pub(crate) key: &'a str,
    pub(crate) args: Vec<Arg<'a>>,
}

/// A record that is written where there is none, without a script.
#[derive(Clone, Debug)]
pub(crate) struct Fresh<'a> {
    pub(crate) key: &'a str,
    /// Without the times.
    pub(crate) header: &'a [u8],
    pub(crate) rest: &'a [u8],
    /// How long its lease is, and how long it stays after that, in microseconds.
    pub(crate) lease: i64,
    pub(crate) more: i64,
    /// For how many milliseconds its key stays.
    pub(crate) px: i64,
    /// The server's time after which it is not to be written.
    pub(crate) not_after: StoreTime,
}

impl Fresh<'_> {
    /// The command, which answers what is there (from 7.0 on). The record begins `now`, and that is its fence.
    pub(crate) fn command(&self, now: StoreTime) -> Cmd {
        let mut times = [0; ATTEMPT - FENCE];
        let now = now.as_micros();
        let lease_until = now.saturating_add(self.lease);
        for (place, time) in times.chunks_exact_mut(8).zip([now, lease_until, lease_until.saturating_add(self.more)]) {
            place.copy_from_slice(&time.to_be_bytes());
        }
        let mut set = Cmd::with_capacity(7, 32 + self.key.len() + self.header.len() + self.rest.len());
        set.arg("SET").arg(self.key);
        write(&mut set, &[&self.header[..FENCE], &times, &self.header[ATTEMPT..], self.rest]);
        set.arg("NX").arg("GET").arg("PX").arg(self.px);
        set
    }
}

/// How a script is named.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum By {
    /// By its digest: short, and the server has it as a rule.
    Digest,
    /// In full, for a server that has lost it.
    Text,
}

impl Call<'_> {
    /// The command. `now` is what the server's clock shows, where that is known.
    pub(crate) fn command(&self, by: By, is_modern: bool, now: Option<StoreTime>) -> Cmd {
        let source = self.script.source(is_modern);
        let (name, source) = match by {
            By::Digest => ("EVALSHA", &source.sha),
            By::Text => ("EVAL", &source.text),
        };
        let len = source.len() + self.key.len() + self.args.iter().map(Arg::len).sum::<usize>();
        let mut command = Cmd::with_capacity(4 + self.args.len(), name.len() + 1 + len);
        command.arg(name).arg(source).arg(1).arg(self.key);
        for arg in &self.args {
            command.arg(Timed(*arg, now));
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_settles_may_write_past_the_limit() {
        let text = |script: &Script, is_modern| script.source(is_modern).text.clone();
        assert!(text(&SCRIPTS.complete, true).starts_with("#!lua flags=allow-oom\n"));
        assert!(!text(&SCRIPTS.complete, false).contains("#!lua"));
        assert!(!text(&SCRIPTS.claim, true).contains("#!lua"));
    }

    #[test]
    fn a_script_names_its_one_key() {
        let args = vec![Arg::Bytes(b"o"), Arg::Joined(b"a\0", b"bc"), Arg::Number(-7)];
        let call = Call { script: &SCRIPTS.renew, key: "semel:k", args };
        let packed = call.command(By::Digest, true, None).get_packed_command();
        let sha = &SCRIPTS.renew.source(true).sha;
        let expected = format!(
            "*7\r\n$7\r\nEVALSHA\r\n$40\r\n{sha}\r\n$1\r\n1\r\n$7\r\nsemel:k\r\n$1\r\no\r\n$4\r\na\0bc\r\n$2\r\n-7\r\n"
        );
        assert_eq!(String::from_utf8(packed).unwrap(), expected);
    }

    #[test]
    fn the_end_of_a_record_is_reckoned_as_it_is_sent() {
        let header: Vec<u8> = (0..84).collect();
        let call = Call { script: &SCRIPTS.complete, key: "semel:k", args: vec![Arg::Ending(&header, b"rest", 256)] };
        let ends = |now| {
            let packed = call.command(By::Digest, true, now).get_packed_command();
            let record = &packed[packed.len() - 90..packed.len() - 2];
            assert_eq!([&record[..EXPIRES_AT], &record[ATTEMPT..84]], [&header[..EXPIRES_AT], &header[ATTEMPT..]]);
            assert_eq!(&record[84..], b"rest");
            record[EXPIRES_AT..ATTEMPT].to_vec()
        };
        assert_eq!(ends(Some(StoreTime::from_micros(2))), [0, 0, 0, 0, 0, 0, 1, 2]);
        assert_eq!(ends(None), [0; 8]);
    }

    #[test]
    fn a_claim_is_told_from_what_it_was_made_as() {
        let header: Vec<u8> = (0..84).collect();
        let call = Call { script: &SCRIPTS.complete, key: "semel:k", args: vec![Arg::Made(&header), Arg::Now] };
        let sent = |now| call.command(By::Digest, true, now).get_packed_command();
        let made = [&[1, 32], &header[6..32]].concat();
        for (now, text) in [(Some(StoreTime::from_micros(5)), "$1\r\n5\r\n"), (None, "$19\r\n9223372036854775807\r\n")]
        {
            let expected = [b"$28\r\n", &*made, b"\r\n", text.as_bytes()].concat();
            assert!(sent(now).ends_with(&expected), "{:?}", sent(now));
        }
    }

    #[test]
    fn a_fresh_record_begins_as_it_is_sent() {
        let header: Vec<u8> = (0..84).collect();
        let (lease, more) = (1, 2);
        let not_after = StoreTime::MAX;
        let fresh = Fresh { key: "semel:k", header: &header, rest: b"rest", lease, more, px: 7, not_after };
        let packed = fresh.command(StoreTime::from_micros(5)).get_packed_command();
        let times = [[0, 0, 0, 0, 0, 0, 0, 5], [0, 0, 0, 0, 0, 0, 0, 6], [0, 0, 0, 0, 0, 0, 0, 8]].concat();
        let record = [&header[..FENCE], &times, &header[ATTEMPT..], b"rest"].concat();
        let after = b"\r\n$2\r\nNX\r\n$3\r\nGET\r\n$2\r\nPX\r\n$1\r\n7\r\n".as_slice();
        let before = b"*7\r\n$3\r\nSET\r\n$7\r\nsemel:k\r\n$88\r\n".as_slice();
        assert_eq!(packed, [before, &record, after].concat());
    }
}
