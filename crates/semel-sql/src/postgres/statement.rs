//! A statement's arguments, and the two ways to send it.
//!
//! *Prepared*: parsed once per connection, arguments in binary. Behind a pooler that hands each transaction to another
//! server connection that cannot work (sqlx parses and executes in two exchanges even where the statement has no name).
//! *Plain*: arguments written into the text, in one simple query. Both take one round trip and one transaction.

use std::fmt::Write;

use sqlx::{AssertSqlSafe, PgConnection, Postgres, postgres::PgRow};

use super::sql::Statement;

/// An argument.
#[derive(Clone, Debug)]
pub(super) enum Arg<'a> {
    Bytes(&'a [u8]),
    Int(i64),
    Bool(bool),
    Text(&'a str),
    Ids(Vec<&'a [u8]>),
    Ints(Vec<i64>),
}

/// Sends it prepared. The rows are read to the end of the transaction: before that nothing is durable, not even where a
/// row came already.
pub(super) async fn prepared(
    connection: &mut PgConnection,
    statement: &Statement,
    lock: &str,
    args: &[Arg<'_>],
) -> sqlx::Result<Vec<PgRow>> {
    let mut query = sqlx::query::<Postgres>(statement.sql).bind(statement.tag).bind(lock);
    for arg in args {
        query = match arg {
            Arg::Bytes(bytes) => query.bind(*bytes),
            Arg::Int(n) => query.bind(*n),
            Arg::Bool(b) => query.bind(*b),
            Arg::Text(text) => query.bind(*text),
            Arg::Ids(ids) => query.bind(ids.as_slice()),
            Arg::Ints(ints) => query.bind(ints.as_slice()),
        };
    }
    query.fetch_all(connection).await
}

/// Sends it as text.
pub(super) async fn plain(
    connection: &mut PgConnection,
    statement: &Statement,
    lock: &str,
    args: &[Arg<'_>],
) -> sqlx::Result<Vec<PgRow>> {
    let text = text(statement, lock, args);
    sqlx::raw_sql(AssertSqlSafe(text)).fetch_all(connection).await
}

/// The statement with its arguments written out. Every `$` in a statement's text begins the number of an argument.
pub(super) fn text(statement: &Statement, lock: &str, args: &[Arg<'_>]) -> String {
    let payload: usize = args.iter().map(|arg| if let Arg::Bytes(b) = arg { 2 * b.len() } else { 0 }).sum();
    let mut out = String::with_capacity(statement.sql.len() + payload + 2_000);
    let mut rest = statement.sql;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number: usize = rest[..digits].parse().unwrap_or(0);
        rest = &rest[digits..];
        match number {
            1 => literal(&mut out, &Arg::Int(statement.tag)),
            2 => literal(&mut out, &Arg::Text(lock)),
            n => literal(&mut out, &args[n - 3]),
        }
    }
    out.push_str(rest);
    out
}

/// Nothing of an argument is ever read as SQL: bytes and text go as hexadecimal digits.
fn literal(out: &mut String, arg: &Arg<'_>) {
    match arg {
        // With E'' it means the same whatever `standard_conforming_strings` is.
        Arg::Bytes(bytes) => write!(out, r"E'\\x{}'::bytea", const_hex::display(bytes)).unwrap_or_default(),
        Arg::Int(n) => write!(out, "({n})::bigint").unwrap_or_default(),
        Arg::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Arg::Text(text) => {
            out.push_str("convert_from(");
            literal(out, &Arg::Bytes(text.as_bytes()));
            out.push_str(", 'UTF8')");
        }
        Arg::Ids(ids) => {
            out.push_str("ARRAY[");
            for (n, id) in ids.iter().enumerate() {
                out.push_str(if n > 0 { "," } else { "" });
                literal(out, &Arg::Bytes(id));
            }
            out.push_str("]::bytea[]");
        }
        Arg::Ints(ints) => {
            out.push_str("ARRAY[");
            for (n, int) in ints.iter().enumerate() {
                write!(out, "{}{int}", if n > 0 { "," } else { "" }).unwrap_or_default();
            }
            out.push_str("]::bigint[]");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: Statement = Statement { tag: 7, sql: "SELECT $1, $2, $3, $12 + $3, 'x'" };

    #[test]
    fn arguments_are_written_where_their_numbers_stand() {
        let mut args = vec![Arg::Bytes(&[0xab, 0]), Arg::Bool(true)];
        args.extend((0..7).map(Arg::Int));
        args.push(Arg::Int(-5));
        let expected = "SELECT (7)::bigint, convert_from(E'\\\\x35'::bytea, 'UTF8'), E'\\\\xab00'::bytea, \
                        (-5)::bigint + E'\\\\xab00'::bytea, 'x'";
        assert_eq!(text(&TWO, "5", &args), expected);
    }

    #[test]
    fn no_text_can_end_its_literal() {
        let odd = "'; DROP TABLE semel_record; -- \\ $3 \u{1f600}";
        let out = text(&Statement { tag: 1, sql: "SELECT $3" }, "1", &[Arg::Text(odd)]);
        assert!(out.bytes().filter(|b| *b == b'\'').count() == 4 && !out.contains("DROP"), "{out}");
    }

    #[test]
    fn a_list_may_be_empty() {
        let out = text(&Statement { tag: 1, sql: "$3 $4" }, "1", &[Arg::Ids(vec![]), Arg::Ints(vec![1, -2])]);
        assert_eq!(out, "ARRAY[]::bytea[] ARRAY[1,-2]::bigint[]");
    }
}
