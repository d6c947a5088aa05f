//! What tests do behind the store's back.

use std::time::Duration;

use bytes::Bytes;
use semel_core::{identity::Identity, store::StoreError};

use super::{
    MySqlStore,
    sql::{Args, micros, time},
};
use crate::record::{Columns, rule};
use semel_core::StoreTime;

impl MySqlStore {
    /// Puts a record's bytes in place, as a restored backup or a newer process would; `None` takes the record away, as a flush
    /// would.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn plant(&self, id: &Identity, bytes: Option<Bytes>) -> Result<(), StoreError> {
        let until = self.calls.until();
        let away = Args::default().and(&id.digest()[..]);
        self.calls.write(until, "DELETE FROM semel_record WHERE id = ?", &away).await?;
        let Some(bytes) = bytes else { return Ok(()) };
        let c = Columns::of(&bytes);
        let rest = Bytes::from(c.rest);
        let args = Args::default().and(c.v).and(c.state).and(c.flags).and(c.fp_v).and(c.fp).and(c.owner).and(c.fence);
        let args = args.and(c.attempt).and(c.lease_until).and(c.expires_at).and(&rest[..]).and(rule(&rest));
        self.calls.write(until, super::sql::INSERT, &args.identity(id).and(time(StoreTime::MAX))).await?;
        Ok(())
    }

    /// Moves the times of all that is stored back, as if `by` had passed.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn shift(&self, by: Duration) -> Result<(), StoreError> {
        let sql = "UPDATE semel_record SET lease_until = IF(lease_until = 0, 0, lease_until - ?), \
                   expires_at = expires_at - ? WHERE v = 1";
        let args = Args::default().and(micros(by)).and(micros(by));
        self.calls.write(self.calls.until(), sql, &args).await?;
        Ok(())
    }
}
