//! What tests need: records put in place behind the store's back.

use bytes::Bytes;
use semel_core::{identity::Identity, store::StoreError};

use super::{PostgresStore, calls::kind, sql, statement::Arg};
use crate::record::Columns;

impl PostgresStore {
    /// Puts a record's bytes in place behind the store's back, as a restored backup or a newer process would; `None` takes
    /// the record away, as a flush would.
    ///
    /// # Errors
    /// When the server does not answer.
    pub async fn plant(&self, id: &Identity, bytes: Option<Bytes>) -> Result<(), StoreError> {
        let columns = bytes.map_or(Columns { v: -1, ..Columns::default() }, |bytes| Columns::of(&bytes));
        let args = [
            Arg::Bytes(id.digest()),
            Arg::Int(columns.v.into()),
            Arg::Int(columns.state.into()),
            Arg::Int(columns.flags.into()),
            Arg::Int(columns.fp_v.into()),
            Arg::Bytes(columns.fp.as_deref().unwrap_or_default()),
            Arg::Bytes(&columns.owner),
            Arg::Int(columns.fence),
            Arg::Int(columns.attempt.into()),
            Arg::Int(columns.lease_until),
            Arg::Int(columns.expires_at),
            Arg::Bytes(&columns.rest),
            Arg::Text(id.namespace().as_str()),
            Arg::Text(kind(id)),
        ];
        self.client.run(&sql::PLANT, &args).await?;
        Ok(())
    }
}
