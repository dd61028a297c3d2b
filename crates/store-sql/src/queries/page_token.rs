//! Keyset tokens: `base64url(v1|listing|sort key|id)`. They are opaque to clients, versioned, and valid only for the listing
//! (and its order) that issued them. They are not authenticated, because a token only names a position in what its scope may
//! read anyway.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use domain::clock::Timestamp;
use domain::error::StoreError;
use domain::page::{MAX_PAGE_BYTES, Page, PageLimit, PageRequest, PageToken};

use crate::schema::column_types::TimestampCol;

const VERSION: &str = "v1";

/// The position after which a page begins: a sort key and its tie-breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cursor<T> {
    /// Time of the last row.
    pub(crate) key: TimestampCol,
    /// Id or sequence number of the last row.
    pub(crate) tie: T,
}

fn encode<T: std::fmt::Display>(listing: &str, cursor: &Cursor<T>) -> PageToken {
    PageToken(URL_SAFE_NO_PAD.encode(format!(
        "{VERSION}|{listing}|{}|{}",
        cursor.key.0.micros(),
        cursor.tie
    )))
}

/// The cursor of a request, `None` for a first page.
pub(crate) fn decode<T: std::str::FromStr>(
    listing: &str,
    request: &PageRequest,
) -> Result<Option<Cursor<T>>, StoreError> {
    request
        .after
        .as_ref()
        .map(|token| parse(listing, token).ok_or(StoreError::InvalidPageToken))
        .transpose()
}

fn parse<T: std::str::FromStr>(listing: &str, token: &PageToken) -> Option<Cursor<T>> {
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(&token.0).ok()?).ok()?;
    let mut parts = text.splitn(4, '|');
    let (version, issuer) = (parts.next()?, parts.next()?);
    let (key, tie) = (parts.next()?, parts.next()?);
    (version == VERSION && issuer == listing).then_some(())?;
    Some(Cursor {
        key: TimestampCol(Timestamp::from_micros(key.parse().ok()?)),
        tie: tie.parse().ok()?,
    })
}

/// The condition for rows beyond a cursor. The second part implies the first one, which lets the database seek in the index.
macro_rules! beyond {
    ($key:expr, $tie:expr, $reaches:ident, $passes:ident, $cursor_key:expr, $cursor_tie:expr) => {
        $key.$reaches($cursor_key)
            .and($key.$passes($cursor_key).or($tie.$passes($cursor_tie)))
    };
}
pub(crate) use beyond;

/// Number of rows to load for a page: one more than its limit, which shows whether there is a next page.
pub(crate) fn rows_to_load(request: &PageRequest) -> i64 {
    i64::try_from(request.limit.get()).map_or(i64::MAX, |limit| limit.saturating_add(1))
}

/// Number of documents whose sizes fit the budget together, at least one.
pub(crate) fn count_within<N: Copy + TryInto<usize>>(
    budget: usize,
    sizes: impl IntoIterator<Item = N>,
) -> usize {
    let mut remaining = budget;
    let fits = sizes.into_iter().take_while(|bytes| {
        let rest = remaining.checked_sub((*bytes).try_into().unwrap_or(usize::MAX));
        remaining = rest.unwrap_or_default();
        rest.is_some()
    });
    fits.count().max(1)
}

/// Reduces the limit to the number of documents that fit [`MAX_PAGE_BYTES`], at least one.
pub(crate) fn limit_by_bytes<N: Copy + TryInto<usize>>(
    limit: PageLimit,
    sizes: impl IntoIterator<Item = N>,
) -> PageLimit {
    let fitting = count_within(MAX_PAGE_BYTES, sizes).min(limit.get());
    let reduced = i64::try_from(fitting).ok().and_then(PageLimit::new);
    reduced.unwrap_or(limit)
}

/// Builds a page of loaded rows, of which there are at most [`rows_to_load`].
pub(crate) fn build_page<R, T: std::fmt::Display>(
    listing: &str,
    request: &PageRequest,
    mut rows: Vec<R>,
    cursor: impl Fn(&R) -> Cursor<T>,
) -> Page<R> {
    let limit = request.limit.get();
    let has_more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows
        .last()
        .filter(|_| has_more)
        .map(|last| encode(listing, &cursor(last)));
    Page { items: rows, next }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(token: &str) -> PageRequest {
        PageRequest {
            after: Some(PageToken(token.to_owned())),
            ..PageRequest::default()
        }
    }

    #[test]
    fn a_token_is_valid_only_for_the_listing_that_issued_it() {
        let cursor = Cursor {
            key: TimestampCol(Timestamp::from_micros(-5)),
            tie: "a|b".to_owned(),
        };
        let token = encode("list", &cursor);
        assert_eq!(decode("list", &after(&token.0)).unwrap(), Some(cursor));
        for (listing, token) in [
            ("other", token.0.as_str()),
            ("list", ""),
            ("list", "2"),
            ("list", "é\0"),
            ("list", &URL_SAFE_NO_PAD.encode("v2|list|1|a")),
            ("list", &URL_SAFE_NO_PAD.encode("v1|list|x|a")),
            ("list", &URL_SAFE_NO_PAD.encode([0xff, 0xfe])),
        ] {
            assert!(
                matches!(
                    decode::<String>(listing, &after(token)),
                    Err(StoreError::InvalidPageToken)
                ),
                "{listing} {token}"
            );
        }
    }
}
