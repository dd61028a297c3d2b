//! Functions of SQL for texts.

use diesel::sql_types::Text;

diesel::define_sql_function! {
    /// Folds only ASCII letters: `SQLite` always does, Postgres does so with the collation of the column.
    fn lower(text: Text) -> Text;
}

diesel::define_sql_function! {
    /// Equal in both databases. Unlike `LIKE`, it has no wildcards.
    fn replace(text: Text, needle: Text, by: Text) -> Text;
}
