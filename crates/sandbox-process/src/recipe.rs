//! The fingerprint of a cold start.

use std::os::unix::ffi::OsStrExt;

use secrecy::ExposeSecret;

use crate::config::{AgentServerSource, ProcessConfig};
use crate::digest;
use crate::environment::{FIXED_SETTINGS, FIXED_VARIABLES};

/// Hashes the agent server and its settings; what differs between sandboxes is not included.
pub(crate) fn of(config: &ProcessConfig) -> String {
    with(
        config,
        &[FIXED_VARIABLES.as_slice(), &FIXED_SETTINGS].concat(),
    )
}

/// The same with the settings that all sandboxes share.
fn with(config: &ProcessConfig, constants: &[(&str, &str)]) -> String {
    let mut parts: Vec<&[u8]> = Vec::new();
    match &config.agent_server {
        AgentServerSource::Command(command) => {
            parts.push(b"command");
            parts.extend(command.iter().map(|word| word.as_bytes()));
        }
        AgentServerSource::Provision(provisioner) => {
            parts.push(b"provision");
            let requirements = provisioner.requirements();
            parts.extend(requirements.iter().map(String::as_bytes));
        }
    }
    let launcher = config.launcher.prefix();
    parts.push(b"launcher");
    parts.extend(launcher.iter().map(|word| word.as_bytes()));
    parts.extend([b"path", config.path.as_bytes(), b"variables"]);
    for (name, value) in constants {
        parts.extend([name.as_bytes(), value.as_bytes()]);
    }
    for (name, value) in &config.extra_env {
        parts.extend([name.as_bytes(), value.expose_secret().as_bytes()]);
    }
    digest::short(&parts)
}

#[cfg(test)]
mod tests {
    use domain::id::HostId;

    use super::*;

    #[test]
    fn whatever_a_start_takes_changes_it_and_nothing_else_does() {
        let host = |name: &str| HostId::parse(name).unwrap();
        let command = |words: &[&str]| {
            AgentServerSource::Command(words.iter().map(std::ffi::OsString::from).collect())
        };
        let config = |source| ProcessConfig::new("/data", host("a"), source);
        let first = config(command(&["/bin/agent", "--x"]));
        assert_eq!(of(&first), of(&first.clone()));
        let mut elsewhere = first.clone();
        elsewhere.data_dir = "/other".into();
        elsewhere.instance = host("b");
        elsewhere.parallel_starts = 9;
        assert_eq!(of(&first), of(&elsewhere));

        let mut path = first.clone();
        path.path = "/bin".to_owned();
        let mut variable = first.clone();
        variable.extra_env.insert("A".to_owned(), "canary".into());
        let mut value = variable.clone();
        value.extra_env.insert("A".to_owned(), "other".into());
        let others = [config(command(&["/bin/agent"])), path, variable, value];
        let mut all: Vec<_> = others.iter().chain([&first]).map(of).collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 5);
        assert!(all.iter().all(|it| it.len() == 12));

        // Constants of this release: the next release replaces the warm sandboxes of this one.
        let ours = [FIXED_VARIABLES.as_slice(), &FIXED_SETTINGS].concat();
        assert_eq!(of(&first), with(&first, &ours));
        for place in 0..ours.len() {
            let mut changed = ours.clone();
            changed[place].1 = "another";
            assert_ne!(of(&first), with(&first, &changed), "{:?}", ours[place]);
        }
    }
}
