//! Building blocks of listings: keyset tokens and statements whose SQL text is cached.

pub(crate) mod cached_statement;
pub(crate) mod owner_lists;
pub(crate) mod page_token;
