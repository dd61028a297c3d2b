//! Schema documents for settings pages.

use domain::agent::AgentKind;
use serde_json::{Value, json};

use super::{FieldKind, SettingsField, SettingsSchema};

impl FieldKind {
    fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::Array => "array",
            Self::Object => "object",
        }
    }
}

impl SettingsSchema {
    /// The schema document for settings pages. Descriptions are null.
    pub(crate) fn describe(&self, model: &str, sections: &[SchemaSection]) -> Value {
        let sections: Vec<Value> = sections
            .iter()
            .map(|section| {
                let fields: Vec<Value> = self
                    .fields
                    .iter()
                    .filter(|f| !f.hidden && section.holds(f))
                    .map(|f| self.describe_field(f, section))
                    .collect();
                json!({"key": section.key, "label": section.label, "fields": fields,
                       "variant": section.variant.map(AgentKind::as_str)})
            })
            .collect();
        json!({"model_name": model, "sections": sections})
    }

    fn describe_field(&self, field: &SettingsField, section: &SchemaSection) -> Value {
        let choices: Vec<Value> = field
            .choices
            .iter()
            .map(|c| json!({"value": c, "label": c}))
            .collect();
        json!({
            "key": field.key, "label": field.label, "description": null,
            "section": section.key, "section_label": section.label,
            "value_type": field.kind.name(), "default": self.default_of(field),
            "prominence": field.prominence, "depends_on": field.depends_on,
            "secret": field.secret, "choices": choices,
            "variant": section.field_variant().map(AgentKind::as_str),
        })
    }
}

pub(crate) struct SchemaSection {
    pub(crate) key: &'static str,
    pub(crate) label: &'static str,
    pub(crate) variant: Option<AgentKind>,
    /// Whether its fields name a variant although the section does not.
    pub(crate) of_agent: bool,
}

impl SchemaSection {
    fn holds(&self, field: &SettingsField) -> bool {
        let own = match (&field.section, field.parts().0) {
            (Some(section), _) => section,
            (None, Some(section)) => section,
            (None, None) if field.is_acp_only() => "acp",
            (None, None) => "general",
        };
        own == self.key
    }

    fn field_variant(&self) -> Option<AgentKind> {
        self.variant
            .or(self.of_agent.then_some(AgentKind::OpenHands))
    }
}
