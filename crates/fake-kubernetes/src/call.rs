//! A request to the API server.

use std::collections::HashMap;
use std::io;

use http_body_util::combinators::UnsyncBoxBody;
use hyper::Method;
use hyper::body::Bytes;
use serde_json::Value;

pub(crate) type ServerBody = UnsyncBoxBody<Bytes, io::Error>;
pub(crate) type Parameters = HashMap<String, String>;

pub(crate) struct Call<'a> {
    pub(crate) method: &'a Method,
    pub(crate) parameters: &'a Parameters,
    pub(crate) sent: Value,
    pub(crate) is_apply: bool,
}

impl Call<'_> {
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).map(String::as_str)
    }

    pub(crate) fn is_set(&self, name: &str) -> bool {
        self.parameter(name) == Some("true")
    }
}

/// Whether an object has a label and a field, as `KEY=VALUE` in a selector.
pub(crate) fn is_selected(object: &Value, call: &Parameters) -> bool {
    let matches = |selector: Option<&String>, get: &dyn Fn(&str) -> Value| {
        let parts = selector.into_iter().flat_map(|all| all.split(','));
        let mut pairs = parts.filter_map(|part| part.split_once('='));
        pairs.all(|(key, value)| get(key) == *value)
    };
    let label = |key: &str| object["metadata"]["labels"][key].clone();
    let field = |key: &str| {
        let pointer = format!("/{}", key.replace('.', "/"));
        object.pointer(&pointer).cloned().unwrap_or_default()
    };
    matches(call.get("labelSelector"), &label) && matches(call.get("fieldSelector"), &field)
}
