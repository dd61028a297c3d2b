//! Caches parsed URLs of sandboxes, and lists of them, by their text. Parsing a URL costs as much as decoding all other columns
//! of a row together, and listings read the same URLs repeatedly.
//!
//! The parsed value depends on the text alone, so entries never become stale. The cache is bounded. No text holds a key
//! (`ExposedUrl`).

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use domain::sandbox::ExposedUrl;
use url::Url;

/// Maximum entries of a cache. Another entry clears the cache first.
const MAX_CACHED_TEXTS: usize = 2_000;
/// Longer texts are parsed each time.
const MAX_CACHED_TEXT_BYTES: usize = 1024;

static URL_CACHE: LazyLock<ParseCache<Url>> = LazyLock::new(ParseCache::default);
static EXPOSED_URL_CACHE: LazyLock<ParseCache<[ExposedUrl]>> = LazyLock::new(ParseCache::default);

/// Parsed values by text.
struct ParseCache<T: ?Sized>(RwLock<HashMap<Box<str>, Arc<T>>>);

impl<T: ?Sized> Default for ParseCache<T> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<T: ?Sized> ParseCache<T> {
    /// The parsed value, which all rows with this text share.
    fn get_or_parse<E>(
        &self,
        text: &str,
        parse: impl FnOnce(&str) -> Result<Arc<T>, E>,
    ) -> Result<Arc<T>, E> {
        let entries = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = entries.get(text) {
            return Ok(Arc::clone(value));
        }
        drop(entries);
        let value = parse(text)?;
        if text.len() <= MAX_CACHED_TEXT_BYTES {
            let (key, cached) = (text.into(), Arc::clone(&value));
            let mut entries = self.0.write().unwrap_or_else(PoisonError::into_inner);
            let is_full = entries.len() >= MAX_CACHED_TEXTS && !entries.contains_key(text);
            let removed = is_full.then(|| std::mem::take(&mut *entries));
            entries.insert(key, cached);
            drop(entries);
            // Free the removed entries after releasing the lock.
            drop(removed);
        }
        Ok(value)
    }
}

/// A URL in a row, cached by its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SharedUrl(pub(crate) Arc<Url>);

impl FromStr for SharedUrl {
    type Err = url::ParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        URL_CACHE
            .get_or_parse(text, |text| Url::parse(text).map(Arc::new))
            .map(Self)
    }
}

impl fmt::Display for SharedUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Parses the exposed URLs of a sandbox from their JSON document.
pub(crate) fn parse_exposed_urls(text: &[u8]) -> Result<Arc<[ExposedUrl]>, serde_json::Error> {
    let parse = |text: &[u8]| serde_json::from_slice::<Vec<_>>(text).map(Arc::from);
    // Invalid UTF-8 is not JSON either; serde returns the error.
    match str::from_utf8(text) {
        Ok(text) => EXPOSED_URL_CACHE.get_or_parse(text, |text| parse(text.as_bytes())),
        Err(_) => parse(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_number<T: FromStr>(text: &str) -> Result<Arc<T>, T::Err> {
        text.parse().map(Arc::new)
    }

    #[test]
    fn each_text_is_parsed_once() {
        let cache = ParseCache::default();
        for (text, value) in [("1", 1_u8), ("2", 2), ("1", 1)] {
            assert_eq!(cache.get_or_parse(text, parse_number), Ok(Arc::new(value)));
            let again = cache.get_or_parse(text, |_| Err("parsed twice"));
            assert_eq!(again, Ok(Arc::new(value)));
        }
        assert!(cache.get_or_parse("x", parse_number).is_err());
        assert!(
            cache.get_or_parse("x", parse_number).is_err(),
            "errors are not cached"
        );
    }

    #[test]
    fn the_cache_is_bounded() {
        let cache = ParseCache::default();
        for number in 0..=MAX_CACHED_TEXTS {
            let text = number.to_string();
            assert_eq!(
                cache.get_or_parse(&text, parse_number),
                Ok(Arc::new(number))
            );
            assert!(cache.0.read().unwrap().len() <= MAX_CACHED_TEXTS);
        }
        let long = "0".repeat(MAX_CACHED_TEXT_BYTES + 1);
        assert_eq!(
            cache.get_or_parse(&long, parse_number),
            Ok(Arc::new(0_usize))
        );
        assert!(!cache.0.read().unwrap().contains_key(long.as_str()));
    }

    #[test]
    fn lists_are_parsed_like_serde_does() {
        let text = r#"[{"name":"A","url":"http://h:1/","port":1}]"#;
        for _ in 0..2 {
            let urls = parse_exposed_urls(text.as_bytes()).unwrap();
            assert_eq!(
                *urls,
                serde_json::from_str::<Vec<ExposedUrl>>(text).unwrap()
            );
        }
        assert!(parse_exposed_urls(b"[{}]").is_err() && parse_exposed_urls(b"\xff").is_err());
    }
}
