//! Estimates of the size of JSON documents.
//!
//! A parsed document may need many times the memory of its text (`[0,0,…]`: 36 times, `[[0],[0],…]`: almost 100 times).
//! Callers estimate it before they parse a text from outside.

/// Memory of one list item or object member, in bytes. `serde_json` with ordered maps takes 72 and 104.
const BYTES_PER_VALUE: usize = 96;
/// Memory of one non-empty list or object, in bytes: its first allocation has room for several values.
const BYTES_PER_CONTAINER: usize = 400;

/// An upper bound of the memory that the text takes as a [`serde_json::Value`], in bytes. It scans the text once
/// without parsing or allocating. It ignores the contents of strings, and also works for invalid JSON.
#[must_use]
pub fn estimate_memory_bytes(text: &[u8]) -> usize {
    let (mut values, mut containers, mut quoted, mut escaped) = (1, 0, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b',' => values += 1,
            b'[' | b'{' => containers += 1,
            _ => {}
        }
    }
    text.len() + values * BYTES_PER_VALUE + containers * BYTES_PER_CONTAINER
}

/// Length of the value's JSON text as stored, in bytes: without white space, and with escapes only where JSON requires
/// them.
#[must_use]
pub fn text_bytes(value: &impl serde::Serialize) -> usize {
    let mut counter = JsonByteCounter(0);
    // The counter cannot fail, and a value that cannot be serialized cannot be stored, either.
    let _ = serde_json::to_writer(&mut counter, value);
    counter.0
}

/// A writer that counts bytes.
struct JsonByteCounter(usize);

impl std::io::Write for JsonByteCounter {
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
    use serde_json::Value;

    use super::*;

    #[test]
    fn the_text_of_a_document_is_counted_as_it_is_written() {
        let document: Value =
            serde_json::from_str(r#"{"a": [1, -2.5e300, null, true, {}], "é\n\u0000": "\""}"#)
                .unwrap();
        assert_eq!(text_bytes(&document), document.to_string().len());
    }

    #[test]
    fn the_estimate_ignores_the_contents_of_strings() {
        assert_eq!(estimate_memory_bytes(b""), BYTES_PER_VALUE);
        assert_eq!(estimate_memory_bytes(br#""[,{\"[,""#), 9 + BYTES_PER_VALUE);
        assert_eq!(
            estimate_memory_bytes(b"[0,0,{}]"),
            8 + 3 * BYTES_PER_VALUE + 2 * BYTES_PER_CONTAINER
        );
        assert!(estimate_memory_bytes("[[0],".repeat(1000).as_bytes()) > 90 * 5000);
    }

    #[test]
    fn values_are_not_larger_than_estimated() {
        assert!(size_of::<Value>() <= BYTES_PER_VALUE);
        // The first allocation of a list has room for four values.
        assert!(4 * size_of::<Value>() <= BYTES_PER_CONTAINER);
    }
}
