//! What is found about the server: for people, with the cure.

use std::time::{Duration, SystemTime};

use semel_core::store::Finding;
use sqlx::{Row as _, mysql::MySqlConnection};

use super::{facts::Variables, server::first_row, sql};

/// From how much on the server's clock is worth a word.
const OFFSET: Duration = Duration::from_secs(5);

/// What the calls of a store have to be allowed to do. Explaining a statement takes the privileges of the statement, and
/// nothing is done.
const PRIVILEGES: [(&str, &str); 7] = [
    ("SELECT", "EXPLAIN SELECT id FROM semel_record WHERE id = ''"),
    ("INSERT", "EXPLAIN INSERT INTO semel_mark (id, mark) VALUES (1, '')"),
    ("INSERT", "EXPLAIN INSERT INTO semel_record SELECT * FROM semel_record WHERE id = ''"),
    ("UPDATE", "EXPLAIN UPDATE semel_record SET v = v WHERE id = ''"),
    ("DELETE", "EXPLAIN DELETE FROM semel_record WHERE id = ''"),
    ("INSERT", "EXPLAIN INSERT INTO semel_audit SELECT * FROM semel_audit WHERE n = 0"),
    ("DELETE", "EXPLAIN DELETE FROM semel_audit WHERE n = 0"),
];

/// Looks at everything. `wall` is the local wall clock.
pub(super) async fn inspect(connection: &mut MySqlConnection, wall: SystemTime) -> Result<Vec<Finding>, sqlx::Error> {
    let variables = Variables::read(connection).await?;
    let mut findings = of_variables(&variables);
    findings.extend(tables(connection).await?);
    findings.extend(privileges(connection).await?);
    findings.extend(replicates(connection, variables.is_mariadb()).await);
    findings.extend(clock(connection, wall).await?);
    findings.sort_by_key(|f| std::cmp::Reverse(f.grade));
    Ok(findings)
}

/// What there is to say of the tables alone, the worst first.
pub(super) async fn tables(connection: &mut MySqlConnection) -> Result<Vec<Finding>, sqlx::Error> {
    let mut findings = engines(connection).await?;
    findings.extend(indexes(connection).await?);
    findings.sort_by_key(|f| std::cmp::Reverse(f.grade));
    Ok(findings)
}

pub(super) fn of_variables(v: &Variables) -> Vec<Finding> {
    [version(v), read_only(v), flush(v), binlog_sync(v), binlog_format(v), galera(v), isolation(), hearing()]
        .into_iter()
        .flatten()
        .collect()
}

fn version(v: &Variables) -> Option<Finding> {
    let (name, oldest) = if v.is_mariadb() { ("MariaDB", (10, 6)) } else { ("MySQL", (8, 0)) };
    let what = format!("{name} {}", v.get("version"));
    match v.version() {
        Some(version) if version >= oldest => Some(Finding::note(what, "supported")),
        _ => Some(Finding::warning(
            what,
            "nobody has tried Semel on it",
            format!("Use {name} {}.{} or later", oldest.0, oldest.1),
        )),
    }
}

fn read_only(v: &Variables) -> Option<Finding> {
    let on: Vec<_> = ["read_only", "super_read_only", "innodb_read_only"].into_iter().filter(|n| v.is_on(n)).collect();
    if on.is_empty() {
        return None;
    }
    Some(Finding::fatal(
        format!("{} is on", on.join(" and ")),
        "it is a replica or a demoted primary: what it shows may be old, and nothing can be claimed on it",
        "Name the primary, or an address that always leads to it",
    ))
}

fn flush(v: &Variables) -> Option<Finding> {
    let value = v.get("innodb_flush_log_at_trx_commit");
    let what = format!("innodb_flush_log_at_trx_commit is {value}");
    let lost = match value {
        "1" | "3" => return Some(Finding::note(what, "an acknowledged claim survives a power cut")),
        "2" => "a power cut loses up to a second of claims that were acknowledged: their requests can run twice",
        _ => {
            "the end of the server's process loses up to a second of claims that were acknowledged: their requests can run \
              twice"
        }
    };
    Some(Finding::warning(what, lost, "Set it to 1"))
}

fn binlog_sync(v: &Variables) -> Option<Finding> {
    if !v.is_on("log_bin") || v.get("sync_binlog") == "1" {
        return None;
    }
    Some(Finding::warning(
        format!("sync_binlog is {}", v.get("sync_binlog")),
        "after a power cut a replica, or a restore from the binary log, may lack claims that were acknowledged",
        "Set it to 1",
    ))
}

fn binlog_format(v: &Variables) -> Option<Finding> {
    if !v.is_on("log_bin") || !v.get("binlog_format").eq_ignore_ascii_case("statement") {
        return None;
    }
    Some(Finding::fatal(
        "binlog_format is STATEMENT",
        "the server then refuses to write under READ COMMITTED, which the store uses",
        "Set it to ROW or MIXED",
    ))
}

fn galera(v: &Variables) -> Option<Finding> {
    if !v.is_on("wsrep_on") {
        return None;
    }
    let what = format!("a Galera cluster, {}", v.get("wsrep_cluster_name"));
    if v.number("wsrep_sync_wait").is_some_and(|bits| bits & 1 == 1) {
        return Some(Finding::note(what, "writes that meet are told apart by certification, and reads wait for them"));
    }
    Some(Finding::warning(
        what,
        "of two claims that meet on two nodes certification lets one pass, but a look on one node may be older than a \
         settlement on another: a replay may be answered as in flight, and a write lost at certification is sent again",
        "Lead all gateways to one node, or set wsrep_sync_wait to 1 or more",
    ))
}

fn isolation() -> Option<Finding> {
    Some(Finding::note("the store's sessions run under READ COMMITTED, with autocommit", "no gap is ever locked"))
}

fn hearing() -> Option<Finding> {
    let why = "waiting copies look again by themselves, and what is settled or deleted by hand is replayed from other \
               processes' memory for as long as they remember it (local_ttl)";
    Some(Finding::note("the server tells nobody of changes", why))
}

async fn engines(connection: &mut MySqlConnection) -> Result<Vec<Finding>, sqlx::Error> {
    let sql = "SELECT CAST(TABLE_NAME AS CHAR), CAST(ENGINE AS CHAR) FROM information_schema.TABLES \
               WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME IN ('semel_record', 'semel_mark')";
    let mut findings = Vec::new();
    for row in sqlx::raw_sql(sql).fetch_all(connection).await? {
        let (table, engine): (String, Option<String>) = (row.try_get(0)?, row.try_get(1)?);
        let engine = engine.unwrap_or_default();
        if !engine.eq_ignore_ascii_case("innodb") {
            findings.push(Finding::fatal(
                format!("the table {table} is kept by {engine}"),
                "only InnoDB locks single rows and survives a crash",
                format!("ALTER TABLE {table} ENGINE = InnoDB"),
            ));
        }
    }
    Ok(findings)
}

/// What tells the first of two claims is the error of a unique index, and nothing else.
async fn indexes(connection: &mut MySqlConnection) -> Result<Vec<Finding>, sqlx::Error> {
    // One row for each index: whether it is unique, how many columns it has, the first one, and how much of that.
    let sql = "SELECT CAST(TABLE_NAME AS CHAR), CAST(MAX(NON_UNIQUE) AS SIGNED), CAST(COUNT(*) AS SIGNED), \
               CAST(MAX(CASE WHEN SEQ_IN_INDEX = 1 AND SUB_PART IS NULL THEN COLUMN_NAME END) AS CHAR) \
               FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = DATABASE() \
               AND TABLE_NAME IN ('semel_record', 'semel_mark') GROUP BY TABLE_NAME, INDEX_NAME";
    let mut there = Vec::new();
    for row in sqlx::raw_sql(sql).fetch_all(connection).await? {
        let (table, column): (String, Option<String>) = (row.try_get(0)?, row.try_get(3)?);
        let (repeats, columns): (i64, i64) = (row.try_get(1)?, row.try_get(2)?);
        there.push((table, column.unwrap_or_default().to_ascii_lowercase(), repeats == 0 && columns == 1));
    }
    let mut findings = Vec::new();
    for table in ["semel_record", "semel_mark"] {
        if !there.iter().any(|(of, column, is_exact)| of == table && column == "id" && *is_exact) {
            findings.push(Finding::fatal(
                format!("no unique index on {table} (id)"),
                "it alone tells the first of two claims: without it each is granted",
                format!(
                    "Stop the gateways, then ALTER TABLE {table} ADD PRIMARY KEY (id). Where that finds one id twice, keep of its \
                     rows the one with the highest fence"
                ),
            ));
        }
    }
    if !there.iter().any(|(of, column, _)| of == "semel_record" && column == "expires_at") {
        findings.push(Finding::warning(
            "no index on semel_record (expires_at)",
            "each purge reads the whole table",
            "CREATE INDEX semel_record_ends ON semel_record (expires_at)",
        ));
    }
    Ok(findings)
}

async fn privileges(connection: &mut MySqlConnection) -> Result<Vec<Finding>, sqlx::Error> {
    let mut findings = Vec::new();
    for (privilege, sql) in PRIVILEGES {
        match sqlx::raw_sql(sql).fetch_all(&mut *connection).await {
            Ok(_) => {}
            Err(sqlx::Error::Database(error)) => findings.push(Finding::fatal(
                format!("the store's user lacks {privilege}"),
                error.message(),
                "GRANT SELECT, INSERT, UPDATE, DELETE on the store's database to it",
            )),
            Err(error) => return Err(error),
        }
    }
    Ok(findings)
}

/// Whether it follows another server although it takes writes. Who may not ask is not told.
async fn replicates(connection: &mut MySqlConnection, mariadb: bool) -> Option<Finding> {
    let sql = if mariadb { "SHOW ALL SLAVES STATUS" } else { "SHOW REPLICA STATUS" };
    let rows = sqlx::raw_sql(sql).fetch_all(connection).await.ok()?;
    if rows.is_empty() {
        return None;
    }
    Some(Finding::warning(
        "the server replicates from another one",
        "two servers that take writes of one store grant one claim twice",
        "Make sure that all gateways use one and the same primary; set read_only on the others",
    ))
}

async fn clock(connection: &mut MySqlConnection, wall: SystemTime) -> Result<Option<Finding>, sqlx::Error> {
    let sql = concat!("SELECT ", sql::now!());
    let row = first_row(connection, sql).await?.ok_or(sqlx::Error::RowNotFound)?;
    let server: i64 = row.try_get(0)?;
    let here = wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let off = Duration::from_micros(u64::try_from(server).unwrap_or(0)).abs_diff(here);
    if off < OFFSET {
        return Ok(None);
    }
    Ok(Some(Finding::warning(
        format!("the server's clock is {} s off this machine's", off.as_secs()),
        "the server's alone decides on leases and expiry, so nothing breaks; times shown to people are off",
        "Let both follow the same time service",
    )))
}

#[cfg(test)]
mod tests {
    use semel_core::store::Grade;

    use super::*;

    fn worst(pairs: &[(&str, &str)]) -> Vec<Finding> {
        let good = [("version", "10.11.19-MariaDB"), ("innodb_flush_log_at_trx_commit", "1"), ("read_only", "OFF")];
        let all: Vec<_> = good.iter().chain(pairs).copied().collect();
        of_variables(&Variables::of(&all)).into_iter().filter(|f| f.grade > Grade::Note).collect()
    }

    #[test]
    fn a_server_as_it_should_be_raises_no_eyebrow() {
        assert_eq!(worst(&[]), []);
        assert_eq!(worst(&[("log_bin", "ON"), ("sync_binlog", "1"), ("binlog_format", "ROW")]), []);
        assert_eq!(worst(&[("wsrep_on", "OFF")]), []);
        assert_eq!(worst(&[("wsrep_on", "ON"), ("wsrep_sync_wait", "15")]), []);
    }

    #[test]
    fn what_breaks_the_promise_is_fatal() {
        for pair in [("read_only", "ON"), ("read_only", "1"), ("super_read_only", "ON"), ("innodb_read_only", "ON")] {
            assert_eq!(worst(&[pair])[0].grade, Grade::Fatal, "{pair:?}");
        }
        assert_eq!(
            worst(&[("log_bin", "ON"), ("sync_binlog", "1"), ("binlog_format", "STATEMENT")])[0].grade,
            Grade::Fatal
        );
    }

    #[test]
    fn what_weakens_it_is_a_warning_with_a_cure() {
        let weak: [&[(&str, &str)]; 5] = [
            &[("innodb_flush_log_at_trx_commit", "2")],
            &[("innodb_flush_log_at_trx_commit", "0")],
            &[("log_bin", "ON"), ("sync_binlog", "0"), ("binlog_format", "ROW")],
            &[("wsrep_on", "ON"), ("wsrep_sync_wait", "0")],
            &[("version", "10.5.1-MariaDB")],
        ];
        for pairs in weak {
            let [finding] = &worst(pairs)[..] else { panic!("{pairs:?}: {:?}", worst(pairs)) };
            assert!(finding.grade == Grade::Warning && !finding.cure.is_empty(), "{finding}");
        }
    }
}
