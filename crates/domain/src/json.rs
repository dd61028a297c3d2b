//! What a JSON text costs once it is read.
//!
//! A text may cost many times its length (`[0,0,…]`: 36 times, `[[0],[0],…]`: almost 100 times), so whoever reads one of
//! somebody else's into a document weighs it first.

use serde_json::Value;

/// Memory of one value in a list, or of one member of an object: `serde_json` with ordered maps takes 72 and 104 bytes.
const PER_VALUE: usize = 96;
/// Memory of one list or object that is not empty: the first allocation of either has room for a few.
const PER_GROUP: usize = 400;

/// An upper bound of the bytes of memory that the text takes when it is read as a [`serde_json::Value`]. One pass that
/// allocates nothing. It never reads it as JSON: marks inside strings do not count, and a text that is no JSON has a weight, too.
#[must_use]
pub fn estimate_memory_bytes(text: &[u8]) -> usize {
    let (mut values, mut groups, mut quoted, mut escaped) = (1, 0, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b',' => values += 1,
            b'[' | b'{' => groups += 1,
            _ => {}
        }
    }
    text.len() + values * PER_VALUE + groups * PER_GROUP
}

/// The bytes of a document's text, as it is stored: without blanks, and with escapes where JSON needs them.
#[must_use]
pub fn text_bytes(document: &Value) -> usize {
    let mut counter = ByteCounter(0);
    // Neither a counter nor a document that was read can fail.
    let _ = serde_json::to_writer(&mut counter, document);
    counter.0
}

/// The same of what is written as JSON.
#[must_use]
pub fn serialized_bytes(value: &impl serde::Serialize) -> u64 {
    let mut counter = ByteCounter(0);
    // What cannot be written cannot be stored, either.
    let _ = serde_json::to_writer(&mut counter, value);
    counter.0 as u64
}

/// Counts what is written to it.
struct ByteCounter(usize);

impl std::io::Write for ByteCounter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_document_is_counted_as_it_is_written() {
        let document: Value =
            serde_json::from_str(r#"{"a": [1, -2.5e300, null, true, {}], "é\n\u0000": "\""}"#)
                .unwrap();
        assert_eq!(text_bytes(&document), document.to_string().len());
    }

    #[test]
    fn the_weight_counts_values_but_not_what_strings_say() {
        assert_eq!(estimate_memory_bytes(b""), PER_VALUE);
        assert_eq!(estimate_memory_bytes(br#""[,{\"[,""#), 9 + PER_VALUE);
        assert_eq!(estimate_memory_bytes(b"[0,0,{}]"), 8 + 3 * PER_VALUE + 2 * PER_GROUP);
        assert!(estimate_memory_bytes("[[0],".repeat(1000).as_bytes()) > 90 * 5000);
    }

    #[test]
    fn values_are_no_larger_than_they_are_weighed() {
        assert!(size_of::<Value>() <= PER_VALUE);
        // A list's first allocation has room for four.
        assert!(4 * size_of::<Value>() <= PER_GROUP);
    }
}
