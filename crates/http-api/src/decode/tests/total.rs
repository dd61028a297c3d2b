//! Decoding any input ends in a value or in at least one well-formed error.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use proptest::prelude::*;
use secrecy::SecretString;
use serde_json::Value;
use uuid::Uuid;

use super::super::{Decode, ErrorFormat, FieldErrors, JsonError, Path, parse_json};

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".*".prop_map(Value::from),
        "[-+0-9TZ:. _]{0,30}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 64, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(".*", inner, 0..6)
                .prop_map(|map| map.into_iter().collect()),
        ]
    })
}

fn ends_well<T: Decode>(value: &Value) {
    for at in [Path::body(T::SENSITIVE), Path::query()] {
        let mut errors = FieldErrors::new();
        let decoded = T::decode(value, &at, &mut errors);
        assert_eq!(decoded.is_none(), !errors.is_empty(), "{value}");
        for error_format in [ErrorFormat::V1, ErrorFormat::Legacy] {
            for item in errors.detail(error_format).as_array().unwrap() {
                assert!(
                    item["loc"].is_array() && item["msg"].is_string() && item["type"].is_string(),
                    "{item}"
                );
            }
        }
    }
}

proptest! {
    #[test]
    fn every_value_is_decoded_or_refused(value in any_value()) {
        ends_well::<String>(&value);
        ends_well::<bool>(&value);
        ends_well::<i64>(&value);
        ends_well::<u16>(&value);
        ends_well::<f64>(&value);
        ends_well::<Uuid>(&value);
        ends_well::<DateTime<Utc>>(&value);
        ends_well::<SecretString>(&value);
        ends_well::<Option<Vec<i64>>>(&value);
        ends_well::<BTreeMap<String, Vec<bool>>>(&value);
    }

    #[test]
    fn every_text_is_json_or_has_an_error_position(text in "[\\[\\]{}:,\"\\\\u0-9eE.+\\- a-f\n\u{e9}]{0,24}") {
        match parse_json(text.as_bytes()) {
            Err(JsonError::Syntax { position, .. }) => prop_assert!(position <= text.chars().count()),
            Err(JsonError::Undecodable) => prop_assert!(false, "{text}"),
            Ok(_) => {}
        }
    }

    #[test]
    fn every_byte_string_is_survived(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = parse_json(&bytes);
    }
}
