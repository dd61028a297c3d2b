//! The manifest of a marketplace: `marketplace.json` in `.plugin` or `.claude-plugin`.

use domain::skill::MarketplacePlugin;
use serde_json::Value;

/// The paths of a manifest, in the order of the search.
pub(crate) const MANIFEST_PATHS: [&str; 2] = [
    ".plugin/marketplace.json",
    ".claude-plugin/marketplace.json",
];
/// Maximum number of entries of each kind.
const MAX_MANIFEST_ENTRIES: usize = 1_000;
/// Characters of a name and of a description. Longer descriptions are truncated.
const MAX_NAME_CHARS: usize = 256;
const MAX_DESCRIPTION_CHARS: usize = 2_048;

/// Plugins, and names of skills that belong to no plugin.
pub(crate) type ManifestEntries = (Vec<MarketplacePlugin>, Vec<String>);

/// Parses a manifest. The error completes the sentence "its manifest …".
pub(crate) fn parse(text: &[u8]) -> Result<ManifestEntries, &'static str> {
    let document: Value = serde_json::from_slice(text).map_err(|_| "is not JSON")?;
    let entries = |member: &str| match document.get(member) {
        None | Some(Value::Null) => Ok(&[][..]),
        Some(Value::Array(entries)) if entries.len() <= MAX_MANIFEST_ENTRIES => {
            Ok(entries.as_slice())
        }
        Some(Value::Array(_)) => Err("lists more than 1000 entries"),
        Some(_) => Err("has `plugins` or `skills` that are not lists"),
    };
    let name = |entry: &Value| {
        let name = entry["name"].as_str().map(str::trim);
        let is_valid = |name: &&str| {
            (1..=MAX_NAME_CHARS).contains(&name.chars().count()) && !name.contains(char::is_control)
        };
        name.filter(is_valid)
            .map(str::to_owned)
            .ok_or("has an entry without a valid `name`")
    };
    let plugin = |entry: &Value| {
        let description = entry["description"].as_str();
        Ok::<_, &'static str>(MarketplacePlugin {
            name: name(entry)?,
            description: description.map(|text| text.chars().take(MAX_DESCRIPTION_CHARS).collect()),
        })
    };
    let plugins: Result<_, _> = entries("plugins")?.iter().map(plugin).collect();
    let skills: Result<_, _> = entries("skills")?.iter().map(name).collect();
    Ok((plugins?, skills?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugins_and_skills_are_listed() {
        let text = br#"{"name": "m", "owner": {"name": "o"}, "plugins": [
            {"name": "a", "source": "./a", "description": "A"}, {"name": "b", "source": {"source": "github"}}],
            "skills": [{"name": "s", "source": "./s"}]}"#;
        let plugin = |name: &str, description: Option<&str>| MarketplacePlugin {
            name: name.to_owned(),
            description: description.map(str::to_owned),
        };
        let expected = (
            vec![plugin("a", Some("A")), plugin("b", None)],
            vec!["s".to_owned()],
        );
        assert_eq!(parse(text), Ok(expected));
        assert_eq!(parse(b"{}"), Ok((vec![], vec![])));
        for bad in [
            "",
            "[",
            "{\"plugins\": 5}",
            "{\"skills\": [{}]}",
            "{\"plugins\": [{\"name\": \"\"}]}",
        ] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
