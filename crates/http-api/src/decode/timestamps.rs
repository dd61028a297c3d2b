//! Decodes timestamps: ISO 8601 with or without zone, a date alone, Unix seconds or milliseconds. The default zone is UTC.

use chrono::{DateTime, NaiveDate, TimeDelta, Utc};
use serde_json::{Value, json};
use speedate::{
    Date, DateConfig, DateTimeConfig, MicrosecondsPrecisionOverflowBehavior, ParseError, TimeConfig,
};
use strum::EnumMessage;

use super::{DecodeScalar, FieldError};

impl DecodeScalar for DateTime<Utc> {
    fn parse(value: &Value) -> Result<Self, FieldError> {
        let parsed = match value {
            Value::String(text) => from_text(text),
            Value::Number(number) => from_number(number),
            _ => Err(FieldError::new(
                "datetime_type",
                "Input should be a valid datetime",
            )),
        };
        to_utc(&parsed?)
    }
}

fn config() -> DateTimeConfig {
    // More than six fractional digits are cut, as pydantic does by default.
    let time = TimeConfig::builder()
        .microseconds_precision_overflow_behavior(MicrosecondsPrecisionOverflowBehavior::Truncate)
        .build();
    DateTimeConfig::builder().time_config(time).build()
}

fn from_text(text: &str) -> Result<speedate::DateTime, FieldError> {
    speedate::DateTime::parse_bytes_with_config(text.as_bytes(), &config()).or_else(|_| {
        // Like pydantic, try a date after a failed datetime, and report the date's error.
        let date = Date::parse_bytes_with_config(text.as_bytes(), &DateConfig::builder().build());
        date.map(midnight)
            .map_err(|error| from_date_parsing(&error))
    })
}

fn midnight(date: Date) -> speedate::DateTime {
    let time = speedate::Time {
        hour: 0,
        minute: 0,
        second: 0,
        microsecond: 0,
        tz_offset: None,
    };
    speedate::DateTime { date, time }
}

fn from_number(number: &serde_json::Number) -> Result<speedate::DateTime, FieldError> {
    let parsed = match (number.as_i64(), number.as_f64()) {
        (Some(whole), _) => speedate::DateTime::from_timestamp_with_config(whole, 0, &config()),
        (None, Some(real)) => speedate::DateTime::from_float_with_config(real, &config()),
        (None, None) => Err(ParseError::DateTooLarge),
    };
    parsed.map_err(|error| parsing(explain(&error)))
}

fn to_utc(moment: &speedate::DateTime) -> Result<DateTime<Utc>, FieldError> {
    let (date, time) = (moment.date, moment.time);
    if date.year == 0 {
        return Err(parsing("year 0 is out of range"));
    }
    NaiveDate::from_ymd_opt(
        i32::from(date.year),
        u32::from(date.month),
        u32::from(date.day),
    )
    .and_then(|day| {
        let (hour, minute, second) = (time.hour.into(), time.minute.into(), time.second.into());
        day.and_hms_micro_opt(hour, minute, second, time.microsecond)
    })
    .and_then(|local| {
        local.checked_sub_signed(TimeDelta::seconds(time.tz_offset.unwrap_or(0).into()))
    })
    .map(|utc| utc.and_utc())
    .ok_or_else(|| parsing("day value is outside expected range"))
}

fn explain(error: &ParseError) -> &'static str {
    error.get_documentation().unwrap_or("invalid datetime")
}

fn parsing(error: &'static str) -> FieldError {
    FieldError::new(
        "datetime_parsing",
        format!("Input should be a valid datetime, {error}"),
    )
    .with_context(json!({"error": error}))
}

fn from_date_parsing(error: &ParseError) -> FieldError {
    let error = explain(error);
    FieldError::new(
        "datetime_from_date_parsing",
        format!("Input should be a valid datetime or date, {error}"),
    )
    .with_context(json!({"error": error}))
}
