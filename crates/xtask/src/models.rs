//! Generates `config/models.txt` and `config/acp-providers.json` from the pinned agent server's environment. The service
//! offers these models by name; only the agent server calls them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;

use anyhow::Context as _;
use serde_json::Value;

use crate::install::agent_servers;
use crate::run::{output, print, program, programs, root};

const MODELS: &str = "config/models.txt";
const AGENTS: &str = "config/acp-providers.json";
/// The script for the Python environment.
const SCRIPT: &str = include_str!("models.py");
/// ACP agents that the service's settings support (`acp_server`).
const KNOWN_AGENTS: [&str; 3] = ["claude-code", "codex", "gemini-cli"];

/// Writes both files.
pub(crate) fn write() -> anyhow::Result<()> {
    let version = agent_servers::VERSIONS[0];
    let command = agent_servers::prepare(&programs()?.service, version)?;
    let python = command
        .split_whitespace()
        .next()
        .context("the agent server has no command")?;
    let mut ask = program(python);
    // By default both libraries access the network or print to standard output.
    ask.args(["-c", SCRIPT])
        .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        .env("OPENHANDS_SUPPRESS_BANNER", "1");
    let facts = output(&mut ask)?;
    let facts: Value =
        serde_json::from_str(&facts).context("the facts of the agent server are not valid JSON")?;
    let models = models(&facts).context("the facts of the agent server lack the models")?;
    fs::write(root().join(MODELS), models).with_context(|| format!("cannot write {MODELS}"))?;
    let agents = agents(&facts).context("the facts of the agent server lack the ACP agents")?;
    fs::write(root().join(AGENTS), agents).with_context(|| format!("cannot write {AGENTS}"))?;
    print(&format!("{MODELS} and {AGENTS} written"));
    Ok(())
}

/// One model per line, sorted by full name, with a `*` before verified ones.
fn models(facts: &Value) -> Option<String> {
    let texts = |list: &Value| -> Option<BTreeSet<String>> {
        let names = list.as_array()?.iter();
        names
            .map(|name| Some(name.as_str()?.trim().to_owned()))
            .collect()
    };
    let mut verified = BTreeSet::new();
    for (provider, names) in facts["verified"].as_object()? {
        verified.extend(
            texts(names)?
                .iter()
                .map(|name| format!("{provider}/{name}")),
        );
    }
    // A name without a provider belongs to the provider that verified it.
    let owners: BTreeMap<&str, &String> = verified
        .iter()
        .filter(|whole| !whole.starts_with("openhands/"))
        .filter_map(|whole| Some((whole.split_once('/')?.1, whole)))
        .collect();
    let mut all: BTreeSet<String> = texts(&facts["models"])?
        .into_iter()
        .filter(|name| !name.is_empty() && name != "sample_spec")
        .map(|name| match owners.get(name.as_str()) {
            Some(whole) => (*whole).clone(),
            None => name,
        })
        .collect();
    all.extend(verified.iter().cloned());
    let mut text = String::from(
        "# Names of models, written by `cargo xtask models`: `provider/name`, or a bare name; `*` marks verified ones.\n",
    );
    for (package, version) in facts["versions"].as_object()? {
        let _ = writeln!(text, "# {package} {}", version.as_str()?);
    }
    for name in &all {
        let mark = if verified.contains(name) { "*" } else { "" };
        let _ = writeln!(text, "{mark}{name}");
    }
    Some(text)
}

fn agents(facts: &Value) -> Option<String> {
    let known: Vec<&Value> = facts["acp"]
        .as_array()?
        .iter()
        .filter(|agent| KNOWN_AGENTS.iter().any(|known| agent["key"] == *known))
        .collect();
    (known.len() == KNOWN_AGENTS.len()).then_some(())?;
    let mut text = serde_json::to_string_pretty(&known).ok()?;
    text.push('\n');
    Some(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_bare_name_goes_to_the_provider_that_it_is_verified_of() {
        let facts = json!({
            "versions": {"litellm": "1"},
            "models": ["zz/a/b", "sample_spec", "v1", "odd", "p/v2"],
            "verified": {"openhands": ["odd"], "p": ["v1", "v2", "v3"]},
        });
        let written = models(&facts).unwrap();
        let lines: Vec<&str> = written.lines().filter(|l| !l.starts_with("# ")).collect();
        assert_eq!(
            lines,
            ["odd", "*openhands/odd", "*p/v1", "*p/v2", "*p/v3", "zz/a/b"]
        );
    }
}
