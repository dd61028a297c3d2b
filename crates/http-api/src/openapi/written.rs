//! The document as it stands in `config/openapi.json`, packed into the binary.
//!
//! Collecting it from the code takes some megabytes for a moment, which the allocator keeps, and a megabyte of program that
//! does nothing else. So release builds have it written, and `cargo xtask ci` sees that it is what would be collected. Debug
//! builds collect it: whoever adds a route sees it at once.

use std::collections::HashMap;
use std::io::Read as _;

use flate2::read::GzDecoder;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::Operations;
use super::complete::METHODS;

/// The document in one line, by gzip.
pub(crate) const PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/openapi.json.gz"));

/// Whether the surface of this build is as it is written, not as it is collected.
pub(crate) const IS_TRUE: bool = !cfg!(debug_assertions);

/// The document. Some milliseconds, and some megabytes for as long as it is there.
pub(crate) fn document() -> std::io::Result<Value> {
    Ok(serde_json::from_slice(&text()?)?)
}

/// The document in one line.
fn text() -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    GzDecoder::new(PACKED).read_to_end(&mut text)?;
    Ok(text)
}

/// Every path with its methods in lower case. Nothing else of the document is kept in memory, not even for a moment.
pub(crate) fn operations() -> Operations {
    #[derive(Deserialize)]
    #[expect(
        clippy::zero_sized_map_values,
        reason = "serde reads no set out of a map"
    )]
    struct Document {
        paths: HashMap<String, HashMap<String, IgnoredAny>>,
    }
    let document = text()
        .ok()
        .and_then(|text| serde_json::from_slice::<Document>(&text).ok());
    let paths = document.into_iter().flat_map(|document| document.paths);
    paths
        .map(|(path, item)| {
            let methods = item.into_keys();
            (
                path,
                methods
                    .filter(|name| METHODS.contains(&name.as_str()))
                    .collect(),
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_would_be_collected() {
        assert!(
            document().unwrap() == crate::openapi_document(),
            "config/openapi.json is out of date: cargo xtask openapi"
        );
    }

    #[test]
    fn operations_are_those_of_the_document() {
        let mut collected = super::super::operations(&crate::openapi_document());
        let mut written = operations();
        for list in [&mut collected, &mut written] {
            list.sort();
            for (_, methods) in list.iter_mut() {
                methods.sort();
            }
        }
        assert_eq!(written, collected);
    }
}
