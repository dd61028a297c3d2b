//! The document from `config/openapi.json`, compressed into the binary.
//!
//! Collecting it from the code takes some megabytes for a moment, which the allocator keeps, and a megabyte of code. Release
//! builds therefore contain the file, and `cargo xtask ci` checks that it equals the collected document. Debug builds collect
//! it, so that a new route appears at once.

use std::io::{Read as _, Write as _};
use std::sync::OnceLock;

use actix_web::web::Bytes;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::Value;

/// The document in one line, compressed with gzip.
const PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/openapi.json.gz"));

/// Whether this build serves the prebuilt document instead of collecting it.
pub(crate) const IS_PREBUILT: bool = !cfg!(debug_assertions);

/// Parses the document: some milliseconds, and some megabytes while the value exists.
pub(crate) fn document() -> std::io::Result<Value> {
    Ok(serde_json::from_slice(&text()?)?)
}

/// The document in one line.
fn text() -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    GzDecoder::new(PACKED).read_to_end(&mut text)?;
    Ok(text)
}

/// The document as a service sends it. Each encoding is built at its first request (some milliseconds), and then shared.
pub(super) struct PrebuiltDocument {
    prefix: String,
    plain: OnceLock<Bytes>,
    packed: OnceLock<Bytes>,
}

impl PrebuiltDocument {
    pub(super) fn at(prefix: &str) -> Self {
        let (plain, packed) = <_>::default();
        let prefix = prefix.to_owned();
        Self {
            prefix,
            plain,
            packed,
        }
    }

    pub(super) fn plain(&self) -> Bytes {
        let make = || {
            if self.prefix.is_empty() {
                return text().map(Bytes::from);
            }
            let document = super::with_prefix(document()?, &self.prefix);
            Ok(Bytes::from(document.to_string()))
        };
        // The build script compressed it; a test decompresses it.
        let plain = self.plain.get_or_init(|| make().unwrap_or_default());
        plain.clone()
    }

    pub(super) fn packed(&self) -> Bytes {
        if self.prefix.is_empty() {
            return Bytes::from_static(PACKED);
        }
        let pack = || {
            let mut packed = GzEncoder::new(Vec::new(), Compression::default());
            packed.write_all(&self.plain())?;
            packed.finish().map(Bytes::from)
        };
        let packed = self.packed.get_or_init(|| pack().unwrap_or_default());
        packed.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prebuilt_document_is_up_to_date() {
        assert!(
            document().unwrap() == crate::openapi_document(),
            "config/openapi.json is out of date: cargo xtask openapi"
        );
    }

    #[test]
    fn both_encodings_contain_the_same_document_with_its_prefix() {
        let unpacked = |packed: Bytes| {
            let mut text = Vec::new();
            GzDecoder::new(&*packed).read_to_end(&mut text).unwrap();
            text
        };
        let read = |text: &[u8]| serde_json::from_slice::<Value>(text).unwrap();
        let here = PrebuiltDocument::at("");
        assert_eq!(unpacked(here.packed()), here.plain());
        assert_eq!(read(&here.plain()), document().unwrap());
        let below = PrebuiltDocument::at("/agents");
        assert_eq!(unpacked(below.packed()), below.plain());
        let expected = super::super::with_prefix(document().unwrap(), "/agents");
        assert_eq!(read(&below.plain()), expected);
    }
}
