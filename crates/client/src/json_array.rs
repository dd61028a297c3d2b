//! Reads the elements of a JSON array while it arrives.

use serde::de::DeserializeOwned;
use serde_json::Deserializer;

/// The data is not an array of the expected objects, or an element is too long.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JsonArrayError {
    #[error("response is not a JSON array of objects")]
    Shape,
    #[error("an element of the response has more than {0} bytes")]
    ElementTooLong(usize),
    #[error(transparent)]
    Element(#[from] serde_json::Error),
}

/// Reads an array of objects from chunks of any size.
#[derive(Debug)]
pub(crate) struct JsonArrayReader {
    /// The incomplete element.
    unread: Vec<u8>,
    position: ArrayPosition,
    max_element_bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ArrayPosition {
    Before,
    Inside,
    After,
}

impl JsonArrayReader {
    pub(crate) fn new(max_element_bytes: usize) -> Self {
        Self {
            unread: Vec::new(),
            position: ArrayPosition::Before,
            max_element_bytes,
        }
    }

    /// Whether the array has ended.
    pub(crate) fn is_complete(&self) -> bool {
        self.position == ArrayPosition::After
    }

    /// Adds bytes, and returns the elements that they complete.
    pub(crate) fn push<T: DeserializeOwned>(
        &mut self,
        bytes: &[u8],
    ) -> Result<Vec<T>, JsonArrayError> {
        self.unread.extend_from_slice(bytes);
        let (mut complete, mut at) = (Vec::new(), 0);
        while let Some(byte) = self.unread.get(at) {
            let mut length = 1;
            match (self.position, byte) {
                (_, b' ' | b'\n' | b'\r' | b'\t') | (ArrayPosition::Inside, b',') => {}
                (ArrayPosition::Before, b'[') => self.position = ArrayPosition::Inside,
                (ArrayPosition::Inside, b']') => self.position = ArrayPosition::After,
                // Without another brace the element is incomplete. This spares reading long texts again and again.
                (ArrayPosition::Inside, b'{') if !bytes.contains(&b'}') => break,
                (ArrayPosition::Inside, b'{') => {
                    let mut elements = Deserializer::from_slice(&self.unread[at..]).into_iter();
                    let element = elements.next();
                    length = elements.byte_offset();
                    match element {
                        Some(Err(error)) if error.is_eof() => break,
                        element => complete.extend(element.transpose()?),
                    }
                }
                _ => return Err(JsonArrayError::Shape),
            }
            if length > self.max_element_bytes {
                break;
            }
            at += length;
        }
        self.unread.drain(..at);
        if self.unread.len() > self.max_element_bytes {
            return Err(JsonArrayError::ElementTooLong(self.max_element_bytes));
        }
        Ok(complete)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    proptest! {
        #[test]
        fn elements_are_complete_for_any_chunks(
            texts in prop::collection::vec("[a\"\\\\{}\\[\\],ä]{0,8}", 0..6),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
        ) {
            let elements: Vec<Value> = texts.iter().map(|text| json!({"a": [text, {"b": text}]})).collect();
            let written: Vec<String> = elements.iter().map(Value::to_string).collect();
            let bytes = format!("[\n{}]", written.join(",\n")).into_bytes();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let mut reader = JsonArrayReader::new(1000);
            let mut read: Vec<Value> = Vec::new();
            for pair in cuts.windows(2) {
                read.extend(reader.push::<Value>(&bytes[pair[0]..pair[1]]).unwrap());
            }
            prop_assert!(reader.is_complete());
            prop_assert_eq!(read, elements);
        }
    }

    #[test]
    fn other_json_than_a_list_of_objects_is_refused() {
        for text in ["{}", "[1]", "[\"a\"]", "[]x"] {
            let refused = JsonArrayReader::new(10).push::<Value>(text.as_bytes());
            assert!(matches!(refused, Err(JsonArrayError::Shape)), "{text}");
        }
        for text in ["[{\"a\":1}]", "[{\"a\":"] {
            let refused = JsonArrayReader::new(4).push::<Value>(text.as_bytes());
            assert!(
                matches!(refused, Err(JsonArrayError::ElementTooLong(4))),
                "{text}"
            );
        }
        let refused = JsonArrayReader::new(10).push::<Value>(b"[{a}]");
        assert!(matches!(refused, Err(JsonArrayError::Element(_))));
        let mut cut = JsonArrayReader::new(10);
        assert_eq!(cut.push::<Value>(b"[{}").unwrap().len(), 1);
        assert!(!cut.is_complete());
    }
}
