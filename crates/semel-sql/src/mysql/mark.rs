//! The mark: whose records these are, and since when. Written by the first process that finds none, read at every connection.

use parking_lot::Mutex;
use semel_core::{
    env::Env,
    identity::{Birth, Mark, MarkError, Secret},
    store::{Did, StoreError, StoreErrorKind},
};
use sqlx::{AssertSqlSafe, Row as _, mysql::MySqlConnection};

use super::{fault::Verdict, server::first_row};

/// What this process knows of the mark.
#[derive(Debug)]
pub(super) struct Known {
    env: Env,
    secret: Secret,
    mark: Mutex<Mark>,
}

/// Why the mark could not be read or does not fit.
#[derive(Debug)]
pub(super) enum Trouble {
    /// It belongs to another deployment.
    Mark(MarkError),
    /// The server said something else.
    Sql(sqlx::Error),
}

impl From<sqlx::Error> for Trouble {
    fn from(error: sqlx::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<MarkError> for Trouble {
    fn from(error: MarkError) -> Self {
        Self::Mark(error)
    }
}

impl Known {
    /// The store's mark, made here where there is none.
    pub(super) async fn first(
        connection: &mut MySqlConnection,
        configured: Option<&Secret>,
        env: &Env,
    ) -> Result<Self, Trouble> {
        let bytes = read_or_put(connection, &Mark::new(configured, &*env.rng)).await?;
        let mark = Mark::decode(&bytes)?;
        let secret = mark.secret(configured)?;
        Ok(Self { env: env.clone(), secret, mark: Mutex::new(mark) })
    }

    pub(super) fn secret(&self) -> &Secret {
        &self.secret
    }

    pub(super) fn random(&self) -> u128 {
        let mut bytes = [0; 16];
        self.env.rng.fill(&mut bytes);
        u128::from_be_bytes(bytes)
    }

    pub(super) fn birth(&self) -> Birth {
        self.mark.lock().birth()
    }

    /// The store's mark as it is now; another deployment's is refused.
    pub(super) fn same(&self, bytes: &[u8]) -> Result<Birth, MarkError> {
        let mark = Mark::decode(bytes)?;
        mark.secret(Some(&self.secret))?;
        let birth = mark.birth();
        *self.mark.lock() = mark;
        Ok(birth)
    }

    /// A new one, born now, where the store lost its mark and with it the records.
    pub(super) async fn put_back(&self, connection: &mut MySqlConnection) -> Result<Birth, Trouble> {
        let reborn = self.mark.lock().reborn(&*self.env.rng);
        let bytes = read_or_put(connection, &reborn).await?;
        Ok(self.same(&bytes)?)
    }
}

/// The first writer wins: whoever comes second reads what the first one wrote.
async fn read_or_put(connection: &mut MySqlConnection, mark: &Mark) -> Result<Vec<u8>, sqlx::Error> {
    if let Some(bytes) = read(connection).await? {
        return Ok(bytes);
    }
    let put = format!("INSERT INTO semel_mark (id, mark) VALUES (1, x'{}')", const_hex::encode(mark.encode()));
    match sqlx::raw_sql(AssertSqlSafe(put)).execute(&mut *connection).await {
        Err(error) if !error.as_database_error().is_some_and(|e| e.is_unique_violation()) => return Err(error),
        _ => {}
    }
    read(connection).await?.ok_or(sqlx::Error::RowNotFound)
}

async fn read(connection: &mut MySqlConnection) -> Result<Option<Vec<u8>>, sqlx::Error> {
    let row = first_row(connection, "SELECT mark FROM semel_mark WHERE id = 1").await?;
    row.map(|row| row.try_get(0)).transpose()
}

impl Trouble {
    /// As the error of a call that did nothing.
    pub(super) fn into_error(self) -> StoreError {
        match self {
            Self::Mark(error) => StoreError::new(Did::Nothing, StoreErrorKind::Closed, error),
            Self::Sql(error) => Verdict::of(error).into_error().of_nothing(),
        }
    }
}
