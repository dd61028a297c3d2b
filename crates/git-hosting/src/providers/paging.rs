//! Converts the pages of a provider to pages of any length without losing or repeating items.
//!
//! A provider is always asked with the same page length within one walk through a list, so that its own page numbers keep
//! their meaning (also where it silently makes pages shorter than asked for). Our token names the provider's page, that
//! length, and how many items of the page were handed out already.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use domain::git::{GitError, GitPage, GitPageRequest};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Provider pages that one of our pages may fetch.
pub(crate) const MAX_FETCHES: usize = 5;
/// Longest page of ours.
const MAX_PAGE_LIMIT: usize = 100;
/// Longest token, in bytes: none of ours comes near it.
const MAX_TOKEN_BYTES: usize = 4096;

/// A page of the provider.
#[derive(Debug)]
pub(crate) struct ProviderPage {
    pub(crate) values: Vec<Value>,
    /// Its name for the next page; `None` on the last.
    pub(crate) next: Option<String>,
}

/// Identifies a list. A token of one list is invalid in another.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ListId(u64);

impl ListId {
    /// By everything that makes it another list.
    pub(crate) fn new(parts: &[&str]) -> Self {
        // FNV-1a: the same in every release and on every machine, and nothing rests on its strength.
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
    /// The list.
    l: u64,
    /// The provider's page.
    p: Option<String>,
    /// Its length.
    s: usize,
    /// Items of it that went before.
    n: usize,
}

impl PagePosition {
    fn first(list: ListId, limit: usize, most: usize) -> Self {
        let limit = limit.clamp(1, MAX_PAGE_LIMIT);
        // As few pages as will do, of the same length: 60 items of a provider with 50 to a page are two of 30.
        let pages = limit.div_ceil(most);
        Self {
            l: list.0,
            p: None,
            s: limit.div_ceil(pages),
            n: 0,
        }
    }

    fn decode(list: ListId, token: &str) -> Result<Self, GitError> {
        let place = (token.len() <= MAX_TOKEN_BYTES)
            .then(|| URL_SAFE_NO_PAD.decode(token).ok())
            .flatten()
            .and_then(|bytes| serde_json::from_slice::<Self>(&bytes).ok());
        place
            .filter(|place| place.l == list.0 && (1..=MAX_PAGE_LIMIT).contains(&place.s))
            .ok_or(GitError::InvalidPageToken)
    }

    fn encode(&self) -> Option<String> {
        let text = serde_json::to_vec(self).ok()?;
        Some(URL_SAFE_NO_PAD.encode(text))
    }
}

/// One page of ours. `most` is the longest page of the provider, `convert` makes an item or says that it is not wanted, and
/// `fetch` gets the provider's page of this name and length.
pub(crate) async fn page<T, F>(
    list: ListId,
    request: &GitPageRequest,
    most: usize,
    convert: impl Fn(&Value) -> Option<T>,
    fetch: impl Fn(Option<String>, usize) -> F,
) -> Result<GitPage<T>, GitError>
where
    F: Future<Output = Result<ProviderPage, GitError>>,
{
    let mut place = match &request.after {
        None => PagePosition::first(list, request.limit, most),
        Some(token) => PagePosition::decode(list, token)?,
    };
    let limit = request.limit.clamp(1, MAX_PAGE_LIMIT);
    let mut items = Vec::new();
    for _ in 0..MAX_FETCHES {
        let chunk = fetch(place.p.clone(), place.s).await?;
        for (index, value) in chunk.values.iter().enumerate().skip(place.n) {
            let Some(item) = convert(value) else { continue };
            if items.len() == limit {
                place.n = index;
                return Ok(GitPage {
                    items,
                    next: place.encode(),
                });
            }
            items.push(item);
        }
        // A provider that names the same page again would cause an endless loop.
        let Some(next) = chunk.next.filter(|next| place.p.as_ref() != Some(next)) else {
            return Ok(GitPage { items, next: None });
        };
        place.p = Some(next);
        place.n = 0;
        if items.len() == limit {
            break;
        }
    }
    Ok(GitPage {
        items,
        next: place.encode(),
    })
}

/// A page number of ours, or the first one.
pub(crate) fn page_number(cursor: Option<&str>) -> Result<u32, GitError> {
    let number = cursor.map_or(Some(1), |text| text.parse().ok());
    number.filter(|n| *n >= 1).ok_or(GitError::InvalidPageToken)
}

/// The page after this one, if there is one.
pub(crate) fn following(page: u32, has_next: bool) -> Option<String> {
    (has_next).then(|| page.saturating_add(1).to_string())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIST: &str = "list";

    /// A provider with `total` items that makes no page longer than `cap`, whatever it is asked for.
    async fn walk(
        total: usize,
        cap: usize,
        most: usize,
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
                    let number = page_number(cursor.as_deref())?;
                    let size = size.min(cap);
                    let from = (number as usize - 1) * size;
                    let values: Vec<_> = all.iter().skip(from).take(size).cloned().collect();
                    let next = following(number, from + values.len() < all.len());
                    Ok(ProviderPage { values, next })
                }
            };
            let convert = |value: &Value| value.as_u64().filter(|n| wanted(*n));
            let got = page(ListId::new(&[LIST]), &request, most, convert, fetch)
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
    fn every_item_once_for_any_limit() {
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
    fn full_pages_where_the_provider_has_them() {
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
    fn a_token_that_is_not_ours() {
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
    fn a_provider_that_goes_in_circles_ends_the_list() {
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
        /// Also when the limit changes from page to page, and items are sorted out on the way.
        #[test]
        fn every_wanted_item_once(
            total in 0usize..150,
            cap in 1usize..=100,
            most in 1usize..=100,
            limits in prop::collection::vec(1usize..=100, 1..5),
            keep in 1u64..5,
        ) {
            let seen = block_on(walk(total, cap, most, &limits, |n| n % keep == 0));
            let expected: Vec<u64> = (0..total as u64).filter(|n| n % keep == 0).collect();
            prop_assert_eq!(seen, expected);
        }
    }
}
