//! Caches the parsed URLs of sandboxes by their text. Parsing the URLs of a row costs more than decoding all its other columns,
//! and listings read the same ones repeatedly.
//!
//! The parsed value depends on the text alone, so entries never become stale. No text holds a key (`ExposedUrl`).

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use domain::error::BoxError;
use domain::sandbox::ExposedUrl;

/// Maximum number of entries. Another entry clears the cache first.
const MAX_ENTRIES: usize = 2_000;
/// Longer texts are parsed each time.
const MAX_TEXT_BYTES: usize = 1024;

static CACHE: LazyLock<RwLock<HashMap<String, Arc<[ExposedUrl]>>>> = LazyLock::new(RwLock::default);

/// Parses the exposed URLs of a sandbox from their JSON document.
pub(crate) fn parse(text: &str) -> Result<Arc<[ExposedUrl]>, BoxError> {
    let cache = CACHE.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(urls) = cache.get(text) {
        return Ok(Arc::clone(urls));
    }
    drop(cache);
    let urls: Arc<[ExposedUrl]> = serde_json::from_str::<Vec<_>>(text)?.into();
    if text.len() <= MAX_TEXT_BYTES {
        let mut cache = CACHE.write().unwrap_or_else(PoisonError::into_inner);
        if cache.len() >= MAX_ENTRIES {
            cache.clear();
        }
        cache.insert(text.to_owned(), Arc::clone(&urls));
    }
    Ok(urls)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed_once_and_the_cache_is_bounded() {
        let text = |port: usize| format!(r#"[{{"name":"A","url":"http://h:1/{port}","port":1}}]"#);
        let first = parse(&text(0)).unwrap();
        assert_eq!(
            *first,
            serde_json::from_str::<Vec<ExposedUrl>>(&text(0)).unwrap()
        );
        assert!(Arc::ptr_eq(&first, &parse(&text(0)).unwrap()));
        for port in 0..=MAX_ENTRIES {
            parse(&text(port)).unwrap();
            assert!(CACHE.read().unwrap().len() <= MAX_ENTRIES);
        }
        let long = format!("[{}]", " ".repeat(MAX_TEXT_BYTES));
        assert!(parse(&long).unwrap().is_empty());
        assert!(!CACHE.read().unwrap().contains_key(&long));
        assert!(parse("[{}]").is_err());
    }
}
