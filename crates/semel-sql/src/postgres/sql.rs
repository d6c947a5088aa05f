//! The statements. Each is one decision: it reads the server's clock once, looks before it writes, and says what it found.
//!
//! `t` is the clock. It also sets the time-out for locks, for this statement alone: behind a transaction pooler nothing
//! that a session was told before can be relied on. `found` is the row as the statement's snapshot has it; where a write
//! waited for another one, its condition is judged again on the newest version (READ COMMITTED). `got` is what was written.
//!
//! `$1` names the statement and `$2` is the time-out: a server that runs a statement which another client prepared under
//! the same name finds another number there, does nothing and answers with no row.

/// One statement.
#[derive(Debug)]
pub(super) struct Statement {
    /// Its number, `$1`.
    pub(super) tag: i64,
    /// Its text.
    pub(super) sql: &'static str,
}

macro_rules! statement {
    ($tag:literal, $($sql:tt)+) => {
        Statement {
            tag: $tag,
            sql: concat!(
                "WITH t AS MATERIALIZED (SELECT (extract(epoch FROM statement_timestamp()) * 1000000)::bigint AS now, \
                 set_config('lock_timeout', $2, true) AS cfg WHERE $1 = ", $tag, "::bigint) ", $($sql)+
            ),
        }
    };
}

/// The row before.
macro_rules! found {
    () => {
        ", found AS MATERIALIZED (SELECT r.* FROM semel_record r WHERE r.id = $3)"
    };
}

/// The answer: the clock, what was written, else what was found.
macro_rules! answer {
    () => {
        " SELECT t.now, got.fence, got.attempt, got.expires_at, got.updated, f.v, f.state, f.flags, f.fp_v, f.fp, f.owner, \
         f.fence, f.attempt, f.lease_until, f.expires_at, CASE WHEN got.fence IS NULL THEN f.rest END \
         FROM t LEFT JOIN got ON true LEFT JOIN found f ON true"
    };
}

/// The same, and everybody who listens is told of what a person changed: with the commit, so that nobody hears of a change
/// that does not stand, and none that stands goes untold. People are few; what executes never notifies so.
macro_rules! answer_and_tell {
    () => {
        " SELECT t.now, got.fence, got.attempt, got.expires_at, CASE WHEN got.fence IS NOT NULL THEN \
         pg_notify('semel_changed', encode($3, 'hex'))::text IS NOT NULL END, f.v, f.state, f.flags, f.fp_v, f.fp, \
         f.owner, f.fence, f.attempt, f.lease_until, f.expires_at, CASE WHEN got.fence IS NULL THEN f.rest END \
         FROM t LEFT JOIN got ON true LEFT JOIN found f ON true"
    };
}

macro_rules! now {
    () => {
        "(SELECT now FROM t)"
    };
}

/// Whether this program can read the row; all others read as in flight.
macro_rules! readable {
    ($r:literal) => {
        concat!("(", $r, ".v = 1 AND ", $r, ".state BETWEEN 0 AND 4)")
    };
}

macro_rules! ended {
    ($r:literal) => {
        concat!("(", readable!($r), " AND ", $r, ".expires_at <= ", now!(), ")")
    };
}

macro_rules! here {
    ($r:literal) => {
        concat!("(", readable!($r), " AND ", $r, ".expires_at > ", now!(), ")")
    };
}

/// What an insertion writes, in the order of its values.
macro_rules! insert {
    () => {
        ", got AS (INSERT INTO semel_record AS r (id, v, state, flags, fp_v, fp, owner, fence, attempt, lease_until, \
         expires_at, namespace, kind, rule, rest) SELECT $3, 1, "
    };
}

/// The same over a row that is there.
macro_rules! overwrite {
    () => {
        " ON CONFLICT (id) DO UPDATE SET v = excluded.v, state = excluded.state, fp_v = excluded.fp_v, fp = excluded.fp, \
         owner = excluded.owner, lease_until = excluded.lease_until, expires_at = excluded.expires_at, \
         namespace = excluded.namespace, kind = excluded.kind, rule = excluded.rule, rest = excluded.rest"
    };
}

#[cfg(feature = "testing")]
macro_rules! overwrite_all {
    () => {
        concat!(overwrite!(), ", flags = excluded.flags, fence = excluded.fence, attempt = excluded.attempt")
    };
}

/// An issued token stays one as long as its record is here.
macro_rules! keep_issued {
    () => {
        concat!(", flags = CASE WHEN ", ended!("r"), " THEN excluded.flags ELSE (r.flags & 1) | excluded.flags END")
    };
}

macro_rules! returning {
    ($updated:literal) => {
        concat!(" RETURNING r.fence, r.attempt, r.expires_at, ", $updated, " AS updated)")
    };
}

/// Whether a row may be claimed.
macro_rules! claimable {
    ($r:literal) => {
        concat!(
            "CASE WHEN ",
            ended!($r),
            " THEN NOT $11 WHEN NOT ",
            readable!($r),
            " OR ",
            $r,
            ".owner = $7 THEN false ",
            "WHEN ",
            $r,
            ".state = 0 THEN NOT $11 OR ",
            $r,
            ".flags & 1 = 1 ",
            "WHEN ",
            $r,
            ".state = 1 THEN ",
            $r,
            ".lease_until + $12 <= ",
            now!(),
            " AND ",
            $r,
            ".flags & 2 = 2 AND ",
            $r,
            ".fp_v = $5 AND ",
            $r,
            ".fp = $6 ELSE false END"
        )
    };
}

/// `$3` id, `$4` flags, `$5` `$6` fingerprint, `$7` owner, `$8` lease, `$9` hold and keep, `$10` rest, `$11` needs a token,
/// `$12` grace, `$13` not after, `$14` namespace, `$15` kind, `$16` rule.
pub(super) const CLAIM: Statement = statement!(
    1,
    found!(),
    insert!(),
    "1, $4, $5, $6, $7, t.now, 1, t.now + $8, t.now + $8 + $9, $14, $15, $16, $10 FROM t LEFT JOIN found f ON true \
     WHERE t.cfg IS NOT NULL AND t.now <= $13 AND CASE WHEN f.id IS NULL THEN NOT $11 ELSE ",
    claimable!("f"),
    " END",
    overwrite!(),
    keep_issued!(),
    ", fence = greatest(r.fence + 1, excluded.fence), attempt = CASE WHEN ",
    ended!("r"),
    " THEN 1 ELSE r.attempt + 1 END WHERE ",
    claimable!("r"),
    // A row that was not there has no transaction that locked or replaced an earlier version.
    returning!("r.xmax <> 0"),
    answer!(),
);

/// `$3` id, `$4` owner, `$5` fence, `$6` flags, `$7` `$8` fingerprint, `$9` attempt, `$10` time to live, `$11` rest,
/// `$12` namespace, `$13` kind, `$14` rule.
macro_rules! settle {
    ($tag:literal, $state:literal, $lease_until:literal, $accepts:ident) => {
        statement!(
            $tag,
            found!(),
            insert!(),
            $state,
            ", $6, $7, $8, $4, $5, $9, ",
            $lease_until,
            ", t.now + $10, $12, $13, $14, $11 FROM t LEFT JOIN found f ON true WHERE t.cfg IS NOT NULL AND (f.id IS NULL OR ",
            $accepts!("f"),
            ")",
            overwrite!(),
            keep_issued!(),
            ", fence = excluded.fence, attempt = excluded.attempt WHERE ",
            $accepts!("r"),
            returning!("r.xmax <> 0"),
            answer!(),
        )
    };
}

/// Own and not settled; free, where nobody runs; whatever shows less than the claim's fence: a store that lost it.
macro_rules! takes_outcome {
    ($r:literal) => {
        concat!(
            "(",
            readable!($r),
            " AND (",
            $r,
            ".expires_at <= ",
            now!(),
            " OR (",
            $r,
            ".owner = $4 AND ",
            $r,
            ".fence = $5 AND ",
            $r,
            ".state IN (1, 3)) OR ",
            $r,
            ".state = 0 OR (",
            $r,
            ".state IN (1, 3, 4) AND ",
            $r,
            ".fence < $5)))"
        )
    };
}

macro_rules! takes_unknown {
    ($r:literal) => {
        concat!(
            "(",
            readable!($r),
            " AND (",
            $r,
            ".expires_at <= ",
            now!(),
            " OR (",
            $r,
            ".owner = $4 AND ",
            $r,
            ".fence = $5 AND ",
            $r,
            ".state = 1) OR (",
            $r,
            ".state IN (0, 1) AND ",
            $r,
            ".fence < $5)))"
        )
    };
}

pub(super) const COMPLETE: Statement = settle!(2, "2", "0", takes_outcome);
pub(super) const UNKNOWN: Statement = settle!(3, "3", "t.now", takes_unknown);

/// `$3` id, `$4` owner, `$5` fence or 0, `$6` state, `$7` what goes off the attempts, `$8` keep, `$9` rest.
pub(super) const RELEASE: Statement = statement!(
    4,
    found!(),
    ", got AS (UPDATE semel_record r SET state = $6, flags = r.flags & 1, fp_v = 0, fp = NULL, \
     attempt = greatest(r.attempt - $7, 0), lease_until = 0, expires_at = t.now + $8, rest = $9 \
     FROM t WHERE t.cfg IS NOT NULL AND r.id = $3 AND ",
    here!("r"),
    " AND r.owner = $4 AND r.state = 1 AND ($5 = 0 OR r.fence = $5)",
    returning!("true"),
    answer!(),
);

/// `$3` id, `$4` the fence that was seen, `$5` who speaks, `$6` state, `$7` flags, `$8` time to live, `$9` rest.
pub(super) const RESOLVE: Statement = statement!(
    5,
    found!(),
    ", got AS (UPDATE semel_record r SET state = $6, flags = (r.flags & 1) | $7, \
     fp_v = CASE WHEN $6 = 0 THEN 0 ELSE r.fp_v END, fp = CASE WHEN $6 = 0 THEN NULL ELSE r.fp END, owner = $5, \
     fence = greatest(r.fence + 1, t.now), lease_until = 0, expires_at = t.now + $8, rest = $9 \
     FROM t WHERE t.cfg IS NOT NULL AND r.id = $3 AND ",
    here!("r"),
    " AND r.fence = $4 AND (r.state IN (3, 4) OR (r.state = 1 AND r.lease_until <= t.now))",
    returning!("true"),
    answer_and_tell!(),
);

/// `$3` id, `$4` time to live, `$5` longest life, `$6` rest, `$7` namespace, `$8` kind, `$9` rule, `$10` nobody.
pub(super) const ISSUE: Statement = statement!(
    6,
    found!(),
    insert!(),
    "0, 1, 0, NULL, $10, 0, 0, t.now + $5, t.now + $4, $7, $8, $9, $6 FROM t LEFT JOIN found f ON true \
     WHERE t.cfg IS NOT NULL AND (f.id IS NULL OR ",
    ended!("f"),
    ")",
    overwrite!(),
    ", flags = excluded.flags, attempt = 0 WHERE ",
    ended!("r"),
    returning!("true"),
    answer!(),
);

/// An unused token.
macro_rules! token {
    () => {
        concat!(here!("r"), " AND r.state = 0 AND r.flags & 1 = 1")
    };
}

/// `$3` id, `$4` time to live.
pub(super) const EXTEND: Statement = statement!(
    7,
    found!(),
    ", got AS (UPDATE semel_record r SET expires_at = least(t.now + $4, r.lease_until) \
     FROM t WHERE t.cfg IS NOT NULL AND r.id = $3 AND ",
    token!(),
    " AND least(t.now + $4, r.lease_until) > r.expires_at",
    returning!("true"),
    answer!(),
);

/// `$3` id.
pub(super) const WITHDRAW: Statement = statement!(
    8,
    found!(),
    ", got AS (DELETE FROM semel_record r USING t WHERE t.cfg IS NOT NULL AND r.id = $3 AND ",
    token!(),
    returning!("true"),
    answer_and_tell!(),
);

/// `$3` id, `$4` the state it should be in.
pub(super) const DELETE: Statement = statement!(
    9,
    found!(),
    ", got AS (DELETE FROM semel_record r USING t WHERE t.cfg IS NOT NULL AND r.id = $3 AND ",
    here!("r"),
    " AND r.state = $4 AND r.state IN (0, 2, 4)",
    returning!("true"),
    answer_and_tell!(),
);

/// `$3` id, `$4` fence. Somebody waits: whoever changes the record is to say so.
pub(super) const WATCH: Statement = statement!(
    10,
    found!(),
    ", got AS (UPDATE semel_record r SET flags = r.flags | 8 FROM t WHERE t.cfg IS NOT NULL AND r.id = $3 AND ",
    here!("r"),
    " AND r.state = 1 AND r.fence = $4 AND r.flags & 8 = 0",
    returning!("true"),
    answer!(),
);

/// `$3` id.
pub(super) const GET: Statement = statement!(
    11,
    found!(),
    " SELECT t.now, NULL::bigint, NULL::integer, NULL::bigint, NULL::boolean, f.v, f.state, f.flags, f.fp_v, f.fp, f.owner, \
     f.fence, f.attempt, f.lease_until, f.expires_at, f.rest FROM t LEFT JOIN found f ON true",
);

/// `$3` ids, `$4` owners, `$5` fences, `$6` leases, `$7` keeps: one row per claim, in their order. The row of a claim that
/// was renewed comes with its new lease and without its rest.
pub(super) const RENEW: Statement = statement!(
    12,
    ", asked AS MATERIALIZED (SELECT a.* FROM unnest($3, $4, $5, $6, $7) WITH ORDINALITY \
     AS a (id, owner, fence, lease, keep, n))",
    ", got AS (UPDATE semel_record r \
     SET lease_until = greatest(r.lease_until, least(t.now + a.lease, r.expires_at - a.keep)) \
     FROM t, asked a WHERE t.cfg IS NOT NULL AND r.id = a.id AND r.owner = a.owner AND r.fence = a.fence AND r.state = 1 AND ",
    here!("r"),
    " RETURNING a.n, r.lease_until)",
    " SELECT t.now, got.lease_until, f.v, f.state, f.flags, f.fp_v, f.fp, f.owner, f.fence, f.attempt, f.lease_until, \
     f.expires_at, CASE WHEN got.lease_until IS NULL THEN f.rest END \
     FROM t CROSS JOIN asked a LEFT JOIN got ON got.n = a.n LEFT JOIN semel_record f ON f.id = a.id ORDER BY a.n",
);

/// `$3` at most.
pub(super) const PURGE: Statement = statement!(
    13,
    ", gone AS (DELETE FROM semel_record r USING t WHERE t.cfg IS NOT NULL AND r.id = ANY (ARRAY( \
     SELECT x.id FROM semel_record x WHERE ",
    ended!("x"),
    " ORDER BY x.expires_at LIMIT $3 FOR UPDATE SKIP LOCKED)) \
     RETURNING r.id, r.namespace, r.kind, r.state IN (1, 3) AS unresolved)",
    " SELECT (SELECT count(*) FROM gone), g.id, g.namespace, g.kind FROM t LEFT JOIN gone g ON g.unresolved",
);

/// `$3` after this id, `$4` namespace, `$5` rule, `$6` state (empty, empty, -1: all), `$7` at most, `$8` how many rows to
/// look at.
pub(super) const LIST: Statement = statement!(
    14,
    ", page AS MATERIALIZED (SELECT r.id, r.v, r.state, r.flags, r.lease_until, r.expires_at, r.namespace, r.rule \
     FROM semel_record r WHERE r.id > $3 ORDER BY r.id LIMIT $8), \
     hit AS MATERIALIZED (SELECT p.id FROM page p, t WHERE NOT ",
    ended!("p"),
    " AND ($4 = '' OR p.namespace = $4) AND ($5 = '' OR p.rule = $5) AND ($6 = -1 OR $6 = CASE WHEN NOT ",
    readable!("p"),
    " THEN 1 WHEN p.state = 1 AND p.lease_until <= t.now AND p.flags & 2 = 0 THEN 3 ELSE p.state END) \
     ORDER BY p.id LIMIT $7) \
     SELECT t.now, (SELECT count(*) FROM page), (SELECT p.id FROM page p ORDER BY p.id DESC LIMIT 1), f.id, f.namespace, \
     f.kind, f.v, f.state, f.flags, f.fp_v, f.fp, f.owner, f.fence, f.attempt, f.lease_until, f.expires_at, f.rest \
     FROM t LEFT JOIN (hit h JOIN semel_record f ON f.id = h.id) ON true ORDER BY f.id",
);

pub(super) const HEALTH: Statement = statement!(
    15,
    " SELECT t.now, pg_is_in_recovery(), current_setting('default_transaction_read_only') = 'on', \
     pg_total_relation_size('semel_record'), (SELECT m.mark FROM semel_mark m) FROM t",
);

/// `$3` the mark, for a store that has none.
pub(super) const PUT_MARK: Statement = statement!(
    16,
    ", put AS (INSERT INTO semel_mark (mark) SELECT $3 FROM t WHERE t.cfg IS NOT NULL ON CONFLICT (one) DO NOTHING \
     RETURNING mark) SELECT (SELECT mark FROM put) FROM t",
);

/// `$3` a line. The last ten thousand are kept; of those before, some go with each line that comes, so that a table that grew
/// for long shrinks bit by bit. Nobody waits for another one who does the same.
pub(super) const AUDIT: Statement = statement!(
    17,
    ", gone AS (DELETE FROM semel_audit WHERE n = ANY (ARRAY(SELECT a.n FROM semel_audit a \
     WHERE a.n <= (SELECT max(n) FROM semel_audit) - 9999 ORDER BY a.n LIMIT 500 FOR UPDATE SKIP LOCKED))), \
     put AS (INSERT INTO semel_audit (line) SELECT $3 FROM t WHERE t.cfg IS NOT NULL RETURNING n) \
     SELECT (SELECT n FROM put) FROM t",
);

/// `$3` at most.
pub(super) const AUDITED: Statement = statement!(
    18,
    " SELECT a.line FROM t LEFT JOIN (SELECT n, line FROM semel_audit ORDER BY n DESC LIMIT $3) a ON true ORDER BY a.n DESC",
);

/// `$3` what to say.
pub(super) const NOTIFY: Statement = statement!(19, " SELECT pg_notify('semel', $3)::text FROM t");

/// `$3` id, `$4` version, `$5` state, `$6` flags, `$7` `$8` fingerprint, `$9` owner, `$10` fence, `$11` attempt, `$12` lease's
/// end, `$13` expiry, `$14` rest, `$15` namespace, `$16` kind.
#[cfg(feature = "testing")]
pub(super) const PLANT: Statement = statement!(
    20,
    ", gone AS (DELETE FROM semel_record WHERE id = $3 AND $4 < 0), put AS (INSERT INTO semel_record AS r (id, v, state, \
     flags, fp_v, fp, owner, fence, attempt, lease_until, expires_at, rest, namespace, kind, rule) \
     SELECT $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, '' FROM t WHERE $4 >= 0",
    overwrite_all!(),
    ") SELECT now FROM t",
);
