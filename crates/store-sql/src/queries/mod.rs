//! Parts of statements and listings.

pub(crate) mod delete_rows;
pub(crate) mod filter;
pub(crate) mod page_token;
pub(crate) mod static_sql;
