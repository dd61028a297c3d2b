//! Converts the pages of a provider to pages of any length without losing or repeating items.
//!
//! All requests of one walk through a list ask for the same page length, so that the provider's page numbers keep their
//! meaning. This also holds where the provider silently returns shorter pages. A page token contains the provider's page,
//! that length, and the number of items of the page that were returned already.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use domain::git::{GitError, GitPage, GitPageRequest};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Provider pages that one call of [`page`] may fetch.
pub(crate) const MAX_FETCHES: usize = 5;
/// Longest page that a client can ask for.
const MAX_PAGE_LIMIT: usize = 100;
/// Longest page token that is decoded, in bytes. Issued tokens are much shorter.
const MAX_TOKEN_BYTES: usize = 4096;

/// A page of the provider.
#[derive(Debug, Default)]
pub(crate) struct ProviderPage {
    pub(crate) values: Vec<Value>,
    /// The provider's cursor of the next page; `None` on the last page.
    pub(crate) next: Option<String>,
}

/// Identifies a list. A token of one list is invalid in another.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ListId(u64);

impl ListId {
    /// `parts` are all values that the content of the list depends on.
    pub(crate) fn new(parts: &[&str]) -> Self {
        // FNV-1a: stable across releases and machines. It protects nothing, so collisions are harmless.
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for part in parts {
            for byte in part.bytes().chain([0xff]) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
        Self(hash)
    }
}

/// The position at which a page begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PagePosition {
    /// [`ListId`].
    #[serde(rename = "l")]
    list: u64,
    /// The provider's cursor of its page.
    #[serde(rename = "p")]
    cursor: Option<String>,
    /// Length of the provider's pages.
    #[serde(rename = "s")]
    page_length: usize,
    /// Items at the start of the page that were returned already.
    #[serde(rename = "n")]
    skip: usize,
}

impl PagePosition {
    fn first(list: ListId, limit: usize, max_page_items: usize) -> Self {
        let limit = limit.clamp(1, MAX_PAGE_LIMIT);
        // As few pages as possible, of equal length: 60 items from a provider with 50 to a page are two pages of 30.
        let pages = limit.div_ceil(max_page_items);
        Self {
            list: list.0,
            cursor: None,
            page_length: limit.div_ceil(pages),
            skip: 0,
        }
    }

    fn decode(list: ListId, token: &str) -> Result<Self, GitError> {
        let position = (token.len() <= MAX_TOKEN_BYTES)
            .then(|| URL_SAFE_NO_PAD.decode(token).ok())
            .flatten()
            .and_then(|bytes| serde_json::from_slice::<Self>(&bytes).ok());
        position
            .filter(|position| {
                position.list == list.0 && (1..=MAX_PAGE_LIMIT).contains(&position.page_length)
            })
            .ok_or(GitError::InvalidPageToken)
    }

    fn encode(&self) -> Option<String> {
        let text = serde_json::to_vec(self).ok()?;
        Some(URL_SAFE_NO_PAD.encode(text))
    }
}

/// Fills one page. `max_page_items` is the longest page of the provider, `convert` returns `None` for items to leave out, and
/// `fetch` gets the provider's page with this cursor and length.
pub(crate) async fn page<T, F>(
    list: ListId,
    request: &GitPageRequest,
    max_page_items: usize,
    convert: impl Fn(&Value) -> Option<T>,
    fetch: impl Fn(Option<String>, usize) -> F,
) -> Result<GitPage<T>, GitError>
where
    F: Future<Output = Result<ProviderPage, GitError>>,
{
    let mut position = match &request.after {
        None => PagePosition::first(list, request.limit, max_page_items),
        Some(token) => PagePosition::decode(list, token)?,
    };
    let limit = request.limit.clamp(1, MAX_PAGE_LIMIT);
    let mut items = Vec::new();
    for _ in 0..MAX_FETCHES {
        let provider_page = fetch(position.cursor.clone(), position.page_length).await?;
        for (index, value) in provider_page.values.iter().enumerate().skip(position.skip) {
            let Some(item) = convert(value) else { continue };
            if items.len() == limit {
                position.skip = index;
                return Ok(GitPage {
                    items,
                    next: position.encode(),
                });
            }
            items.push(item);
        }
        // A provider that names the same page again would cause an endless loop.
        let Some(next) = provider_page
            .next
            .filter(|next| position.cursor.as_ref() != Some(next))
        else {
            return Ok(GitPage { items, next: None });
        };
        position.cursor = Some(next);
        position.skip = 0;
        if items.len() == limit {
            break;
        }
    }
    Ok(GitPage {
        items,
        next: position.encode(),
    })
}

/// Parses a cursor that is a number, which is `first` without a cursor.
pub(crate) fn page_number(cursor: Option<&str>, first: usize) -> Result<usize, GitError> {
    let number = cursor.map_or(Some(first), |text| text.parse().ok());
    number
        .filter(|number| *number >= first)
        .ok_or(GitError::InvalidPageToken)
}

/// The cursor of the page after this one, if there is one.
pub(crate) fn next_page_number(page: usize, has_next: bool) -> Option<String> {
    has_next.then(|| page.saturating_add(1).to_string())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIST: &str = "list";

    /// Reads all pages of a provider with `total` items whose pages have at most `cap` items.
    async fn walk(
        total: usize,
        cap: usize,
        max_page_items: usize,
        limits: &[usize],
        wanted: impl Fn(u64) -> bool,
    ) -> Vec<u64> {
        let all: Vec<Value> = (0..total).map(Value::from).collect();
        let mut seen = Vec::new();
        let mut after = None;
        for turn in 0.. {
            assert!(turn <= total * 2 + 5, "a walk must end");
            let limit = limits[turn % limits.len()];
            let request = GitPageRequest { after, limit };
            let fetch = |cursor: Option<String>, size: usize| {
                let all = &all;
                async move {
                    let number = page_number(cursor.as_deref(), 1)?;
                    let size = size.min(cap);
                    let from = (number - 1) * size;
                    let values: Vec<_> = all.iter().skip(from).take(size).cloned().collect();
                    let next = next_page_number(number, from + values.len() < all.len());
                    Ok(ProviderPage { values, next })
                }
            };
            let convert = |value: &Value| value.as_u64().filter(|n| wanted(*n));
            let got = page(
                ListId::new(&[LIST]),
                &request,
                max_page_items,
                convert,
                fetch,
            )
            .await
            .unwrap();
            assert!(got.items.len() <= limit);
            seen.extend(got.items);
            after = got.next;
            if after.is_none() {
                return seen;
            }
        }
        unreachable!()
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
            .block_on(future)
    }

    #[test]
    fn every_limit_lists_each_item_once() {
        for limit in 1..=100 {
            for cap in [1, 7, 50, 100] {
                let seen = block_on(walk(123, cap, 50, &[limit], |_| true));
                assert_eq!(
                    seen,
                    (0..123).collect::<Vec<_>>(),
                    "limit {limit}, cap {cap}"
                );
            }
        }
    }

    #[test]
    fn a_page_is_full_while_the_provider_has_items() {
        let all: Vec<Value> = (0..100).map(Value::from).collect();
        for limit in 1..=100 {
            let request = GitPageRequest { after: None, limit };
            let fetch = |_, size: usize| {
                let values: Vec<_> = all.iter().take(size).cloned().collect();
                async { Ok(ProviderPage { values, next: None }) }
            };
            let got = block_on(page(
                ListId::new(&[LIST]),
                &request,
                100,
                Value::as_u64,
                fetch,
            ));
            assert_eq!(got.unwrap().items.len(), limit);
        }
    }

    #[test]
    fn foreign_and_malformed_tokens_are_refused() {
        let list = ListId::new(&["github", "repositories"]);
        let ours = PagePosition::first(list, 10, 100).encode().unwrap();
        assert!(PagePosition::decode(list, &ours).is_ok());
        let other = ListId::new(&["gitlab", "repositories"]);
        assert!(PagePosition::decode(other, &ours).is_err());
        let long = "a".repeat(5000);
        let huge = URL_SAFE_NO_PAD.encode(format!(r#"{{"l":{},"p":null,"s":101,"n":0}}"#, list.0));
        for token in ["", "Mg", "!", "eyJ4IjoxfQ", &long, &huge, &ours[1..]] {
            assert!(PagePosition::decode(list, token).is_err(), "{token}");
        }
    }

    #[test]
    fn a_provider_that_repeats_a_cursor_ends_the_list() {
        let fetch = |_: Option<String>, _| async {
            Ok(ProviderPage {
                values: vec![Value::from(1)],
                next: Some("same".into()),
            })
        };
        let request = GitPageRequest {
            after: None,
            limit: 100,
        };
        let got = block_on(page(
            ListId::new(&[LIST]),
            &request,
            100,
            Value::as_u64,
            fetch,
        ))
        .unwrap();
        assert_eq!((got.items.len(), got.next), (2, None));
    }

    proptest! {
        /// Also when the limit changes from page to page and `convert` leaves items out.
        #[test]
        fn each_matching_item_is_listed_once(
            total in 0usize..150,
            cap in 1usize..=100,
            max_page_items in 1usize..=100,
            limits in prop::collection::vec(1usize..=100, 1..5),
            keep in 1u64..5,
        ) {
            let seen = block_on(walk(total, cap, max_page_items, &limits, |n| n % keep == 0));
            let expected: Vec<u64> = (0..total as u64).filter(|n| n % keep == 0).collect();
            prop_assert_eq!(seen, expected);
        }
    }
}
