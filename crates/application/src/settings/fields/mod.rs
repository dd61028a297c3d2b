//! Fields of the agent's and the conversation's documents: names, types, bounds, secrecy and defaults.
//!
//! The tables beside this file describe the agent (document version 4, agent server 1.34). Validation of requests,
//! views of documents and the schema routes all use them, so that they cannot diverge.

mod scalars;
mod schema_document;

use std::sync::LazyLock;

use domain::agent::AgentKind;
use serde::Deserialize;
use serde_json::{Map, Number, Value};

use super::issues::{Issue, IssueKind};

pub(super) use scalars::{boolean, integer, number, texts_of};
pub(super) use schema_document::SchemaSection;

/// Title of a variant of the agent document in validation errors.
pub(super) fn variant_title(kind: AgentKind) -> &'static str {
    match kind {
        AgentKind::OpenHands => "OpenHandsAgentSettings",
        AgentKind::Acp => "ACPAgentSettings",
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum FieldKind {
    String,
    Integer,
    Number,
    Boolean,
    Array,
    Object,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SettingsField {
    /// Dotted path, at most two levels.
    pub(super) key: String,
    #[serde(default)]
    label: String,
    #[serde(rename = "type")]
    pub(super) kind: FieldKind,
    #[serde(default)]
    prominence: String,
    #[serde(default)]
    nullable: bool,
    #[serde(default)]
    pub(super) secret: bool,
    #[serde(default)]
    choices: Vec<String>,
    #[serde(default)]
    depends_on: Vec<String>,
    min: Option<f64>,
    max: Option<f64>,
    /// Part of the document, but not of the schema routes.
    #[serde(default)]
    hidden: bool,
    /// Section in the schema, if it is not the first part of the key.
    section: Option<String>,
}

pub(super) struct SettingsSchema {
    pub(super) fields: Vec<SettingsField>,
    pub(super) defaults: Value,
}

const TABLES_VALID: &str = "the embedded tables are valid (tested)";

/// Both variants of the agent document in one table: their fields do not conflict.
pub(super) static AGENT: LazyLock<SettingsSchema> = LazyLock::new(|| SettingsSchema {
    fields: serde_json::from_str(include_str!("agent-fields.json")).expect(TABLES_VALID),
    defaults: {
        let mut document: Map<String, Value> =
            serde_json::from_str(include_str!("agent-defaults.json")).expect(TABLES_VALID);
        let acp: Map<String, Value> =
            serde_json::from_str(include_str!("acp-defaults.json")).expect(TABLES_VALID);
        document.extend(acp);
        Value::Object(document)
    },
});

pub(super) static CONVERSATION: LazyLock<SettingsSchema> = LazyLock::new(|| SettingsSchema {
    fields: serde_json::from_str(include_str!("conversation-fields.json")).expect(TABLES_VALID),
    defaults: serde_json::from_str(include_str!("conversation-defaults.json")).expect(TABLES_VALID),
});

impl SettingsField {
    pub(super) fn pointer(&self) -> String {
        format!("/{}", self.key.replace('.', "/"))
    }

    /// Section (`llm`, `condenser`, …) and name in it; no section for a top-level field.
    pub(super) fn parts(&self) -> (Option<&str>, &str) {
        match self.key.split_once('.') {
            Some((section, name)) => (Some(section), name),
            None => (None, &self.key),
        }
    }

    fn is_acp_only(&self) -> bool {
        self.key.starts_with("acp_")
    }

    /// Whether this variant of the agent document has the field.
    pub(super) fn is_in(&self, kind: AgentKind) -> bool {
        let shared = matches!(
            self.parts().0.unwrap_or(&self.key),
            "llm" | "agent_context" | "mcp_config"
        );
        shared || self.is_acp_only() == (kind == AgentKind::Acp)
    }

    /// Converts a value to the field's type, as leniently as the agent does (`"10"` is an integer, `"yes"` a boolean).
    /// The issue never quotes the value.
    pub(super) fn coerce(&self, value: &Value) -> Result<Value, IssueKind> {
        if value.is_null() {
            return if self.nullable {
                Ok(Value::Null)
            } else {
                Err(self.kind.expected())
            };
        }
        let value = match self.kind {
            FieldKind::String => value.as_str().map(Value::from).ok_or(IssueKind::String)?,
            FieldKind::Integer => Value::from(integer(value)?),
            FieldKind::Number => {
                Value::Number(Number::from_f64(number(value)?).ok_or(IssueKind::Finite)?)
            }
            FieldKind::Boolean => Value::Bool(boolean(value)?),
            FieldKind::Array if value.is_array() => value.clone(),
            FieldKind::Object if value.is_object() => value.clone(),
            FieldKind::Array | FieldKind::Object => return Err(self.kind.expected()),
        };
        self.check(&value)?;
        Ok(value)
    }

    fn check(&self, value: &Value) -> Result<(), IssueKind> {
        let number = value.as_f64();
        if let Some(min) = self.min.filter(|min| number.is_some_and(|n| n < *min)) {
            return Err(IssueKind::AtLeast(min));
        }
        if let Some(max) = self.max.filter(|max| number.is_some_and(|n| n > *max)) {
            return Err(IssueKind::AtMost(max));
        }
        match value.as_str() {
            Some(text) if !self.choices.is_empty() && !self.choices.iter().any(|c| c == text) => {
                Err(IssueKind::OneOf(self.choices.clone()))
            }
            _ => Ok(()),
        }
    }
}

impl FieldKind {
    pub(super) fn expected(self) -> IssueKind {
        match self {
            Self::String => IssueKind::String,
            Self::Integer => IssueKind::Integer,
            Self::Number => IssueKind::Number,
            Self::Boolean => IssueKind::Boolean,
            Self::Array => IssueKind::List,
            Self::Object => IssueKind::Object,
        }
    }
}

impl SettingsSchema {
    /// The value in force: the user's, or the default if it is absent or has a wrong type.
    pub(super) fn effective(&self, overlay: &Map<String, Value>, field: &SettingsField) -> Value {
        set_value(overlay, field)
            .and_then(|value| field.coerce(value).ok())
            .unwrap_or_else(|| self.default_of(field))
    }

    pub(super) fn field(&self, key: &str) -> Option<&SettingsField> {
        self.fields.iter().find(|f| f.key == key)
    }

    pub(super) fn default_of(&self, field: &SettingsField) -> Value {
        self.defaults
            .pointer(&field.pointer())
            .cloned()
            .unwrap_or(Value::Null)
    }

    pub(super) fn is_section(&self, name: &str) -> bool {
        self.fields.iter().any(|f| f.parts().0 == Some(name))
    }

    /// Merges `diff` into `overlay` and validates every known leaf. Unknown keys are ignored; secret fields are passed
    /// to `secret`. Returns all issues; the overlay is only valid without any.
    pub(super) fn merge(
        &self,
        overlay: &mut Map<String, Value>,
        diff: &Map<String, Value>,
        secret: &mut dyn FnMut(&SettingsField, &Value) -> Result<(), IssueKind>,
    ) -> Vec<Issue> {
        let mut issues = Vec::new();
        for (name, value) in diff {
            if self.is_section(name) {
                let Some(group) = value.as_object() else {
                    issues.push(Issue::at(&[name], IssueKind::Object));
                    continue;
                };
                for (leaf, value) in group {
                    if let Some(field) = self.field(&format!("{name}.{leaf}"))
                        && let Err(kind) = set(overlay, field, value, secret)
                    {
                        issues.push(Issue::at(&[name, leaf], kind));
                    }
                }
            } else if let Some(field) = self.field(name)
                && let Err(kind) = set(overlay, field, value, secret)
            {
                issues.push(Issue::at(&[name], kind));
            }
        }
        issues
    }
}

/// The user's own value of this field, unvalidated.
pub(super) fn set_value<'a>(
    overlay: &'a Map<String, Value>,
    field: &SettingsField,
) -> Option<&'a Value> {
    match field.parts() {
        (Some(section), name) => overlay.get(section)?.get(name),
        (None, name) => overlay.get(name),
    }
}

/// Sets a field of the sparse document, or removes it with `None`.
pub(super) fn put(overlay: &mut Map<String, Value>, key: &str, value: Option<Value>) {
    let (group, name) = match key.split_once('.') {
        Some((section, name)) => {
            let entry = overlay
                .entry(section)
                .or_insert_with(|| Value::Object(Map::new()));
            if !entry.is_object() {
                *entry = Value::Object(Map::new());
            }
            match entry.as_object_mut() {
                Some(group) => (group, name),
                None => return,
            }
        }
        None => (overlay, key),
    };
    match value {
        Some(value) => {
            group.insert(name.to_owned(), value);
        }
        None => {
            group.shift_remove(name);
        }
    }
}

fn set(
    overlay: &mut Map<String, Value>,
    field: &SettingsField,
    value: &Value,
    secret: &mut dyn FnMut(&SettingsField, &Value) -> Result<(), IssueKind>,
) -> Result<(), IssueKind> {
    if field.secret {
        return secret(field, value);
    }
    let mut value = field.coerce(value)?;
    if let (Some(Value::Object(old)), Value::Object(new)) = (set_value(overlay, field), &value) {
        let mut merged = old.clone();
        deep_merge(&mut merged, new);
        value = Value::Object(merged);
    }
    put(overlay, &field.key, Some(value));
    Ok(())
}

/// Merges objects key by key; other values replace.
pub(super) fn deep_merge(into: &mut Map<String, Value>, from: &Map<String, Value>) {
    for (key, value) in from {
        match (into.get_mut(key), value) {
            (Some(Value::Object(old)), Value::Object(new)) => deep_merge(old, new),
            _ => {
                into.insert(key.clone(), value.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_leaf_of_the_defaults_is_a_field_of_its_own_type() {
        for schema in [&AGENT, &CONVERSATION] {
            for field in &schema.fields {
                let default = schema.default_of(field);
                assert!(
                    schema.defaults.pointer(&field.pointer()).is_some(),
                    "no default for {}",
                    field.key
                );
                assert_eq!(field.coerce(&default).unwrap(), default, "{}", field.key);
            }
            for (name, value) in schema.defaults.as_object().unwrap() {
                let leaves: Vec<String> = match value.as_object() {
                    Some(group) if schema.is_section(name) => {
                        group.keys().map(|k| format!("{name}.{k}")).collect()
                    }
                    _ => vec![name.clone()],
                };
                for leaf in leaves {
                    let known = schema.field(&leaf).is_some()
                        || ["schema_version", "agent_kind", "llm.is_subscription"]
                            .contains(&leaf.as_str())
                        || leaf == "agent_context.secrets";
                    assert!(known, "{leaf}");
                }
            }
        }
    }

    #[test]
    fn values_are_read_leniently_and_refused_by_kind() {
        let table: [(&SettingsSchema, &str, Value, Result<Value, IssueKind>); 14] = [
            (&CONVERSATION, "max_iterations", json!("10"), Ok(json!(10))),
            (&CONVERSATION, "max_iterations", json!(2.0), Ok(json!(2))),
            (
                &CONVERSATION,
                "max_iterations",
                json!(1.5),
                Err(IssueKind::Fraction),
            ),
            (
                &CONVERSATION,
                "max_iterations",
                json!("many"),
                Err(IssueKind::IntegerText),
            ),
            (
                &CONVERSATION,
                "max_iterations",
                json!(0),
                Err(IssueKind::AtLeast(1.0)),
            ),
            (
                &CONVERSATION,
                "max_iterations",
                json!(1e30),
                Err(IssueKind::IntegerSize),
            ),
            (
                &CONVERSATION,
                "max_iterations",
                Value::Null,
                Err(IssueKind::Integer),
            ),
            (
                &CONVERSATION,
                "confirmation_mode",
                json!("yes"),
                Ok(json!(true)),
            ),
            (
                &CONVERSATION,
                "confirmation_mode",
                json!("maybe"),
                Err(IssueKind::BooleanText),
            ),
            (
                &CONVERSATION,
                "security_analyzer",
                Value::Null,
                Ok(Value::Null),
            ),
            (&AGENT, "llm.model", json!(5), Err(IssueKind::String)),
            (&AGENT, "llm.temperature", json!("0.5"), Ok(json!(0.5))),
            (&AGENT, "llm.top_p", json!(1.1), Err(IssueKind::AtMost(1.0))),
            (&AGENT, "tools", json!({}), Err(IssueKind::List)),
        ];
        for (schema, key, value, expected) in table {
            let got = schema.field(key).unwrap().coerce(&value);
            assert_eq!(got, expected, "{key} = {value}");
        }
    }
}
