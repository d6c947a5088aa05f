//! The store: what the traits ask for.

use std::time::Duration;

use semel_core::{
    Fence, StoreTime,
    env::Env,
    identity::{Identity, Secret},
    record::StateCode,
    store::{
        Ask, Claim, Claimed, Cursor, Extended, Filter, Finding, Health, Issued, NewToken, Page, Purged, Releasing,
        Renewal, Renewed, Reply, Resolution, Resolved, Seen, Settled, Settlement, Store, StoreAdmin, StoreError,
        StoreFacts, StoreFuture, Target,
    },
    transition,
};

use super::{
    calls::Calls,
    connect::{self, Opened},
    fault::Verdict,
    inspect, migrate,
};
use crate::{ConnectError, Migrated, Options};

/// Records in a database of MySQL or MariaDB, shared by any number of processes.
///
/// The server's clock decides on leases and expiry. See the [module](super) for what a call costs; a finished record takes
/// about 350 bytes in the database plus its key's shown form, head and body.
#[derive(Debug)]
pub struct MySqlStore {
    pub(super) calls: Calls,
    facts: StoreFacts,
    server: String,
}

impl MySqlStore {
    /// Opens the store that `url` names: `mysql://user:password@host:3306/database`. Looks at the server first, and refuses one
    /// that would break the promise (a replica, a table of another engine than `InnoDB`, missing privileges, another deployment's
    /// records). Makes no tables: [`migrate`](Self::migrate) does.
    ///
    /// # Errors
    /// [`ConnectError`]: what, where and what to do.
    pub async fn connect(url: &str, env: &Env, options: Options) -> Result<Self, ConnectError> {
        let Opened { calls, facts, server } = connect::connect(url, env, &options).await?;
        Ok(Self { calls, facts, server })
    }

    /// Brings the tables up to this program's version. Processes that do it at the same
    /// time wait for each other. One that stops in the middle leaves nothing that the next one does not finish.
    ///
    /// It takes as long as the server is at work on it; a second connection looks after that every second. What is bounded are
    /// connections (`connect_timeout`), waits for whoever holds a lock (30 s for another migration, `lock_timeout` for a table), and how long the server says nothing
    /// (`call_timeout`). Not cancel-safe: a dropped future leaves the server at its work, whose end the next call waits for.
    ///
    /// # Errors
    /// [`ConnectError`]: what, where and what to do. Tables of a later version are left alone.
    pub async fn migrate(url: &str, options: &Options) -> Result<Migrated, ConnectError> {
        migrate::migrate(url, options).await
    }

    /// The statements that [`migrate`](Self::migrate) applies, for people and their own tools.
    #[must_use]
    pub fn migration_sql() -> String {
        migrate::sql()
    }

    /// The secret that identities have to be made with: the configured one, or the store's own.
    #[must_use]
    pub fn secret(&self) -> &Secret {
        self.calls.pool.server().known.secret()
    }

    /// Host, port and database.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.server
    }

    /// What there is to know about the server, the worst first. Changes nothing.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn inspect(&self) -> Result<Vec<Finding>, StoreError> {
        let calls = &self.calls;
        let until = calls.until();
        let mut lease = calls.pool.take(until).await?;
        let wall = calls.env.clock.wall();
        let looked = calls.pool.within(until, inspect::inspect(&mut lease, wall)).await;
        let looked = looked.ok_or_else(|| StoreError::unavailable(semel_core::store::Did::Nothing))?;
        let findings = looked.map_err(|error| Verdict::of(error).into_error().of_nothing())?;
        lease.back();
        Ok(findings)
    }

    /// Ends the connections. Calls that come later are refused; those under way are answered.
    pub fn close(&self) {
        self.calls.pool.close();
    }

    async fn decide<T>(
        &self,
        id: &Identity,
        decision: impl Fn(Option<&semel_core::record::Record>, StoreTime) -> transition::Step<T>,
    ) -> Result<T, StoreError> {
        self.calls.decide(self.calls.until(), id, StoreTime::MAX, decision).await?.answer()
    }
}

impl Store for MySqlStore {
    fn claim<'a>(&'a self, ask: &'a Ask) -> Reply<'a, Claimed> {
        StoreFuture::new(self.calls.claim(ask))
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal<'a>]) -> Reply<'a, Vec<Result<Renewed, StoreError>>> {
        StoreFuture::new(async move { Ok(self.calls.renew(batch).await?.into_iter().map(Ok).collect()) })
    }

    fn settle<'a>(&'a self, claim: &'a Claim, to: &'a Settlement) -> Reply<'a, Settled> {
        StoreFuture::new(self.calls.settle(claim, to))
    }

    fn release<'a>(&'a self, what: &'a Releasing<'a>) -> Reply<'a, Settled> {
        StoreFuture::new(self.calls.release(what))
    }

    fn issue<'a>(&'a self, token: &'a NewToken) -> Reply<'a, Issued> {
        StoreFuture::new(self.decide(&token.identity, move |slot, now| transition::issue(slot, token, now)))
    }

    fn extend<'a>(&'a self, id: &'a Identity, ttl: Duration) -> Reply<'a, Extended> {
        StoreFuture::new(self.decide(id, move |slot, now| transition::extend(slot, ttl, now)))
    }

    fn withdraw<'a>(&'a self, id: &'a Identity) -> Reply<'a, bool> {
        StoreFuture::new(self.decide(id, transition::withdraw))
    }

    fn get<'a>(&'a self, id: &'a Identity) -> Reply<'a, Seen> {
        StoreFuture::new(async move {
            let (record, now) = self.calls.look(self.calls.until(), id).await?;
            Ok(Seen { record: record.filter(|r| r.is_here(now)), now })
        })
    }

    /// Never resolves: nobody tells, the engine looks.
    fn wait<'a>(&'a self, _id: &'a Identity, _seen: Option<Fence>) -> StoreFuture<'a, ()> {
        StoreFuture::never()
    }

    fn health(&self) -> Reply<'_, Health> {
        StoreFuture::new(self.calls.health())
    }

    fn facts(&self) -> StoreFacts {
        self.facts
    }
}

impl StoreAdmin for MySqlStore {
    fn list<'a>(&'a self, filter: &'a Filter, after: Option<&'a Cursor>, max: usize) -> Reply<'a, Page> {
        StoreFuture::new(self.calls.page(filter, after, max))
    }

    fn resolve<'a>(&'a self, target: Target<'a>, to: &'a Resolution) -> Reply<'a, Resolved> {
        let key = (target.fence, target.resolver);
        StoreFuture::new(self.decide(target.identity, move |slot, now| transition::resolve(slot, key, to, now)))
    }

    fn delete<'a>(&'a self, id: &'a Identity, expected: StateCode) -> Reply<'a, bool> {
        StoreFuture::new(self.decide(id, move |slot, now| transition::delete(slot, expected, now)))
    }

    fn purge(&self, max: usize) -> Reply<'_, Purged> {
        StoreFuture::new(self.calls.purge(max))
    }

    fn audit<'a>(&'a self, line: &'a str) -> Reply<'a, ()> {
        StoreFuture::new(self.calls.audit(line))
    }

    fn audited(&self, max: usize) -> Reply<'_, Vec<String>> {
        StoreFuture::new(self.calls.audited(max))
    }
}
