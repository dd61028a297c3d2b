//! Parts of statements and listings.

pub(crate) mod delete_rows;
pub(crate) mod page_token;
pub(crate) mod static_sql;
pub(crate) mod text_functions;

/// Adds a condition to a boxed query for each value that is set.
macro_rules! filter_by {
    ($query:ident, $($given:expr => |$value:ident| $condition:expr;)*) => {$(
        if let Some($value) = $given {
            $query = $query.filter($condition);
        }
    )*};
}
pub(crate) use filter_by;
