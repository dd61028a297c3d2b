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

/// The items of an array.
fn each(values: &Value) -> &[Value] {
    values.as_array().unwrap()
}

/// Expects this error, without a context, for each item of an array.
fn all_refused<T: Decode>(values: &Value, kind: &str, msg: &str) {
    let expected = (kind.to_owned(), msg.to_owned(), Value::Null);
    for value in each(values) {
        assert_eq!(fault::<T>(value), expected, "{value}");
    }
}

#[test]
fn strings_are_strict() {
    let values = json!([1, null, true, [], {}, 1.5]);
    all_refused::<String>(&values, "string_type", "Input should be a valid string");
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
    for value in each(&json!([true, 1, 1.0, "TRUE", "t", "Yes", "on", "1"])) {
        assert!(accepted::<bool>(value), "{value}");
    }
    for value in each(&json!([false, 0, 0.0, "false", "F", "no", "off", "N"])) {
        assert!(!accepted::<bool>(value), "{value}");
    }
    let msg = "Input should be a valid boolean, unable to interpret input";
    all_refused::<bool>(&json!([2, -1, " 1", "", "maybe", "2"]), "bool_parsing", msg);
    let msg = "Input should be a valid boolean";
    all_refused::<bool>(&json!([0.5, null, [], {}]), "bool_type", msg);
}

#[test]
fn integers() {
    let table = json!([
        [1, 1],
        [-3, -3],
        [true, 1],
        [2.0, 2],
        ["10", 10],
        [" 10 ", 10],
        ["+5", 5],
        ["1_000", 1000],
        ["5.0", 5],
        ["5.00", 5],
        ["-0.0", 0],
        ["00012", 12]
    ]);
    for row in each(&table) {
        assert_eq!(Some(accepted::<i64>(&row[0])), row[1].as_i64(), "{row}");
    }
    let texts = json!([
        "_1", "1__0", "5.", "5.5", ".0", "1e3", "0x10", "", "abc", "٣", "1.0_0", "- 5", "+", "-"
    ]);
    let msg = "Input should be a valid integer, unable to parse string as an integer";
    all_refused::<i64>(&texts, "int_parsing", msg);
    let msg = "Input should be a valid integer, got a number with a fractional part";
    all_refused::<i64>(&json!([1.5]), "int_from_float", msg);
    let msg = "Input should be a valid integer";
    all_refused::<i64>(&json!([null, [], {}]), "int_type", msg);
    let msg = "Unable to parse input string as an integer, exceeded maximum size";
    let values = json!([1e30, "99999999999999999999", u64::MAX]);
    all_refused::<i64>(&values, "int_parsing_size", msg);
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
    let msg = "Input should be a valid number, unable to parse string as a number";
    all_refused::<f64>(&json!(["abc", "", "1,5"]), "float_parsing", msg);
    assert_eq!(fault::<f64>(&json!("inf")).0, "finite_number");
    let msg = "Input should be a valid number";
    all_refused::<f64>(&json!([null]), "float_type", msg);
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
    all_refused::<Uuid>(&json!([5, null, []]), "uuid_type", msg);
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
    let msg = "Input should be a valid datetime";
    all_refused::<DateTime<Utc>>(&json!([null, [], true]), "datetime_type", msg);
}

choice!(Enum Letter, "A letter." { A = "a", B = "b", C = "c", });
choice!(Literal Only, "One word." { User = "user", });

#[test]
fn choices() {
    assert_eq!(accepted::<Letter>(&json!("b")), Letter::B);
    let msg = "Input should be 'a', 'b' or 'c'";
    let expected = (
        "enum".into(),
        msg.into(),
        json!({"expected": "'a', 'b' or 'c'"}),
    );
    for value in each(&json!(["x", "A", null, 5, [], {}])) {
        assert_eq!(fault::<Letter>(value), expected);
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
