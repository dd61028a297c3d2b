//! Statements whose SQL text is generated once.
//!
//! Diesel walks all parts of a statement at each use, to generate its SQL text and its binds. For the frequent listings, with 36
//! columns, that took a twentieth of the request. Here diesel generates the statement once, with its types. The cache holds the
//! parts of its text between the binds.

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

/// Binds of a statement: two texts and the row limit.
const BINDS: usize = 3;

/// The SQL text before, between and after the binds. Each statement has one static per database.
pub(crate) type StatementParts = OnceLock<[String; BINDS + 1]>;

/// A statement with these columns and its binds in this order. `MakeQuery` is the closure type that builds the query; it
/// identifies the statement, because connections cache prepared statements by type.
pub(crate) struct CachedStatement<'a, MakeQuery, Columns> {
    parts: &'static [String; BINDS + 1],
    texts: [&'a str; BINDS - 1],
    limit: i64,
    types: PhantomData<fn(MakeQuery) -> Columns>,
}

/// The syntax of bind placeholders in a database.
pub(crate) trait Placeholders: Backend<QueryBuilder: Default> {
    /// Placeholders in the order of the binds.
    const PLACEHOLDERS: [&'static str; BINDS];
    /// The backend value that generates SQL text.
    const BACKEND: Self;
}

impl Placeholders for Sqlite {
    const PLACEHOLDERS: [&'static str; BINDS] = ["?"; BINDS];
    const BACKEND: Self = Self;
}

#[cfg(feature = "postgres")]
impl Placeholders for diesel::pg::Pg {
    const PLACEHOLDERS: [&'static str; BINDS] = ["$1", "$2", "$3"];
    const BACKEND: Self = Self;
}

/// Returns the statement of `query` with these texts and this limit as binds. Calls `query` once.
pub(crate) fn cached_statement<'a, C, Q, MakeQuery>(
    _conn: &C,
    parts: &'static StatementParts,
    query: MakeQuery,
    (texts, limit): ([&'a str; BINDS - 1], i64),
) -> QueryResult<CachedStatement<'a, MakeQuery, Q::SqlType>>
where
    MakeQuery: FnOnce() -> Q,
    C: Connection<Backend: Placeholders>,
    Q: Query + QueryFragment<C::Backend>,
{
    let parts = if let Some(parts) = parts.get() {
        parts
    } else {
        let generated = split_at_binds::<C::Backend>(&query())?;
        parts.get_or_init(|| generated)
    };
    Ok(CachedStatement {
        parts,
        texts,
        limit,
        types: PhantomData,
    })
}

fn split_at_binds<DB: Placeholders>(
    query: &impl QueryFragment<DB>,
) -> QueryResult<[String; BINDS + 1]> {
    let mut builder = DB::QueryBuilder::default();
    query.to_sql(&mut builder, &DB::BACKEND)?;
    let (mut parts, text) = (<[String; BINDS + 1]>::default(), builder.finish());
    let mut rest = text.as_str();
    for (part, placeholder) in parts.iter_mut().zip(DB::PLACEHOLDERS) {
        let (before, after) = rest
            .split_once(placeholder)
            .ok_or_else(|| wrong_bind_count("fewer"))?;
        before.clone_into(part);
        rest = after;
    }
    // Only the first character of a placeholder, because the number after a further `$` is another one.
    if rest.contains(&DB::PLACEHOLDERS[0][..1]) {
        return Err(wrong_bind_count("more"));
    }
    rest.clone_into(&mut parts[BINDS]);
    Ok(parts)
}

fn wrong_bind_count(comparison: &str) -> Error {
    let text = format!("a cached statement must have {BINDS} binds, but has {comparison}");
    Error::QueryBuilderError(text.into())
}

impl<MakeQuery, Columns, DB> QueryFragment<DB> for CachedStatement<'_, MakeQuery, Columns>
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

impl<MakeQuery: 'static, Columns: 'static> QueryId for CachedStatement<'_, MakeQuery, Columns> {
    type QueryId = CachedStatement<'static, MakeQuery, Columns>;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl<MakeQuery, Columns> Query for CachedStatement<'_, MakeQuery, Columns> {
    type SqlType = Columns;
}

impl<MakeQuery, Columns, C> RunQueryDsl<C> for CachedStatement<'_, MakeQuery, Columns> {}

#[cfg(test)]
mod tests {
    use diesel::prelude::*;
    use diesel::sqlite::SqliteConnection;

    use super::*;
    use crate::schema::sandboxes;

    #[test]
    fn a_statement_is_split_at_its_binds() {
        let query = sandboxes::table
            .select(sandboxes::id)
            .filter(sandboxes::owner.eq("x"))
            .filter(sandboxes::desired.ne("y"))
            .limit(7);
        let [first, second, third, last] = split_at_binds::<Sqlite>(&query).unwrap();
        assert!(
            first.ends_with("`owner` = ") || first.ends_with("`owner` = ("),
            "{first}"
        );
        assert!(second.contains("`desired` != "), "{second}");
        assert!(third.contains("LIMIT "), "{third}");
        assert!(!last.contains('?'), "{last}");
    }

    #[test]
    fn another_number_of_binds_is_refused() {
        static FEWER: StatementParts = StatementParts::new();
        static MORE: StatementParts = StatementParts::new();
        let conn = SqliteConnection::establish(":memory:").unwrap();
        let ids = || sandboxes::table.select(sandboxes::id).limit(1);
        let bound = (["", ""], 1);
        let fewer = cached_statement(
            &conn,
            &FEWER,
            || ids().filter(sandboxes::owner.eq("x")),
            bound,
        );
        assert!(fewer.is_err());
        let more = || {
            let query = ids().filter(sandboxes::owner.eq("x"));
            query.filter(sandboxes::desired.ne("y")).offset(3)
        };
        assert!(cached_statement(&conn, &MORE, more, bound).is_err());
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn a_fourth_numbered_bind_is_refused() {
        let query = || {
            let query = sandboxes::table.select(sandboxes::id);
            let query = query.filter(sandboxes::owner.eq("x"));
            query.filter(sandboxes::desired.ne("y")).limit(1)
        };
        assert!(split_at_binds::<diesel::pg::Pg>(&query()).is_ok());
        assert!(split_at_binds::<diesel::pg::Pg>(&query().offset(3)).is_err());
    }

    #[test]
    fn statements_with_the_same_columns_are_distinct() {
        static ONE: StatementParts = StatementParts::new();
        static TWO: StatementParts = StatementParts::new();
        let mut conn = SqliteConnection::establish(":memory:").unwrap();
        let table = "CREATE TABLE sandboxes (id TEXT, owner TEXT, desired TEXT)";
        diesel::sql_query(table).execute(&mut conn).unwrap();
        let rows = "INSERT INTO sandboxes VALUES ('1', 'a', 'b'), ('2', 'b', 'a')";
        diesel::sql_query(rows).execute(&mut conn).unwrap();
        let ids = || sandboxes::table.select(sandboxes::id).limit(1);
        let one = move || {
            let query = ids().filter(sandboxes::owner.eq(""));
            query.filter(sandboxes::desired.eq(""))
        };
        let two = move || {
            let query = ids().filter(sandboxes::desired.eq(""));
            query.filter(sandboxes::owner.eq(""))
        };
        let bound = (["a", "b"], 1);
        let first = cached_statement(&conn, &ONE, one, bound).unwrap();
        let first: Vec<String> = first.load(&mut conn).unwrap();
        let second = cached_statement(&conn, &TWO, two, bound).unwrap();
        let second: Vec<String> = second.load(&mut conn).unwrap();
        assert_eq!(
            (first, second),
            (vec!["1".to_owned()], vec!["2".to_owned()])
        );
    }
}
