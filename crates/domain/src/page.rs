//! Keyset pagination, which is stable under inserts and deletes.

use std::fmt;

/// Bytes of stored documents after which a page ends, whatever its limit. Events contain the output of tools, and start
/// tasks contain requests of clients. A page always holds its first item. Requests are limited on arrival, so pages of
/// other items stay smaller.
pub const MAX_PAGE_BYTES: usize = 2 * 1024 * 1024;

/// Maximum number of items of a page: 1 to 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageLimit(u8);

impl PageLimit {
    /// The maximum, which is also the default.
    pub const MAX: Self = Self(100);

    /// `None` outside 1..=100.
    pub fn new(limit: i64) -> Option<Self> {
        u8::try_from(limit)
            .ok()
            .filter(|n| (1..=100).contains(n))
            .map(Self)
    }

    pub fn get(self) -> usize {
        usize::from(self.0)
    }
}

impl Default for PageLimit {
    fn default() -> Self {
        Self::MAX
    }
}

/// An opaque token of an adapter for the start of the next page. An adapter refuses a token that it did not issue with
/// its `InvalidPageToken` error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageToken(pub String);

impl fmt::Display for PageToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PageRequest {
    /// Token of the page; `None` requests the first page.
    pub after: Option<PageToken>,
    pub limit: PageLimit,
}

/// One page of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Token of the next page; `None` on the last page.
    pub next: Option<PageToken>,
}

impl<T> Page<T> {
    pub fn map<U>(self, convert: impl FnMut(T) -> U) -> Page<U> {
        Page {
            items: self.items.into_iter().map(convert).collect(),
            next: self.next,
        }
    }

    /// Converts every item, or returns the first failure.
    pub fn try_map<U, E>(self, convert: impl FnMut(T) -> Result<U, E>) -> Result<Page<U>, E> {
        Ok(Page {
            items: self
                .items
                .into_iter()
                .map(convert)
                .collect::<Result<_, E>>()?,
            next: self.next,
        })
    }
}
