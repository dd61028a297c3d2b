//! Syntax errors of JSON, with Python's texts.

use super::super::{JsonError, parse_json};

#[test]
fn errors_have_pythons_position_and_text() {
    let expecting = "Expecting value";
    let property = "Expecting property name enclosed in double quotes";
    let comma = "Expecting ',' delimiter";
    let table = [
        ("", 0, expecting),
        ("{\"a\": ", 6, expecting), // recording v1/040
        ("{\"provider_tokens\": {\"github\": }}", 31, expecting), // recording v0/028
        ("{a:1}", 1, property),
        ("{'a':1}", 1, property),
        ("{,}", 1, property),
        ("{", 1, property),
        ("{\"a\":1,}", 7, property),
        ("{\"a\" 1}", 5, "Expecting ':' delimiter"),
        ("{\"a\":1,\"b\"}", 10, "Expecting ':' delimiter"),
        ("{\"a\":1 \"b\":2}", 7, comma),
        ("{\"k\":\"v\" ", 9, comma),
        ("[1 2]", 3, comma),
        ("[\"é\" x]", 5, comma),
        ("[1,]", 3, expecting),
        ("[", 1, expecting),
        ("\"abc", 0, "Unterminated string starting at"),
        ("\"\\", 0, "Unterminated string starting at"),
        ("\"a\nb\"", 2, "Invalid control character at"),
        ("\"\\x\"", 1, "Invalid \\escape"),
        ("\"\\u12\"", 2, "Invalid \\uXXXX escape"),
        ("1 2", 2, "Extra data"),
        ("{\"a\":1}}", 7, "Extra data"),
        ("01", 1, "Extra data"),
        ("1.", 1, "Extra data"),
        ("1e", 1, "Extra data"),
        ("nul", 0, expecting),
        ("-", 0, expecting),
        ("+1", 0, expecting),
        (".5", 0, expecting),
        ("}", 0, expecting),
        ("\t\u{b}1", 1, expecting),
        ("  ", 2, expecting),
        ("{\"a\":tru}", 5, expecting),
    ];
    for (text, position, message) in table {
        assert_eq!(
            parse_json(text.as_bytes()),
            Err(JsonError::Syntax { position, message }),
            "{text}"
        );
    }
}

#[test]
fn values_that_only_python_accepts_are_refused() {
    for text in ["1e400", "\"\\ud800\"", "[1,\n1e400]"] {
        assert!(
            matches!(parse_json(text.as_bytes()), Err(JsonError::Syntax { .. })),
            "{text}"
        );
    }
    assert_eq!(
        parse_json(b"NaN"),
        Err(JsonError::Syntax {
            position: 0,
            message: "Expecting value"
        })
    );
}

#[test]
fn undecodable_bytes_and_deep_nesting_are_distinguished() {
    assert_eq!(
        parse_json(b"{\"a\": \"\xff\xfe\"}"),
        Err(JsonError::Undecodable)
    );
    for opening in ["[", "{\"a\":"] {
        assert_eq!(
            parse_json(opening.repeat(100_000).as_bytes()),
            Err(JsonError::Undecodable)
        );
    }
    let fine = format!("{}1{}", "[".repeat(120), "]".repeat(120));
    assert!(parse_json(fine.as_bytes()).is_ok());
}

#[test]
fn a_byte_order_mark_and_repeated_members_are_accepted() {
    assert_eq!(
        parse_json("\u{feff}{\"a\":1,\"a\":2}".as_bytes()).unwrap(),
        serde_json::json!({"a": 2})
    );
}
