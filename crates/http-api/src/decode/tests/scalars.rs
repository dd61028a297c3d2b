//! Values that pydantic's lax mode accepts and refuses.

use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use uuid::Uuid;

use super::super::{Decode, Path, decode};
use super::fault;
use crate::dto::enums::choice;

fn accepted<T: Decode>(value: &Value) -> T {
    decode(value, &Path::body(false)).unwrap_or_else(|errors| panic!("{value}: {errors:?}"))
}

#[test]
fn strings_are_strict() {
    for value in [
        json!(1),
        json!(null),
        json!(true),
        json!([]),
        json!({}),
        json!(1.5),
    ] {
        let expected = (
            "string_type".into(),
            "Input should be a valid string".into(),
            Value::Null,
        );
        assert_eq!(fault::<String>(&value), expected);
    }
}

#[test]
fn no_text_holds_nul() {
    let msg = "Value error, a text must not contain the character NUL";
    assert_eq!(
        fault::<String>(&json!("a\0b")),
        ("value_error".into(), msg.into(), json!({"error": {}}))
    );
    assert_eq!(
        accepted::<String>(&json!("\u{1}é\u{10ffff}")),
        "\u{1}é\u{10ffff}"
    );
}

#[test]
fn booleans() {
    for value in [
        json!(true),
        json!(1),
        json!(1.0),
        json!("TRUE"),
        json!("t"),
        json!("Yes"),
        json!("on"),
        json!("1"),
    ] {
        assert!(accepted::<bool>(&value), "{value}");
    }
    for value in [
        json!(false),
        json!(0),
        json!(0.0),
        json!("false"),
        json!("F"),
        json!("no"),
        json!("off"),
        json!("N"),
    ] {
        assert!(!accepted::<bool>(&value), "{value}");
    }
    for value in [
        json!(2),
        json!(-1),
        json!(" 1"),
        json!(""),
        json!("maybe"),
        json!("2"),
    ] {
        let msg = "Input should be a valid boolean, unable to interpret input";
        assert_eq!(
            fault::<bool>(&value),
            ("bool_parsing".into(), msg.into(), Value::Null)
        );
    }
    for value in [json!(0.5), json!(null), json!([]), json!({})] {
        let msg = "Input should be a valid boolean";
        assert_eq!(
            fault::<bool>(&value),
            ("bool_type".into(), msg.into(), Value::Null)
        );
    }
}

#[test]
fn integers() {
    let table = [
        (json!(1), 1),
        (json!(-3), -3),
        (json!(true), 1),
        (json!(2.0), 2),
        (json!("10"), 10),
        (json!(" 10 "), 10),
        (json!("+5"), 5),
        (json!("1_000"), 1000),
        (json!("5.0"), 5),
        (json!("5.00"), 5),
        (json!("-0.0"), 0),
        (json!("00012"), 12),
    ];
    for (value, expected) in table {
        assert_eq!(accepted::<i64>(&value), expected, "{value}");
    }
    for text in [
        "_1", "1__0", "5.", "5.5", ".0", "1e3", "0x10", "", "abc", "٣", "1.0_0", "- 5", "+", "-",
    ] {
        let msg = "Input should be a valid integer, unable to parse string as an integer";
        assert_eq!(
            fault::<i64>(&json!(text)),
            ("int_parsing".into(), msg.into(), Value::Null),
            "{text}"
        );
    }
    let msg = "Input should be a valid integer, got a number with a fractional part";
    assert_eq!(
        fault::<i64>(&json!(1.5)),
        ("int_from_float".into(), msg.into(), Value::Null)
    );
    for value in [json!(null), json!([]), json!({})] {
        assert_eq!(
            fault::<i64>(&value),
            (
                "int_type".into(),
                "Input should be a valid integer".into(),
                Value::Null
            )
        );
    }
    for value in [json!(1e30), json!("99999999999999999999"), json!(u64::MAX)] {
        let msg = "Unable to parse input string as an integer, exceeded maximum size";
        assert_eq!(
            fault::<i64>(&value),
            ("int_parsing_size".into(), msg.into(), Value::Null)
        );
    }
}

#[test]
fn narrower_integers_have_bounds() {
    assert_eq!(accepted::<u16>(&json!("65535")), 65535);
    let msg = "Input should be less than or equal to 65535";
    assert_eq!(
        fault::<u16>(&json!(65536)),
        ("less_than_equal".into(), msg.into(), json!({"le": 65535}))
    );
    let msg = "Input should be greater than or equal to 0";
    assert_eq!(
        fault::<u64>(&json!(-1)),
        ("greater_than_equal".into(), msg.into(), json!({"ge": 0}))
    );
}

#[test]
fn reals() {
    for (value, expected) in [
        (json!(1), 1.0),
        (json!("2.5"), 2.5),
        (json!("1e3"), 1000.0),
        (json!(" 2 "), 2.0),
    ] {
        assert!(
            (accepted::<f64>(&value) - expected).abs() < f64::EPSILON,
            "{value}"
        );
    }
    for text in ["abc", "", "1,5"] {
        let msg = "Input should be a valid number, unable to parse string as a number";
        assert_eq!(
            fault::<f64>(&json!(text)),
            ("float_parsing".into(), msg.into(), Value::Null)
        );
    }
    assert_eq!(fault::<f64>(&json!("inf")).0, "finite_number");
    assert_eq!(
        fault::<f64>(&json!(null)),
        (
            "float_type".into(),
            "Input should be a valid number".into(),
            Value::Null
        )
    );
}

#[test]
fn uuids() {
    let id = "123e4567-e89b-12d3-a456-426614174000";
    for text in [
        id,
        "123E4567E89B12D3A456426614174000",
        "urn:uuid:123e4567-e89b-12d3-a456-426614174000",
        "{123e4567-e89b-12d3-a456-426614174000}",
    ] {
        assert_eq!(accepted::<Uuid>(&json!(text)).to_string(), id);
    }
    // The first three are from recordings of the reference.
    let table = [
        ("x", "invalid character: found `x` at 0"),
        ("nope", "invalid character: found `n` at 0"),
        ("zz", "invalid character: found `z` at 0"),
        (
            "123e4567-e89b-12d3-a456-42661417400",
            "invalid group length in group 4: expected 12, found 11",
        ),
        (
            "123e4567-e89b-12d3a456-426614174000",
            "invalid group count: expected 5, found 4",
        ),
    ];
    for (text, error) in table {
        let expected = (
            "uuid_parsing".into(),
            format!("Input should be a valid UUID, {error}"),
            json!({"error": error}),
        );
        assert_eq!(fault::<Uuid>(&json!(text)), expected);
    }
    let msg = "UUID input should be a string, bytes or UUID object";
    for value in [json!(5), json!(null), json!([])] {
        assert_eq!(
            fault::<Uuid>(&value),
            ("uuid_type".into(), msg.into(), Value::Null)
        );
    }
}

#[test]
fn instants() {
    let table = [
        (json!("2026-01-01"), "2026-01-01T00:00:00+00:00"),
        (json!("2026-01-01T00:00:00"), "2026-01-01T00:00:00+00:00"),
        (json!("2026-01-01T00:00"), "2026-01-01T00:00:00+00:00"),
        (json!("2026-01-01T00:00:00Z"), "2026-01-01T00:00:00+00:00"),
        (
            json!("2026-01-01 00:00:00+02:00"),
            "2025-12-31T22:00:00+00:00",
        ),
        (
            json!("2026-01-01T00:00:00.1234567"),
            "2026-01-01T00:00:00.123456+00:00",
        ),
        (json!("1700000000"), "2023-11-14T22:13:20+00:00"),
        (json!("1700000000000"), "2023-11-14T22:13:20+00:00"),
        (json!("1700000000.5"), "2023-11-14T22:13:20.500+00:00"),
        (json!(1_700_000_000), "2023-11-14T22:13:20+00:00"),
        (json!(1_700_000_000_000_i64), "2023-11-14T22:13:20+00:00"),
        (json!(1.5), "1970-01-01T00:00:01.500+00:00"),
        (json!("-1"), "1969-12-31T23:59:59+00:00"),
        (
            json!("0001-01-01T00:00:00+23:00"),
            "0000-12-31T01:00:00+00:00",
        ),
    ];
    for (value, expected) in table {
        assert_eq!(
            accepted::<DateTime<Utc>>(&value).to_rfc3339(),
            expected,
            "{value}"
        );
    }
}

#[test]
fn invalid_timestamps() {
    let table = [
        ("zzz", "input is too short"),
        ("", "input is too short"),
        ("2026-1-1", "input is too short"),
        ("nan", "input is too short"),
        (
            "2026-13-01",
            "month value is outside expected range of 1-12",
        ),
        ("2026-01-32T00:00:00", "day value is outside expected range"),
        (
            "2026-01-01T25:00:00",
            "unexpected extra characters at the end of the input",
        ),
        (
            "2026-01-01T00:00:00+99:00",
            "unexpected extra characters at the end of the input",
        ),
        ("hello world hello", "invalid character in year"),
        (
            "99999999999999999999",
            "invalid date separator, expected `-`",
        ),
    ];
    for (text, error) in table {
        let msg = format!("Input should be a valid datetime or date, {error}");
        let expected = (
            "datetime_from_date_parsing".into(),
            msg,
            json!({"error": error}),
        );
        assert_eq!(fault::<DateTime<Utc>>(&json!(text)), expected);
    }
    let table = [
        (
            json!(1e300),
            "dates after 9999 are not supported as unix timestamps",
        ),
        (json!("0000-01-01"), "year 0 is out of range"),
    ];
    for (value, error) in table {
        let msg = format!("Input should be a valid datetime, {error}");
        assert_eq!(
            fault::<DateTime<Utc>>(&value),
            ("datetime_parsing".into(), msg, json!({"error": error}))
        );
    }
    for value in [json!(null), json!([]), json!(true)] {
        let msg = "Input should be a valid datetime";
        assert_eq!(
            fault::<DateTime<Utc>>(&value),
            ("datetime_type".into(), msg.into(), Value::Null)
        );
    }
}

choice!(Enum Letter, "A letter." { A = "a", B = "b", C = "c", });
choice!(Literal Only, "One word." { User = "user", });

#[test]
fn choices() {
    assert_eq!(accepted::<Letter>(&json!("b")), Letter::B);
    for value in [
        json!("x"),
        json!("A"),
        json!(null),
        json!(5),
        json!([]),
        json!({}),
    ] {
        let expected = json!({"expected": "'a', 'b' or 'c'"});
        assert_eq!(
            fault::<Letter>(&value),
            (
                "enum".into(),
                "Input should be 'a', 'b' or 'c'".into(),
                expected
            )
        );
    }
    let expected = json!({"expected": "'user'"});
    assert_eq!(
        fault::<Only>(&json!("assistant")),
        (
            "literal_error".into(),
            "Input should be 'user'".into(),
            expected
        )
    );
}
