//! A selected expression that diesel cannot build.

use std::marker::PhantomData;

use diesel::backend::Backend;
use diesel::expression::{AppearsOnTable, SelectableExpression, ValidGrouping, is_aggregate};
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};

/// SQL text of type `ST` without binds. Unlike `diesel::dsl::sql`, it lets connections cache the prepared statement.
#[derive(Clone, Copy)]
pub(crate) struct StaticSql<ST>(&'static str, PhantomData<ST>);

impl<ST> StaticSql<ST> {
    pub(crate) const fn new(text: &'static str) -> Self {
        Self(text, PhantomData)
    }
}

impl<ST: diesel::sql_types::SingleValue> Expression for StaticSql<ST> {
    type SqlType = ST;
}

impl<ST, From> AppearsOnTable<From> for StaticSql<ST> where Self: Expression {}
impl<ST, From> SelectableExpression<From> for StaticSql<ST> where Self: Expression {}

impl<ST, GroupBy> ValidGrouping<GroupBy> for StaticSql<ST> {
    type IsAggregate = is_aggregate::Never;
}

impl<ST, DB: Backend> QueryFragment<DB> for StaticSql<ST> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql(self.0);
        Ok(())
    }
}

impl<ST> QueryId for StaticSql<ST> {
    type QueryId = ();
    // The text identifies the statement.
    const HAS_STATIC_QUERY_ID: bool = false;
}
