//! The errors of a request: complete, bounded, and without secrets.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use super::path::{Path, bounded};

/// Error items in one response.
const MAX_ERROR_ITEMS: usize = 100;
/// Longest input that an error quotes, in bytes of JSON (an estimate without escapes).
const MAX_ECHO_BYTES: usize = 1024;
/// Longest message, in bytes; messages may quote the client.
const MAX_MESSAGE_BYTES: usize = 2048;

/// The form of errors on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorFormat {
    /// The V1 routes: `type`, `loc`, `msg`, `input`, `ctx`, as in `FastAPI`.
    V1,
    /// The two legacy operations: `loc` (strings only), `msg`, `type`, and nothing that quotes input.
    Legacy,
}

/// The error of one value.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldError {
    kind: &'static str,
    msg: Cow<'static, str>,
    ctx: Option<Value>,
}

impl FieldError {
    /// An error with this `type` and message.
    pub fn new(kind: &'static str, msg: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind,
            msg: msg.into(),
            ctx: None,
        }
    }

    /// Adds the `ctx` member.
    #[must_use]
    pub fn with_context(mut self, ctx: Value) -> Self {
        self.ctx = Some(ctx);
        self
    }

    /// A rule without an equivalent in pydantic: `value_error`, "Value error, …". The text must not quote a secret.
    pub fn value_error(text: impl std::fmt::Display) -> Self {
        Self::new("value_error", format!("Value error, {text}")).with_context(json!({"error": {}}))
    }

    /// A required member is absent.
    pub fn missing() -> Self {
        Self::new("missing", "Field required")
    }

    /// Not an object where a model is expected.
    pub fn model_attributes_type() -> Self {
        Self::new(
            "model_attributes_type",
            "Input should be a valid dictionary or object to extract fields from",
        )
    }

    /// Not an object where a free map is expected.
    pub fn dict_type() -> Self {
        Self::new("dict_type", "Input should be a valid dictionary")
    }

    /// Not a list.
    pub fn list_type() -> Self {
        Self::new("list_type", "Input should be a valid list")
    }

    /// Not a string.
    pub fn string_type() -> Self {
        Self::new("string_type", "Input should be a valid string")
    }

    /// A member that the model does not have, where others are forbidden.
    pub fn extra_forbidden() -> Self {
        Self::new("extra_forbidden", "Extra inputs are not permitted")
    }
}

#[derive(Debug, Clone, PartialEq)]
struct ErrorItem {
    loc: Vec<Value>,
    fault: FieldError,
    input: Option<Value>,
}

/// All errors of a request, in order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FieldErrors {
    items: Vec<ErrorItem>,
}

impl FieldErrors {
    /// An empty list.
    pub const fn new() -> Self {
        Self { items: Vec::new() }
    }

    /// Adds an error about the value `input` at `at`. It quotes the value unless the location is secret.
    pub fn push(&mut self, at: &Path<'_>, fault: FieldError, input: &Value) {
        if at.is_secret() {
            self.push_silent(at, fault);
        } else {
            self.push_item(at, fault, echo(input));
        }
    }

    /// Adds an error without quoting the value.
    pub fn push_silent(&mut self, at: &Path<'_>, fault: FieldError) {
        self.push_item(at, fault, None);
    }

    fn push_item(&mut self, at: &Path<'_>, mut fault: FieldError, input: Option<Value>) {
        if self.is_full() {
            return;
        }
        if fault.msg.len() > MAX_MESSAGE_BYTES {
            fault.msg = bounded(&fault.msg, MAX_MESSAGE_BYTES).into();
        }
        self.items.push(ErrorItem {
            loc: at.to_loc(),
            fault,
            input,
        });
    }

    /// Adds the errors of another attempt (the arms of a union).
    pub fn append(&mut self, other: Self) {
        let room = MAX_ERROR_ITEMS - self.items.len().min(MAX_ERROR_ITEMS);
        self.items.extend(other.items.into_iter().take(room));
    }

    /// Removes all quotes of the input.
    pub(crate) fn forget_inputs(&mut self) {
        for item in &mut self.items {
            item.input = None;
        }
    }

    /// Whether there are no errors.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The number of errors.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether the list is full. A decoder may then stop.
    pub fn is_full(&self) -> bool {
        self.items.len() >= MAX_ERROR_ITEMS
    }

    /// The location of each error, without its root, and the message.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (String, &str)> {
        self.items.iter().map(|item| {
            let steps: Vec<String> = item.loc.iter().skip(1).map(step_text).collect();
            (steps.join("."), item.fault.msg.as_ref())
        })
    }

    /// The `detail` list.
    pub fn detail(&self, error_format: ErrorFormat) -> Value {
        self.items
            .iter()
            .map(|item| item.render(error_format))
            .collect()
    }
}

impl ErrorItem {
    fn render(&self, error_format: ErrorFormat) -> Value {
        let mut out = Map::new();
        let FieldError { kind, msg, ctx } = &self.fault;
        match error_format {
            ErrorFormat::Legacy => {
                out.insert("loc".into(), self.loc.iter().map(step_text).collect());
                out.insert("msg".into(), msg.as_ref().into());
                out.insert("type".into(), (*kind).into());
            }
            ErrorFormat::V1 => {
                out.insert("type".into(), (*kind).into());
                out.insert("loc".into(), self.loc.clone().into());
                out.insert("msg".into(), msg.as_ref().into());
                if let Some(input) = &self.input {
                    out.insert("input".into(), input.clone());
                }
                if let Some(ctx) = ctx {
                    out.insert("ctx".into(), ctx.clone());
                }
            }
        }
        Value::Object(out)
    }
}

fn step_text(step: &Value) -> String {
    step.as_str()
        .map_or_else(|| step.to_string(), str::to_owned)
}

/// The quoted part of a refused value: short values whole, long texts cut, long lists and objects not at all.
fn echo(input: &Value) -> Option<Value> {
    match input {
        Value::String(text) => Some(bounded(text, MAX_ECHO_BYTES).into()),
        _ => size_within(input, MAX_ECHO_BYTES)
            .is_some()
            .then(|| input.clone()),
    }
}

/// The rest of `budget` bytes after serializing `value`; `None` if it does not fit. Reads no more than fits.
fn size_within(value: &Value, budget: usize) -> Option<usize> {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => budget.checked_sub(5),
        Value::String(text) => budget.checked_sub(text.len() + 2),
        Value::Array(list) => list.iter().try_fold(budget.checked_sub(2)?, |left, item| {
            size_within(item, left.checked_sub(1)?)
        }),
        Value::Object(map) => map
            .iter()
            .try_fold(budget.checked_sub(2)?, |left, (key, item)| {
                size_within(item, left.checked_sub(key.len() + 4)?)
            }),
    }
}
