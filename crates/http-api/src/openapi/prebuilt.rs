//! The document from `config/openapi.json`, compressed into the binary.
//!
//! Collecting it from the code takes some megabytes for a moment, which the allocator keeps, and a tenth of a second in a debug
//! build. Services therefore send the file, and `cargo xtask ci` checks that it equals the collected document.

use std::io::{self, Read as _, Write as _};
use std::sync::OnceLock;

use actix_web::web::Bytes;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::Value;

/// The document in one line, compressed with gzip.
const PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/openapi.json.gz"));

/// Whether this build has no code for collecting the document: a megabyte.
pub(crate) const IS_PREBUILT: bool = !cfg!(debug_assertions);

/// Parses the document: some milliseconds, and some megabytes while the value exists.
pub(crate) fn document() -> io::Result<Value> {
    Ok(serde_json::from_slice(&unpack(PACKED)?)?)
}

fn unpack(packed: &[u8]) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    GzDecoder::new(packed).read_to_end(&mut text)?;
    Ok(text)
}

fn pack(text: &[u8]) -> io::Result<Bytes> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::default());
    packed.write_all(text)?;
    packed.finish().map(Bytes::from)
}

/// The document as a service sends it. Each encoding is built at its first request (some milliseconds), and then shared.
pub(crate) struct ServedDocument {
    /// The path of the public URL.
    prefix: String,
    plain: OnceLock<Bytes>,
    packed: OnceLock<Bytes>,
}

impl ServedDocument {
    /// The document of a service whose public URL has this path.
    pub(crate) fn new(prefix: String) -> Self {
        let packed = if prefix.is_empty() {
            OnceLock::from(Bytes::from_static(PACKED))
        } else {
            OnceLock::new()
        };
        Self {
            prefix,
            plain: OnceLock::new(),
            packed,
        }
    }

    /// The text, compressed with gzip or not.
    pub(crate) fn text(&self, is_packed: bool) -> Bytes {
        let text = if is_packed {
            let pack = || pack(&self.text(false)).unwrap_or_default();
            self.packed.get_or_init(pack)
        } else {
            // The build script compressed it; a test decompresses it.
            let unpack = || self.unpack().unwrap_or_default();
            self.plain.get_or_init(unpack)
        };
        text.clone()
    }

    fn unpack(&self) -> io::Result<Bytes> {
        if self.prefix.is_empty() {
            return unpack(PACKED).map(Bytes::from);
        }
        let document = with_prefix(document()?, &self.prefix);
        Ok(document.to_string().into())
    }
}

fn with_prefix(mut document: Value, prefix: &str) -> Value {
    if !prefix.is_empty() {
        document["servers"] = serde_json::json!([{"url": prefix}]);
    }
    document
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
        let read = |text: &[u8]| serde_json::from_slice::<Value>(text).unwrap();
        let here = ServedDocument::new(String::new());
        assert_eq!(unpack(&here.text(true)).unwrap(), here.text(false));
        assert_eq!(read(&here.text(false)), document().unwrap());
        let below = ServedDocument::new("/agents".to_owned());
        assert_eq!(unpack(&below.text(true)).unwrap(), below.text(false));
        let expected = with_prefix(document().unwrap(), "/agents");
        assert_eq!(read(&below.text(false)), expected);
    }
}
