//! Statements whose text is put together once.
//!
//! Diesel goes through every part of a statement for each use, to see whether it may stay prepared and what is bound to it: of the
//! lists that front ends ask for all the time, with their 36 columns, that was a twentieth of the whole request. Here the statement
//! is diesel's own, with its types, and only its text is kept, in parts between what is bound.

use std::marker::PhantomData;
use std::sync::OnceLock;

use diesel::RunQueryDsl;
use diesel::backend::Backend;
use diesel::connection::Connection;
use diesel::query_builder::{AstPass, Query, QueryBuilder, QueryFragment, QueryId};
use diesel::result::{Error, QueryResult};
use diesel::serialize::ToSql;
use diesel::sql_types::{BigInt, HasSqlType, Text};
use diesel::sqlite::Sqlite;

/// Two texts and, last, how many rows.
const BOUND: usize = 3;

/// The text of a statement before, between and behind what is bound; one static for each statement and database.
pub(crate) type Parts = OnceLock<[String; BOUND + 1]>;

/// A statement with these columns, and what is bound to it in this order.
#[derive(Debug)]
pub(crate) struct Fixed<'a, Columns> {
    parts: &'static [String; BOUND + 1],
    texts: [&'a str; BOUND - 1],
    limit: i64,
    columns: PhantomData<Columns>,
}

/// How a database writes what is bound.
pub(crate) trait Marks: Backend<QueryBuilder: Default> {
    /// One after the other.
    const MARKS: [&'static str; BOUND];
    /// The database, to have a text written for it.
    const DATABASE: Self;
}

impl Marks for Sqlite {
    const MARKS: [&'static str; BOUND] = ["?"; BOUND];
    const DATABASE: Self = Self;
}

#[cfg(feature = "postgres")]
impl Marks for diesel::pg::Pg {
    const MARKS: [&'static str; BOUND] = ["$1", "$2", "$3"];
    const DATABASE: Self = Self;
}

/// What `query` asks, with the texts and the limit in the place of its own. `query` is made once.
pub(crate) fn fixed<'a, C, Q>(
    _conn: &C,
    parts: &'static Parts,
    query: impl FnOnce() -> Q,
    (texts, limit): ([&'a str; BOUND - 1], i64),
) -> QueryResult<Fixed<'a, Q::SqlType>>
where
    C: Connection<Backend: Marks>,
    Q: Query + QueryFragment<C::Backend>,
{
    let parts = if let Some(parts) = parts.get() {
        parts
    } else {
        let made = parts_of::<C::Backend>(&query())?;
        parts.get_or_init(|| made)
    };
    Ok(Fixed {
        parts,
        texts,
        limit,
        columns: PhantomData,
    })
}

fn parts_of<DB: Marks>(query: &impl QueryFragment<DB>) -> QueryResult<[String; BOUND + 1]> {
    let mut builder = DB::QueryBuilder::default();
    query.to_sql(&mut builder, &DB::DATABASE)?;
    let (mut parts, text) = (<[String; BOUND + 1]>::default(), builder.finish());
    let mut rest = text.as_str();
    for (part, mark) in parts.iter_mut().zip(DB::MARKS) {
        let found = rest.split_once(mark);
        let (before, behind) = found.ok_or_else(|| wrong("binds less than its place says"))?;
        before.clone_into(part);
        rest = behind;
    }
    if rest.contains(DB::MARKS[0]) {
        return Err(wrong("binds more than its place says"));
    }
    rest.clone_into(&mut parts[BOUND]);
    Ok(parts)
}

fn wrong(what: &str) -> Error {
    Error::QueryBuilderError(format!("a statement {what}").into())
}

impl<Columns, DB> QueryFragment<DB> for Fixed<'_, Columns>
where
    DB: Backend + HasSqlType<Text> + HasSqlType<BigInt>,
    str: ToSql<Text, DB>,
    i64: ToSql<BigInt, DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let [first, second, third, last] = self.parts;
        out.push_sql(first);
        out.push_bind_param::<Text, str>(self.texts[0])?;
        out.push_sql(second);
        out.push_bind_param::<Text, str>(self.texts[1])?;
        out.push_sql(third);
        out.push_bind_param::<BigInt, i64>(&self.limit)?;
        out.push_sql(last);
        Ok(())
    }
}

impl<Columns: 'static> QueryId for Fixed<'_, Columns> {
    type QueryId = Fixed<'static, Columns>;
    // Statements are remembered by connection, and no two have the same columns.
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl<Columns> Query for Fixed<'_, Columns> {
    type SqlType = Columns;
}

impl<Columns, C> RunQueryDsl<C> for Fixed<'_, Columns> {}

#[cfg(test)]
mod tests {
    use diesel::prelude::*;
    use diesel::sqlite::SqliteConnection;

    use super::*;
    use crate::schema::sandboxes;

    #[test]
    fn a_statement_is_taken_apart_where_something_is_bound() {
        let query = sandboxes::table
            .select(sandboxes::id)
            .filter(sandboxes::owner.eq("x"))
            .filter(sandboxes::desired.ne("y"))
            .limit(7);
        let [first, second, third, last] = parts_of::<Sqlite>(&query).unwrap();
        assert!(
            first.ends_with("`owner` = ") || first.ends_with("`owner` = ("),
            "{first}"
        );
        assert!(second.contains("`desired` != "), "{second}");
        assert!(third.contains("LIMIT "), "{third}");
        assert!(!last.contains('?'), "{last}");
    }

    #[test]
    fn one_that_binds_another_number_is_refused() {
        static LESS: Parts = Parts::new();
        static MORE: Parts = Parts::new();
        let conn = SqliteConnection::establish(":memory:").unwrap();
        let ids = || sandboxes::table.select(sandboxes::id).limit(1);
        let bound = (["", ""], 1);
        let less = fixed(
            &conn,
            &LESS,
            || ids().filter(sandboxes::owner.eq("x")),
            bound,
        );
        assert!(less.is_err());
        let more = || {
            let query = ids().filter(sandboxes::owner.eq("x"));
            query.filter(sandboxes::desired.ne("y")).offset(3)
        };
        assert!(fixed(&conn, &MORE, more, bound).is_err());
    }
}
