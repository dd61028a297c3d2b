//! Turns patterns of words into enumerations. utoipa can give a text member only a pattern; a pattern of plain alternatives
//! becomes the enumeration that it means.

use serde_json::{Value, json};

/// Turns `^(a|b|c)$` into the enumeration of `a`, `b` and `c`, in the whole document.
pub(super) fn close_enums(value: &mut Value) {
    match value {
        Value::Object(members) => {
            let words = members
                .get("pattern")
                .and_then(Value::as_str)
                .and_then(words_of);
            if let Some(mut words) = words {
                let is_nullable = members["type"]
                    .as_array()
                    .is_some_and(|types| types.contains(&json!("null")));
                if is_nullable {
                    words.push(Value::Null);
                }
                members.shift_remove("pattern");
                members.insert("enum".to_owned(), words.into());
            }
            members.values_mut().for_each(close_enums);
        }
        Value::Array(list) => list.iter_mut().for_each(close_enums),
        _ => {}
    }
}

/// The words of a pattern of plain alternatives; `None` for any other pattern.
fn words_of(pattern: &str) -> Option<Vec<Value>> {
    let inside = pattern.strip_prefix('^')?.strip_suffix('$')?;
    let inside = inside
        .strip_prefix('(')
        .and_then(|inside| inside.strip_suffix(')'))
        .unwrap_or(inside);
    let is_word = |word: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        !word.is_empty() && word.chars().all(plain)
    };
    let words: Vec<&str> = inside.split('|').collect();
    words
        .iter()
        .all(|word| is_word(word))
        .then(|| words.into_iter().map(Value::from).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_patterns_of_words_become_enumerations() {
        let mut schema = json!({"properties": {
            "kind": {"type": "string", "pattern": "^(text|image)$"},
            "role": {"type": ["string", "null"], "pattern": "^user$"},
            "name": {"type": "string", "pattern": "^[A-Za-z]+$"},
            "pattern": {"type": "string"},
        }});
        close_enums(&mut schema);
        let expected = json!({"properties": {
            "kind": {"type": "string", "enum": ["text", "image"]},
            "role": {"type": ["string", "null"], "enum": ["user", null]},
            "name": {"type": "string", "pattern": "^[A-Za-z]+$"},
            "pattern": {"type": "string"},
        }});
        assert_eq!(schema, expected);
    }
}
