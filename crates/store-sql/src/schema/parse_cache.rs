//! Caches parsed URLs of sandboxes, and lists of them, by their text. Parsing a URL costs as much as all other columns of a row
//! together, and listings read the same URLs repeatedly.
//!
//! The parsed value depends on the text alone, so entries never become stale. The cache is bounded. No text holds a key
//! (`ExposedUrl`).

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use domain::sandbox::ExposedUrl;
use url::Url;

/// Entries per cache. One more clears the cache.
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
    fn of<E>(
        &self,
        text: &str,
        parse: impl FnOnce(&str) -> Result<Arc<T>, E>,
    ) -> Result<Arc<T>, E> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.get(text) {
            return Ok(Arc::clone(found));
        }
        drop(known);
        let value = parse(text)?;
        if text.len() <= MAX_CACHED_TEXT_BYTES {
            let (key, kept) = (text.into(), Arc::clone(&value));
            let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
            let is_full = known.len() >= MAX_CACHED_TEXTS && !known.contains_key(text);
            let forgotten = is_full.then(|| std::mem::take(&mut *known));
            known.insert(key, kept);
            drop(known);
            // Free the old entries after releasing the lock.
            drop(forgotten);
        }
        Ok(value)
    }
}

/// A URL in a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SharedUrl(pub(crate) Arc<Url>);

impl FromStr for SharedUrl {
    type Err = url::ParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        URL_CACHE
            .of(text, |text| Url::parse(text).map(Arc::new))
            .map(Self)
    }
}

impl fmt::Display for SharedUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The exposed URLs of a JSON document.
pub(crate) fn exposed(text: &[u8]) -> Result<Arc<[ExposedUrl]>, serde_json::Error> {
    let parse = |text: &[u8]| serde_json::from_slice::<Vec<_>>(text).map(Arc::from);
    // Invalid UTF-8 is not JSON either; serde returns the error.
    match str::from_utf8(text) {
        Ok(text) => EXPOSED_URL_CACHE.of(text, |text| parse(text.as_bytes())),
        Err(_) => parse(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number<T: FromStr>(text: &str) -> Result<Arc<T>, T::Err> {
        text.parse().map(Arc::new)
    }

    #[test]
    fn a_text_is_parsed_once_and_each_by_itself() {
        let parsed = ParseCache::default();
        for (text, value) in [("1", 1_u8), ("2", 2), ("1", 1)] {
            assert_eq!(parsed.of(text, number), Ok(Arc::new(value)));
            let again = parsed.of(text, |_| Err("parsed twice"));
            assert_eq!(again, Ok(Arc::new(value)));
        }
        assert!(parsed.of("x", number).is_err());
        assert!(parsed.of("x", number).is_err(), "still none");
    }

    #[test]
    fn there_is_a_bound() {
        let parsed = ParseCache::default();
        for wanted in 0..=MAX_CACHED_TEXTS {
            let text = wanted.to_string();
            assert_eq!(parsed.of(&text, number), Ok(Arc::new(wanted)));
            assert!(parsed.0.read().unwrap().len() <= MAX_CACHED_TEXTS);
        }
        let long = "0".repeat(MAX_CACHED_TEXT_BYTES + 1);
        assert_eq!(parsed.of(&long, number), Ok(Arc::new(0_usize)));
        assert!(!parsed.0.read().unwrap().contains_key(long.as_str()));
    }

    #[test]
    fn lists_are_read_as_serde_does() {
        let text = r#"[{"name":"A","url":"http://h:1/","port":1}]"#;
        for _ in 0..2 {
            let urls = exposed(text.as_bytes()).unwrap();
            assert_eq!(
                *urls,
                serde_json::from_str::<Vec<ExposedUrl>>(text).unwrap()
            );
        }
        assert!(exposed(b"[{}]").is_err() && exposed(b"\xff").is_err());
    }
}
