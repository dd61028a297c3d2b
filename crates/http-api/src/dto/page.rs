//! The page of a search, as query parameters.

use domain::page::{PageLimit, PageRequest, PageToken};

use crate::decode::{DecodeFields, model};

macro_rules! page_queries {
    ($($(#[$doc:meta])* $name:ident: $limit:literal;)*) => {$(
        $(#[$doc])*
        #[model(query)]
        pub(crate) struct $name {
                    #[param(value_type = String, required = false)]
            pub page_id: Option<PageToken>,
            /// Maximum number of items on the page.
            #[decode(default = PageLimit::new($limit).unwrap_or_default())]
            #[param(value_type = i64, minimum = 1, maximum = 100, default = $limit)]
            pub limit: PageLimit,
        }

        impl From<$name> for PageRequest {
            fn from(query: $name) -> Self {
                Self {
                    after: query.page_id,
                    limit: query.limit,
                }
            }
        }
    )*};
}

page_queries! {
    /// `page_id` and `limit`, usually the maximum.
    PageQuery: 100;
    /// The page of names of models and providers.
    CataloguePageQuery: 50;
    /// The page of a list that is usually short.
    ShortPageQuery: 30;
}

/// A query, and the page of its matches.
#[model]
#[derive(Debug)]
pub(crate) struct Paged<T: DecodeFields, P: DecodeFields = PageQuery> {
    #[decode(flatten)]
    pub query: T,
    #[decode(flatten)]
    pub page: P,
}
