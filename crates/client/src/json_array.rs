//! Splits a JSON array into its elements while it arrives.

/// The data is not an array of objects, or an element is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum JsonArrayError {
    #[error("not a list of objects")]
    Shape,
    #[error("an element has more than {0} bytes")]
    MessageTooLong(usize),
}

/// Splits an array of objects into its elements. The caller parses the elements.
#[derive(Debug)]
pub(crate) struct JsonArraySplitter {
    element: Vec<u8>,
    depth: usize,
    in_text: bool,
    escaped: bool,
    place: ParserPosition,
    most: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ParserPosition {
    Before,
    Inside,
    After,
}

impl JsonArraySplitter {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            element: Vec::new(),
            depth: 0,
            in_text: false,
            escaped: false,
            place: ParserPosition::Before,
            most,
        }
    }

    /// Whether the array has ended.
    pub(crate) fn is_complete(&self) -> bool {
        self.place == ParserPosition::After
    }

    /// Adds bytes, and returns the elements that they complete.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, JsonArrayError> {
        let mut complete = Vec::new();
        for &byte in bytes {
            if self.depth == 0 {
                self.between(byte)?;
                continue;
            }
            self.element.push(byte);
            if self.element.len() > self.most {
                return Err(JsonArrayError::MessageTooLong(self.most));
            }
            if self.within(byte) {
                complete.push(std::mem::take(&mut self.element));
            }
        }
        Ok(complete)
    }

    fn between(&mut self, byte: u8) -> Result<(), JsonArrayError> {
        match (self.place, byte) {
            (_, b' ' | b'\n' | b'\r' | b'\t') | (ParserPosition::Inside, b',') => {}
            (ParserPosition::Before, b'[') => self.place = ParserPosition::Inside,
            (ParserPosition::Inside, b']') => self.place = ParserPosition::After,
            (ParserPosition::Inside, b'{') => {
                self.element.push(byte);
                self.depth = 1;
            }
            _ => return Err(JsonArrayError::Shape),
        }
        Ok(())
    }

    /// Whether the element ends with this byte.
    fn within(&mut self, byte: u8) -> bool {
        if self.in_text {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_text = false,
                _ => {}
            }
            return false;
        }
        match byte {
            b'"' => self.in_text = true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth -= 1,
            _ => {}
        }
        self.depth == 0
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
            let mut reader = JsonArraySplitter::new(1000);
            let mut read = Vec::new();
            for pair in cuts.windows(2) {
                for element in reader.push(&bytes[pair[0]..pair[1]]).unwrap() {
                    read.push(serde_json::from_slice::<Value>(&element).unwrap());
                }
            }
            prop_assert!(reader.is_complete());
            prop_assert_eq!(read, elements);
        }
    }

    #[test]
    fn other_json_than_a_list_of_objects_is_refused() {
        for text in ["{}", "[1]", "[\"a\"]", "[]x"] {
            assert_eq!(
                JsonArraySplitter::new(10).push(text.as_bytes()),
                Err(JsonArrayError::Shape),
                "{text}"
            );
        }
        assert_eq!(
            JsonArraySplitter::new(4).push(b"[{\"a\":1}]"),
            Err(JsonArrayError::MessageTooLong(4))
        );
        let mut cut = JsonArraySplitter::new(10);
        assert_eq!(cut.push(b"[{}").unwrap().len(), 1);
        assert!(!cut.is_complete());
    }
}
