//! Keyset tokens: `base64url(v1|listing|sort key|id)`. They are opaque to clients, versioned, and valid only for the listing
//! (and its order) that issued them. They are not authenticated, because a token only names a position in what its scope may
//! read anyway.

use std::fmt::Display;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use domain::clock::Timestamp;
use domain::error::StoreError;
use domain::page::{MAX_PAGE_BYTES, Page, PageLimit, PageRequest, PageToken};

use crate::schema::codec::row_limit;
use crate::schema::column_types::TimestampCol;

const VERSION: &str = "v1";

/// The position after which a page begins: the time of the last row, and its id or sequence number as a tie-breaker.
pub(crate) type Cursor<T> = (TimestampCol, T);

fn encode<T: Display>(listing: &str, (key, tie): &Cursor<T>) -> PageToken {
    let position = format!("{VERSION}|{listing}|{}|{tie}", key.0.micros());
    PageToken(URL_SAFE_NO_PAD.encode(position))
}

/// The cursor of a request, `None` for a first page.
pub(crate) fn decode<T: FromStr>(
    listing: &str,
    request: &PageRequest,
) -> Result<Option<Cursor<T>>, StoreError> {
    let token = request.after.as_ref();
    token
        .map(|token| parse(listing, token).ok_or(StoreError::InvalidPageToken))
        .transpose()
}

fn parse<T: FromStr>(listing: &str, token: &PageToken) -> Option<Cursor<T>> {
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(&token.0).ok()?).ok()?;
    let mut parts = text.splitn(4, '|');
    let (version, issuer) = (parts.next()?, parts.next()?);
    let (key, tie) = (parts.next()?, parts.next()?);
    (version == VERSION && issuer == listing).then_some(())?;
    let key = Timestamp::from_micros(key.parse().ok()?);
    Some((TimestampCol(key), tie.parse().ok()?))
}

/// Orders a boxed query by a key and its tie-breaker, `asc` or `desc`, and begins after the cursor. The second part of the
/// condition implies the first one, which lets the database seek in the index.
macro_rules! keyset {
    (asc, $($query:tt)*) => {
        $crate::queries::page_token::keyset!(@ge gt asc $($query)*)
    };
    (desc, $($query:tt)*) => {
        $crate::queries::page_token::keyset!(@le lt desc $($query)*)
    };
    (@$reaches:ident $passes:ident $direction:ident $query:expr, $key:expr, $tie:expr, $after:expr) => {{
        let query = match $after {
            None => $query,
            Some((key, tie)) => $query.filter(
                $key.$reaches(key)
                    .and($key.$passes(key).or($tie.$passes(tie))),
            ),
        };
        query.order(($key.$direction(), $tie.$direction()))
    }};
}
pub(crate) use keyset;

/// Number of rows to load for a page: one more than its limit, which shows whether there is a next page.
pub(crate) fn rows_to_load(request: &PageRequest) -> i64 {
    row_limit(request.limit.get()).saturating_add(1)
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

/// The request with its limit reduced to the number of documents that fit [`MAX_PAGE_BYTES`], at least one.
pub(crate) fn limit_by_bytes<N: Copy + TryInto<usize>>(
    request: &PageRequest,
    sizes: impl IntoIterator<Item = N>,
) -> PageRequest {
    let fitting = count_within(MAX_PAGE_BYTES, sizes).min(request.limit.get());
    PageRequest {
        after: request.after.clone(),
        limit: PageLimit::new(row_limit(fitting)).unwrap_or(request.limit),
    }
}

/// Builds a page of loaded rows, of which there are at most [`rows_to_load`].
pub(crate) fn build_page<R, T: Display>(
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
        let cursor = (TimestampCol(Timestamp::from_micros(-5)), "a|b".to_owned());
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
