//! Fills in templates. Values become text, never markup.

/// Replaces `{{name}}` by values, which are not searched again.
pub(crate) fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let mut text = String::with_capacity(template.len() + 256);
    let mut parts = template.split("{{");
    text.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let (name, rest) = part.split_once("}}").unwrap_or((part, ""));
        let value = values.iter().find(|(known, _)| *known == name);
        text.push_str(value.map_or("", |(_, value)| value));
        text.push_str(rest);
    }
    text
}
