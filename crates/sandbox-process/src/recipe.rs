//! The fingerprint of a cold start.

use std::os::unix::ffi::OsStrExt;

use sandbox_provider::{FIXED_VARIABLES, short_digest};
use secrecy::ExposeSecret;

use crate::config::{AgentServerSource, ProcessConfig};
use crate::environment::FIXED_SETTINGS;

/// Hashes the agent server and its settings, without values that differ between sandboxes.
pub(crate) fn fingerprint(config: &ProcessConfig) -> String {
    fingerprint_with(
        config,
        &[FIXED_VARIABLES.as_slice(), &FIXED_SETTINGS].concat(),
    )
}

/// The same with the settings that all sandboxes share.
fn fingerprint_with(config: &ProcessConfig, constants: &[(&str, &str)]) -> String {
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
    short_digest(&parts)
}

#[cfg(test)]
mod tests {
    use domain::id::HostId;

    use super::*;

    #[test]
    fn every_setting_of_a_start_changes_the_fingerprint_and_no_other_one_does() {
        let host = |name: &str| HostId::parse(name).unwrap();
        let command = |words: &[&str]| {
            AgentServerSource::Command(words.iter().map(std::ffi::OsString::from).collect())
        };
        let config = |source| ProcessConfig::new("/data", host("a"), source);
        let first = config(command(&["/bin/agent", "--x"]));
        assert_eq!(fingerprint(&first), fingerprint(&first.clone()));
        let mut elsewhere = first.clone();
        elsewhere.data_dir = "/other".into();
        elsewhere.instance = host("b");
        elsewhere.parallel_starts = 9;
        assert_eq!(fingerprint(&first), fingerprint(&elsewhere));

        let mut path = first.clone();
        path.path = "/bin".to_owned();
        let mut variable = first.clone();
        variable.extra_env.insert("A".to_owned(), "canary".into());
        let mut value = variable.clone();
        value.extra_env.insert("A".to_owned(), "other".into());
        let others = [config(command(&["/bin/agent"])), path, variable, value];
        let mut all: Vec<_> = others.iter().chain([&first]).map(fingerprint).collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 5);
        assert!(all.iter().all(|hash| hash.len() == 12));

        // Constants of this release: the next release replaces the warm sandboxes of this one.
        let constants = [FIXED_VARIABLES.as_slice(), &FIXED_SETTINGS].concat();
        assert_eq!(fingerprint(&first), fingerprint_with(&first, &constants));
        for index in 0..constants.len() {
            let mut changed = constants.clone();
            changed[index].1 = "another";
            assert_ne!(
                fingerprint(&first),
                fingerprint_with(&first, &changed),
                "{:?}",
                constants[index]
            );
        }
    }
}
