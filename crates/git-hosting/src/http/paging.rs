//! How APIs page their lists.

/// How an API pages its lists.
#[derive(Debug)]
pub(crate) struct Paging {
    /// Query parameters of a page's position and length.
    pub(crate) position: &'static str,
    pub(crate) length: &'static str,
    /// Longest page.
    pub(crate) max_items: usize,
    pub(crate) next: NextPage,
}

/// Where a response names the next page.
#[derive(Debug, Clone, Copy)]
pub(crate) enum NextPage {
    /// The header `Link` has a link with `rel="next"`. Pages have numbers.
    Link,
    /// This header has its number.
    NumberHeader(&'static str),
    /// The member `next` is its URL. Only the number in it is used, so that the token cannot go to another host.
    NumberInUrl,
    /// The member `nextPageStart` is its offset, which need not be a multiple of the length.
    Offset,
    /// This header has an opaque token. The first page has none.
    TokenHeader(&'static str),
}
