//! Keyset paging: stable under inserts and deletes.

use std::fmt;

/// Bytes of stored documents after which a page ends, whatever its limit: events carry what tools printed, start tasks what
/// clients sent. The first item of a page always fits. What clients send is limited at the door, so that pages of all other
/// items stay below it.
pub const MAX_PAGE_BYTES: usize = 2 * 1024 * 1024;

/// How many items a page may hold: 1 to 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageLimit(u8);

impl PageLimit {
    /// The largest page, and the default.
    pub const MAX: Self = Self(100);

    /// `None` outside 1..=100.
    pub fn new(limit: i64) -> Option<Self> {
        u8::try_from(limit)
            .ok()
            .filter(|n| (1..=100).contains(n))
            .map(Self)
    }

    /// The number of items.
    pub fn get(self) -> usize {
        usize::from(self.0)
    }
}

impl Default for PageLimit {
    fn default() -> Self {
        Self::MAX
    }
}

/// Opaque text that an adapter minted: where the next page begins. An adapter answers a token it did not mint with its
/// `InvalidPageToken` error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageToken(pub String);

impl fmt::Display for PageToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What page is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PageRequest {
    /// Start after this point; `None` is the first page.
    pub after: Option<PageToken>,
    /// At most so many items.
    pub limit: PageLimit,
}

/// One page of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// The items, in the order asked for.
    pub items: Vec<T>,
    /// Where the next page begins; `None` on the last page.
    pub next: Option<PageToken>,
}

impl<T> Page<T> {
    /// The same page with every item converted.
    pub fn map<U>(self, convert: impl FnMut(T) -> U) -> Page<U> {
        Page {
            items: self.items.into_iter().map(convert).collect(),
            next: self.next,
        }
    }

    /// The same page with every item converted, or the first failure.
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
