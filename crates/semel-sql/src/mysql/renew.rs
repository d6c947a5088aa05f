//! Renewals, in batches: one statement moves the leases, a second reads what is there now and answers for each.

use std::{collections::BTreeMap, time::Duration};

use semel_core::{
    StoreTime,
    env::Tick,
    record::{Record, StateCode},
    store::{Renewal, Renewed, StoreError},
};
use sqlx::AssertSqlSafe;

use super::{
    calls::{Calls, Wrote},
    row::{AFTER_RECORD, Row},
    sql::{self, Args, fence, micros},
};

/// Rows of one statement at most.
const AT_ONCE: usize = 64;

/// By round and digest.
type Found = BTreeMap<(usize, Vec<u8>), (Record, StoreTime)>;

impl Calls {
    pub(super) async fn renew(&self, batch: &[Renewal<'_>]) -> Result<Vec<Renewed>, StoreError> {
        let until = self.until();
        // An identity that is named twice (by the claim that lost it and by the one that has it now) is answered one after the
        // other, in rounds. Within a round by what they ask for, and then by identity: two batches that meet lock their rows in
        // one order.
        let mut rounds: Vec<usize> = Vec::with_capacity(batch.len());
        let mut named: BTreeMap<&[u8; 32], usize> = BTreeMap::new();
        let mut alike: BTreeMap<(usize, Duration, Duration), Vec<&Renewal<'_>>> = BTreeMap::new();
        for renewal in batch {
            let times = named.entry(renewal.claim.identity().digest()).or_default();
            alike.entry((*times, renewal.lease, renewal.keep)).or_default().push(renewal);
            rounds.push(*times);
            *times += 1;
        }
        let mut found = Found::new();
        for ((round, ..), mut alike) in alike {
            alike.sort_unstable_by_key(|r| r.claim.identity().digest());
            for some in alike.chunks(AT_ONCE) {
                self.extend_leases(until, some).await?;
                self.find(until, some, round, &mut found).await?;
            }
        }
        Ok(batch.iter().zip(rounds).map(|(renewal, round)| answer(renewal, round, &found)).collect())
    }

    /// Moves the ends of leases. One row that somebody holds does not keep the others from it: its lease stays as it is,
    /// which is what the answer then says.
    async fn extend_leases(&self, until: Tick, alike: &[&Renewal<'_>]) -> Result<(), StoreError> {
        if self.write(until, statement(alike.len()), &args(alike)).await? != Wrote::Busy || alike.len() == 1 {
            return Ok(());
        }
        for one in alike.chunks(1) {
            let _stays_as_it_is = self.write(until, statement(1), &args(one)).await?;
        }
        Ok(())
    }

    async fn find(
        &self,
        until: Tick,
        some: &[&Renewal<'_>],
        round: usize,
        found: &mut Found,
    ) -> Result<(), StoreError> {
        let text = sql::repeat(sql::READ_MANY, "?", ", ", places(some.len()), ")");
        let ids = padded(some).fold(Args::default(), |args, r| args.and(&r.claim.identity().digest()[..]));
        for row in &self.read(until, AssertSqlSafe(text), &ids).await? {
            let row = Row(row);
            if let Some(record) = row.record()? {
                found.insert((round, row.at(AFTER_RECORD)?), (record, row.now()?));
            }
        }
        Ok(())
    }
}

/// The next power of two, so that a connection prepares few statements.
fn places(n: usize) -> usize {
    n.next_power_of_two()
}

/// The last one fills what is left.
fn padded<'a, 'b>(some: &'a [&'b Renewal<'b>]) -> impl Iterator<Item = &'a Renewal<'b>> {
    let last = some.last().copied();
    some.iter().copied().chain(std::iter::repeat_n(last, places(some.len()) - some.len()).flatten())
}

fn statement(n: usize) -> AssertSqlSafe<String> {
    AssertSqlSafe(sql::repeat(sql::RENEW, sql::RENEW_ONE, " OR ", places(n), ")"))
}

fn args(alike: &[&Renewal<'_>]) -> Args {
    let Some(first) = alike.first() else { return Args::default() };
    let args = Args::default().and(micros(first.lease)).and(micros(first.keep));
    padded(alike).fold(args, |args, r| {
        args.and(&r.claim.identity().digest()[..])
            .and(&r.claim.owner().as_bytes()[..])
            .and(fence(Some(r.claim.fence())))
    })
}

fn answer(renewal: &Renewal<'_>, round: usize, found: &Found) -> Renewed {
    let claim = renewal.claim;
    let Some((r, now)) = found.get(&(round, claim.identity().digest().to_vec())).filter(|(r, now)| r.is_here(*now))
    else {
        return Renewed::Missing;
    };
    let own = r.is_readable() && r.belongs_to(claim.owner(), claim.fence());
    if own && r.state == StateCode::InFlight {
        Renewed::Left(r.lease_until.since(*now))
    } else {
        Renewed::Lost(r.clone())
    }
}
