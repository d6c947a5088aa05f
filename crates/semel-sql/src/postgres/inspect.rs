//! What is found about the server: whether it keeps what it acknowledges, and what else people should know.

use std::time::{Duration, SystemTime};

use semel_core::store::{Durability, Finding, Grade};
use sqlx::{
    PgConnection, Row,
    postgres::{PgConnectOptions, PgRow},
};

/// The oldest version that the statements were written for.
const OLDEST: i32 = 130_000;
/// How far the server's clock may be from this machine's before people are told.
const CLOCK: Duration = Duration::from_secs(2);

const FACTS: &str = "SELECT current_setting('server_version'), current_setting('server_version_num')::integer, \
     pg_is_in_recovery(), current_setting('default_transaction_read_only'), current_setting('fsync'), \
     current_setting('full_page_writes'), current_setting('synchronous_commit'), \
     current_setting('default_transaction_isolation'), \
     (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, \
     (SELECT relpersistence::text FROM pg_class WHERE oid = to_regclass('semel_record')), \
     (SELECT string_agg(t || ': ' || p, ', ') FROM (VALUES ('semel_record', 'SELECT'), ('semel_record', 'INSERT'), \
       ('semel_record', 'UPDATE'), ('semel_record', 'DELETE'), ('semel_mark', 'SELECT'), ('semel_mark', 'INSERT'), \
       ('semel_audit', 'SELECT'), ('semel_audit', 'INSERT'), ('semel_audit', 'UPDATE'), ('semel_audit', 'DELETE')) \
       AS need (t, p) \
       WHERE NOT coalesce(has_table_privilege(to_regclass(t)::oid, p), false)), \
     (SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'async'), \
     (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')), \
     (SELECT string_agg(t || ' (' || c || ')', ', ') FROM (VALUES ('semel_record', 'id'), ('semel_mark', 'one')) AS need (t, c) \
       WHERE NOT EXISTS (SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] \
         WHERE i.indrelid = to_regclass(t)::oid AND a.attname = c AND i.indnkeyatts = 1 AND i.indisunique AND i.indisvalid \
         AND i.indimmediate AND i.indpred IS NULL)), \
     EXISTS (SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] \
       WHERE i.indrelid = to_regclass('semel_record')::oid AND a.attname = 'expires_at' AND i.indisvalid)";

/// How the store reaches its server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way<'a> {
    /// Through a transaction pooler.
    pub(super) pooled: bool,
    /// Whether changes can be listened for.
    pub(super) listens: bool,
    /// This machine's clock.
    pub(super) wall: SystemTime,
    pub(super) options: &'a PgConnectOptions,
}

/// What a server is like.
#[derive(Debug)]
pub(super) struct Inspected {
    pub(super) findings: Vec<Finding>,
    pub(super) durability: Durability,
    pub(super) standby: bool,
}

impl Inspected {
    /// What forbids to work on it.
    pub(super) fn fatal(&self) -> Vec<Finding> {
        self.findings.iter().filter(|finding| finding.grade == Grade::Fatal).cloned().collect()
    }
}

struct Facts {
    version: String,
    number: i32,
    standby: bool,
    read_only: String,
    fsync: String,
    full_pages: String,
    commit: String,
    isolation: String,
    clock: i64,
    persistence: Option<String>,
    denied: Option<String>,
    asynchronous: i64,
    synchronous: i64,
    /// Tables without the unique index that tells the first from all others.
    ambiguous: Option<String>,
    finds_ended: bool,
}

/// Looks at everything.
pub(super) async fn inspect(connection: &mut PgConnection, way: Way<'_>) -> sqlx::Result<Inspected> {
    let facts = facts(connection).await?;
    let mut findings = facts.promise();
    findings.extend(facts.durable());
    findings.extend(facts.manners(way));
    findings.extend(facts.tables());
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.grade));
    Ok(Inspected { findings, durability: facts.durability(), standby: facts.standby })
}

/// What there is to say of the tables alone, the worst first.
pub(super) async fn tables(connection: &mut PgConnection) -> sqlx::Result<Vec<Finding>> {
    Ok(facts(connection).await?.tables())
}

/// All of them in one statement.
async fn facts(connection: &mut PgConnection) -> sqlx::Result<Facts> {
    let rows: Vec<PgRow> = sqlx::raw_sql(FACTS).fetch_all(connection).await?;
    let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
    Ok(Facts {
        version: row.try_get(0)?,
        number: row.try_get(1)?,
        standby: row.try_get(2)?,
        read_only: row.try_get(3)?,
        fsync: row.try_get(4)?,
        full_pages: row.try_get(5)?,
        commit: row.try_get(6)?,
        isolation: row.try_get(7)?,
        clock: row.try_get(8)?,
        persistence: row.try_get(9)?,
        denied: row.try_get(10)?,
        asynchronous: row.try_get(11)?,
        synchronous: row.try_get(12)?,
        ambiguous: row.try_get(13)?,
        finds_ended: row.try_get(14)?,
    })
}

impl Facts {
    fn durability(&self) -> Durability {
        // `local` and above write the log to disk before they answer.
        if self.fsync == "on" && self.commit != "off" { Durability::Power } else { Durability::Process }
    }

    /// Without these nothing works, or a claim could be given twice.
    fn promise(&self) -> Vec<Finding> {
        let mut out = Vec::new();
        if self.number < OLDEST {
            let what = format!("PostgreSQL {}", self.version);
            out.push(Finding::fatal(what, "the store's statements need version 13", "Upgrade the server"));
        } else {
            out.push(Finding::note(format!("PostgreSQL {}", self.version), "supported"));
        }
        if self.standby {
            let cure = "Name the primary, or promote this one";
            out.push(Finding::fatal("the server is a standby", "a standby takes no claims", cure));
        } else if self.read_only == "on" {
            let cure = "Set it to off for this user or database";
            out.push(Finding::fatal("default_transaction_read_only is on", "no claim could be written", cure));
        }
        if let Some(denied) = &self.denied {
            let cure = "Grant these rights to the user that the URL names";
            out.push(Finding::fatal(format!("missing rights ({denied})"), "the store's statements would fail", cure));
        }
        out
    }

    fn tables(&self) -> Vec<Finding> {
        let mut out = Vec::new();
        if self.persistence.as_deref() == Some("u") {
            let cure = "ALTER TABLE semel_record SET LOGGED";
            let why = "a crash of the server empties it, and what was done would be done again";
            out.push(Finding::fatal("semel_record is an unlogged table", why, cure));
        }
        if let Some(ambiguous) = &self.ambiguous {
            let why = "it alone tells the first of two claims: without it none is granted, or more than one";
            let cure = "Stop the gateways and restore the tables with their indexes, or ALTER TABLE … ADD PRIMARY KEY (…). Where \
                        that finds one id twice, keep of its rows the one with the highest fence";
            out.push(Finding::fatal(format!("no unique index on {ambiguous}"), why, cure));
        }
        if !self.finds_ended {
            let cure = "CREATE INDEX CONCURRENTLY semel_record_expires_at ON semel_record (expires_at)";
            let why = "each purge reads the whole table";
            out.push(Finding::warning("no index on semel_record (expires_at)", why, cure));
        }
        out
    }

    fn durable(&self) -> Vec<Finding> {
        let mut out = Vec::new();
        if self.fsync != "on" {
            let why = "a power cut can lose or damage what was acknowledged, and it would be done again";
            out.push(Finding::warning("fsync is off", why, "Set fsync = on"));
        }
        if self.full_pages != "on" {
            let why = "a power cut can damage pages that were being written";
            out.push(Finding::warning("full_page_writes is off", why, "Set full_page_writes = on"));
        }
        if self.commit == "off" {
            let why = "a crash of the server can lose the last moments' claims, and they would be given again";
            let cure = "ALTER ROLE … SET synchronous_commit = on, for the user that the URL names";
            out.push(Finding::warning("synchronous_commit is off", why, cure));
        }
        if self.asynchronous > 0 && self.synchronous == 0 {
            let what = format!("{} asynchronous standbys and no synchronous one", self.asynchronous);
            let why = "if one of them is promoted, claims and outcomes that it had not received are lost";
            let cure = "Name a synchronous standby in synchronous_standby_names, if a failover is to lose nothing";
            out.push(Finding::warning(what, why, cure));
        }
        if self.synchronous > 0 && self.commit == "local" {
            let why = "nothing waits for the synchronous standby: what it had not received is lost when it is promoted";
            let cure = "ALTER ROLE … SET synchronous_commit = on, for the user that the URL names";
            out.push(Finding::warning("synchronous_commit is local", why, cure));
        }
        out
    }

    fn manners(&self, way: Way<'_>) -> Vec<Finding> {
        let mut out = Vec::new();
        if self.isolation != "read committed" {
            let what = format!("default_transaction_isolation is {}", self.isolation);
            let why = "claims that meet have to be sent again";
            out.push(Finding::warning(what, why, "Set it to read committed for this user or database"));
        }
        let wall = way.wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let theirs = Duration::from_micros(u64::try_from(self.clock).unwrap_or(0));
        let off = theirs.abs_diff(wall);
        if off > CLOCK {
            let what = format!("the server's clock is {:.1} s from this machine's", off.as_secs_f64());
            let why = "leases go by the server's clock, logs by this one";
            out.push(Finding::warning(what, why, "Let both follow a time server"));
        }
        if way.pooled {
            let what = "a transaction pooler is before the server".to_owned();
            let why = "statements go as text, which costs the server about three times as much as prepared ones";
            out.push(Finding::note(what, why));
            if !way.listens {
                let cure = "Name a URL that goes to the server itself for listening (listen_url)";
                let why = "waiting copies poll, and what is settled or deleted by hand is replayed from other processes' \
                           memory for some seconds more";
                out.push(Finding::warning("nobody can listen through the pooler", why, cure));
            }
        }
        if matches!(way.options.get_ssl_mode(), sqlx::postgres::PgSslMode::Disable)
            && way.options.get_socket().is_none()
        {
            out.push(Finding::note("sslmode is disable", "records and the password's proof travel in the clear"));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Facts {
        Facts {
            version: "15.18".into(),
            number: 150_018,
            standby: false,
            read_only: "off".into(),
            fsync: "on".into(),
            full_pages: "on".into(),
            commit: "on".into(),
            isolation: "read committed".into(),
            clock: 0,
            persistence: Some("p".into()),
            denied: None,
            asynchronous: 0,
            synchronous: 0,
            ambiguous: None,
            finds_ended: true,
        }
    }

    fn worst(findings: &[Finding]) -> Option<Grade> {
        findings.iter().map(|f| f.grade).max()
    }

    #[test]
    fn what_breaks_the_promise_is_fatal() {
        let cases = [
            Facts { number: 120_012, ..good() },
            Facts { standby: true, ..good() },
            Facts { read_only: "on".into(), ..good() },
            Facts { denied: Some("semel_record: UPDATE".into()), ..good() },
        ];
        assert_eq!(worst(&good().promise()), Some(Grade::Note));
        for facts in cases {
            assert_eq!(worst(&facts.promise()), Some(Grade::Fatal));
        }
    }

    #[test]
    fn tables_that_would_grant_a_claim_twice_are_fatal_and_slow_ones_a_warning() {
        for (facts, grade) in [
            (good(), None),
            (Facts { persistence: Some("u".into()), ..good() }, Some(Grade::Fatal)),
            (Facts { ambiguous: Some("semel_record (id)".into()), ..good() }, Some(Grade::Fatal)),
            (Facts { finds_ended: false, ..good() }, Some(Grade::Warning)),
        ] {
            assert_eq!(worst(&facts.tables()), grade);
        }
    }

    #[test]
    fn what_may_lose_acknowledged_writes_is_a_warning_and_said_in_the_facts() {
        assert!(good().durable().is_empty());
        assert_eq!(good().durability(), Durability::Power);
        for facts in [Facts { fsync: "off".into(), ..good() }, Facts { commit: "off".into(), ..good() }] {
            assert_eq!((worst(&facts.durable()), facts.durability()), (Some(Grade::Warning), Durability::Process));
        }
        let alone = Facts { asynchronous: 2, ..good() };
        assert_eq!(worst(&alone.durable()), Some(Grade::Warning));
        let awaited = Facts { synchronous: 1, ..alone };
        assert!(awaited.durable().is_empty());
        let not_awaited = Facts { commit: "local".into(), ..awaited };
        assert_eq!(
            (worst(&not_awaited.durable()), not_awaited.durability()),
            (Some(Grade::Warning), Durability::Power)
        );
        assert!(Facts { commit: "local".into(), ..good() }.durable().is_empty(), "there is nobody to wait for");
    }

    #[test]
    fn a_clock_far_away_and_a_pooler_are_told() {
        let options = PgConnectOptions::new_without_pgpass();
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let way = |pooled, listens, wall| Way { pooled, listens, wall, options: &options };
        assert!(good().manners(way(false, true, at(1))).is_empty());
        assert_eq!(worst(&good().manners(way(false, true, at(3)))), Some(Grade::Warning));
        assert_eq!(worst(&good().manners(way(true, true, at(0)))), Some(Grade::Note));
        assert_eq!(worst(&good().manners(way(true, false, at(0)))), Some(Grade::Warning));
    }
}
