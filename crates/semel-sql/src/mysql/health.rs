//! Whether the store works, and its clock.

use semel_core::{
    env::Tick,
    identity::Birth,
    store::{Did, Health, StoreError},
};
use sqlx::Row as _;

use super::{
    calls::Calls,
    fault::Verdict,
    mark::Trouble,
    row::Row,
    server::is_read_only,
    sql::{self, Args},
};

impl Calls {
    pub(super) async fn health(&self) -> Result<Health, StoreError> {
        let until = self.until();
        let failed = |error| Verdict::of(error).into_error().of_nothing();
        let row = self.read_one(until, sql::HEALTH, &Args::default()).await?;
        let read_only = is_read_only(&row).map_err(failed)?;
        let birth = match row.try_get::<Option<Vec<u8>>, _>(3).map_err(failed)? {
            Some(mark) => self.pool.server().known.same(&mark).map_err(|e| Trouble::Mark(e).into_error())?,
            None if read_only => self.pool.server().known.birth(),
            None => self.put_mark_back(until).await?,
        };
        let trouble = if read_only { "the server is read only".into() } else { String::new() };
        let now = Row(&row).now()?;
        Ok(Health { now, writable: !read_only, records: None, bytes: None, trouble, birth: Some(birth) })
    }

    /// The store lost its mark, and so its records.
    async fn put_mark_back(&self, until: Tick) -> Result<Birth, StoreError> {
        let mut lease = self.pool.take(until).await?;
        let put = self.pool.within(until, self.pool.server().known.put_back(&mut lease)).await;
        let birth = put.ok_or_else(|| StoreError::unavailable(Did::Nothing))?.map_err(Trouble::into_error)?;
        lease.back();
        Ok(birth)
    }
}
