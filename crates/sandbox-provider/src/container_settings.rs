//! Readers of the settings that backends with images have in common. Each backend names its own keys.

use std::collections::{BTreeMap, BTreeSet};

use domain::egress_list::EgressList;
use domain::id::SpecId;
use domain::sandbox::AGENT_SERVER;
use secrecy::{ExposeSecret as _, SecretString};
use settings::{SettingReader, assignment};

use crate::EgressPolicy;

/// A port of the sandbox that clients may reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExposedPort {
    /// `AGENT_SERVER`, `VSCODE`, `WORKER_1`, …; workers get a variable of this name with the port.
    pub name: String,
    /// Port in the sandbox.
    pub port: u16,
}

/// The default template of a section, and the additional ones.
pub fn templates<T>(
    reader: &SettingReader<'_>,
    section: &str,
    read: fn(&SettingReader<'_>) -> T,
    id: fn(&T) -> &SpecId,
) -> Vec<T> {
    let mut templates = vec![read(reader)];
    let mut ids = BTreeSet::from([id(&templates[0]).clone()]);
    for (number, template) in (0..).zip(reader.templates(section, read)) {
        if !ids.insert(id(&template).clone()) {
            let problem = "is also the id of another template: ids must differ";
            reader.template_problem(number, &format!("{section}.id"), problem);
        }
        templates.push(template);
    }
    templates
}

/// The id of a template, by default its image, and the image. What runs the image checks the reference exactly.
#[expect(
    clippy::missing_panics_doc,
    reason = "the image is a checked reference"
)]
pub fn id_and_image(reader: &SettingReader<'_>, section: &str) -> (SpecId, String) {
    let key = |name| format!("{section}.{name}");
    let image = reader.parsed(&key("image"), "an image, e.g. agents:1", |text| {
        let plain = text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_./:@".contains(&b));
        let is_image =
            plain && text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.len() <= 255;
        is_image.then(|| text.to_owned())
    });
    let id = reader.optional_parsed(&key("id"), "1 to 255 visible characters", |text| {
        SpecId::parse(text).ok()
    });
    let id = id.unwrap_or_else(|| SpecId::parse(&image).expect("an image is an id"));
    (id, image)
}

/// Variables with secret values.
pub fn secret_env(reader: &SettingReader<'_>, key: &str) -> BTreeMap<String, SecretString> {
    reader.parsed_secrets(key, "entries NAME=VALUE", |text| {
        let (name, value) = assignment(text.expose_secret())?;
        Some((name.to_owned(), value.into()))
    })
}

/// A directory in the container.
pub fn directory(reader: &SettingReader<'_>, key: &str) -> String {
    reader.parsed(key, "an absolute path other than /", |text| {
        container_path(text).filter(|path| path != "/")
    })
}

/// An absolute path without `.`, `..`, empty segments, and colons (which separate the parts of a mount).
pub fn container_path(text: &str) -> Option<String> {
    let path = match text.strip_suffix('/') {
        Some("") => return Some("/".to_owned()),
        Some(path) => path,
        None => text,
    };
    let mut parts = path.strip_prefix('/')?.split('/');
    let plain = parts.all(|part| !matches!(part, "" | "." | "..")) && !path.contains([':', '\0']);
    plain.then(|| path.to_owned())
}

/// Whether a path is this directory or below it.
pub fn is_inside(path: &str, directory: &str) -> bool {
    path.strip_prefix(directory)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Bytes of memory, at least `min_mib` MiB. `None`: no limit.
pub fn memory(reader: &SettingReader<'_>, key: &str, min_mib: u64) -> Option<u64> {
    let bytes = reader.size_limit(key);
    if bytes.is_some_and(|bytes| bytes < min_mib << 20) {
        let problem = format!("must be {min_mib}MiB or more (or 0: no limit)");
        reader.problem(key, &problem);
    }
    bytes
}

/// Processor cores, at least `min`. `None`: no limit.
pub fn cpus(reader: &SettingReader<'_>, key: &str, min: f64) -> Option<f64> {
    let cpus = reader.parsed(key, "a number of cores, e.g. 1.5, or 0", |text| {
        let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let cpus: f64 = text.parse().ok().filter(|_| plain)?;
        (cpus == 0.0 || (min..=10_000.0).contains(&cpus)).then_some(cpus)
    });
    (cpus > 0.0).then_some(cpus)
}

/// The names of Linux capabilities, without the prefix `CAP_`.
pub fn capabilities(reader: &SettingReader<'_>, key: &str) -> Vec<String> {
    reader.parsed_list(key, "names such as CHOWN", |text| {
        let name = text.strip_prefix("CAP_").unwrap_or(text);
        let plain = name.bytes().all(|b| b.is_ascii_uppercase() || b == b'_');
        // `ALL` is refused: a list must name what an agent needs.
        (plain && !name.is_empty() && name != "ALL").then(|| name.to_owned())
    })
}

/// The ports that clients may reach, among them `AGENT_SERVER`.
pub fn exposed_ports(reader: &SettingReader<'_>, key: &str) -> Vec<ExposedPort> {
    let ports = reader.parsed_list(key, "entries NAME=PORT", |text| {
        let (name, port) = assignment(text)?;
        let port = port.trim().parse().ok().filter(|port| *port != 0)?;
        let name = name.to_owned();
        Some(ExposedPort { name, port })
    });
    if ports.len() < reader.list(key).len() {
        // The reader has recorded the invalid entry.
        return ports;
    }
    let names: BTreeSet<&str> = ports.iter().map(|port| port.name.as_str()).collect();
    let numbers: BTreeSet<u16> = ports.iter().map(|port| port.port).collect();
    if names.len() < ports.len() || numbers.len() < ports.len() {
        reader.problem(key, "must not contain a name or a port twice");
    } else if !names.contains(AGENT_SERVER) {
        reader.problem(
            key,
            "must hold AGENT_SERVER=PORT, by which this service talks to the agent server",
        );
    }
    ports
}

/// The hosts of a template, where lists say what sandboxes reach.
pub fn egress_allow(reader: &SettingReader<'_>, key: &str) -> Option<EgressList> {
    let entries = reader.list(key);
    if entries.is_empty() {
        return None;
    }
    if EgressPolicy::read(reader) != EgressPolicy::AllowList {
        reader.problem(
            key,
            "has an effect only with egress.policy = \"allow_list\"",
        );
    }
    let list = EgressList::parse(entries.iter().map(String::as_str));
    list.map_err(|problem| reader.problem(key, &problem)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_inside_by_whole_segments() {
        assert!(is_inside("/workspace", "/workspace"));
        assert!(is_inside("/workspace/project", "/workspace"));
        assert!(!is_inside("/workspaces", "/workspace"));
        assert!(!is_inside("/", "/workspace"));
    }
}
