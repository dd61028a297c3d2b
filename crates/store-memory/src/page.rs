//! Keyset pages of sorted rows.

use domain::error::StoreError;
use domain::page::{MAX_PAGE_BYTES, Page, PageRequest, PageToken};

/// The sort key of rows: microseconds, then a text that breaks ties.
pub(crate) type SortKey = (i64, String);

/// Sorts rows and returns the requested page. Its token is valid only for the same listing.
pub(crate) fn page_by_count<T>(
    listing: &str,
    request: &PageRequest,
    descending: bool,
    rows: impl Iterator<Item = (SortKey, T)>,
) -> Result<Page<T>, StoreError> {
    page_within(listing, request, descending, rows, |_| true)
}

/// Like [`page_by_count`], but the page ends before its rows exceed [`MAX_PAGE_BYTES`].
pub(crate) fn page_by_bytes<T>(
    listing: &str,
    request: &PageRequest,
    descending: bool,
    rows: impl Iterator<Item = (SortKey, T)>,
    bytes: impl Fn(&T) -> usize,
) -> Result<Page<T>, StoreError> {
    let mut remaining = MAX_PAGE_BYTES;
    let fits = |row: &T| {
        let rest = remaining.checked_sub(bytes(row));
        remaining = rest.unwrap_or_default();
        rest.is_some()
    };
    page_within(listing, request, descending, rows, fits)
}

/// Like [`page_by_count`], but the page ends before the first row that does not fit. It holds at least one row.
fn page_within<T>(
    listing: &str,
    request: &PageRequest,
    descending: bool,
    rows: impl Iterator<Item = (SortKey, T)>,
    mut fits: impl FnMut(&T) -> bool,
) -> Result<Page<T>, StoreError> {
    let after = request
        .after
        .as_ref()
        .map(|token| parse(listing, token).ok_or(StoreError::InvalidPageToken))
        .transpose()?;
    let mut rows: Vec<(SortKey, T)> = rows
        .filter(|(key, _)| match &after {
            None => true,
            Some(after) if descending => key < after,
            Some(after) => key > after,
        })
        .collect();
    rows.sort_by(|(a, _), (b, _)| a.cmp(b));
    if descending {
        rows.reverse();
    }
    let fitting = rows.iter().take_while(|(_, row)| fits(row)).count();
    let limit = fitting.clamp(1, request.limit.get());
    let has_more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows
        .last()
        .filter(|_| has_more)
        .map(|((key, tie), _)| PageToken(format!("{listing}|{key}|{tie}")));
    Ok(Page {
        items: rows.into_iter().map(|(_, row)| row).collect(),
        next,
    })
}

fn parse(listing: &str, token: &PageToken) -> Option<SortKey> {
    let rest = token.0.strip_prefix(listing)?.strip_prefix('|')?;
    let (key, tie) = rest.split_once('|')?;
    Some((key.parse().ok()?, tie.to_owned()))
}
