//! Keyset pages over sorted rows.

use domain::error::StoreError;
use domain::page::{MAX_PAGE_BYTES, Page, PageRequest, PageToken};

/// What rows are sorted by: microseconds, then what breaks ties (text that sorts as it should).
pub(crate) type Key = (i64, String);

/// Sorts rows and cuts out the page. A token names the listing it is for.
pub(crate) fn cut<T>(
    listing: &str,
    request: &PageRequest,
    descending: bool,
    rows: impl Iterator<Item = (Key, T)>,
) -> Result<Page<T>, StoreError> {
    cut_within(listing, request, descending, rows, |_| true)
}

/// The same, but the page ends before what is stored of its rows exceeds [`MAX_PAGE_BYTES`].
pub(crate) fn cut_bytes<T>(
    listing: &str,
    request: &PageRequest,
    descending: bool,
    rows: impl Iterator<Item = (Key, T)>,
    bytes: impl Fn(&T) -> usize,
) -> Result<Page<T>, StoreError> {
    let mut left = MAX_PAGE_BYTES;
    let fits = |row: &T| {
        let rest = left.checked_sub(bytes(row));
        left = rest.unwrap_or_default();
        rest.is_some()
    };
    cut_within(listing, request, descending, rows, fits)
}

/// The same, but the page ends before the first row that does not fit, though never before its first row.
fn cut_within<T>(
    listing: &str,
    request: &PageRequest,
    descending: bool,
    rows: impl Iterator<Item = (Key, T)>,
    mut fits: impl FnMut(&T) -> bool,
) -> Result<Page<T>, StoreError> {
    let after = request
        .after
        .as_ref()
        .map(|token| parse(listing, token).ok_or(StoreError::InvalidPageToken))
        .transpose()?;
    let mut rows: Vec<(Key, T)> = rows
        .filter(|(key, _)| match &after {
            None => true,
            Some(after) if descending => key < after,
            Some(after) => key > after,
        })
        .collect();
    rows.sort_by(|(one, _), (two, _)| one.cmp(two));
    if descending {
        rows.reverse();
    }
    let fitting = rows.iter().take_while(|(_, row)| fits(row)).count();
    let most = fitting.clamp(1, request.limit.get());
    let more = rows.len() > most;
    rows.truncate(most);
    let next = rows
        .last()
        .filter(|_| more)
        .map(|((key, tie), _)| PageToken(format!("{listing}|{key}|{tie}")));
    Ok(Page {
        items: rows.into_iter().map(|(_, row)| row).collect(),
        next,
    })
}

fn parse(listing: &str, token: &PageToken) -> Option<Key> {
    let rest = token.0.strip_prefix(listing)?.strip_prefix('|')?;
    let (key, tie) = rest.split_once('|')?;
    Some((key.parse().ok()?, tie.to_owned()))
}
