//! The APIs of git providers, with the operator's settings for hosts and certificates.

use anyhow::Context as _;
use broker::GitBroker;
use git_hosting::{AllowedHost, CaCertificates, Config, HttpGitHosting, PrivateHosts};

use crate::config::GitSettings;

const PRIVATE_HOSTS_KEY: &str = "git.allow_private_hosts (WORKSPACE_GIT__ALLOW_PRIVATE_HOSTS)";

/// What calls git hosts: for the service itself, and for sandboxes.
pub(super) fn open(config: &GitSettings) -> anyhow::Result<(HttpGitHosting, GitBroker)> {
    let authorities = authorities(config)?;
    let git = Config {
        private_hosts: private_hosts(PRIVATE_HOSTS_KEY, &config.private_hosts)?,
        authorities,
        timeout: config.timeout,
        ..Config::default()
    };
    let failed =
        |error| anyhow::anyhow!("cannot create the HTTP client for git providers: {error}");
    let hosting = HttpGitHosting::new(&git).map_err(failed)?;
    let all = CaCertificates::of_system().and(&git.authorities);
    let broker = GitBroker::new(git.private_hosts, all).map_err(failed)?;
    Ok((hosting, broker))
}

/// The operator's certificate authorities.
pub(super) fn authorities(config: &GitSettings) -> anyhow::Result<CaCertificates> {
    let Some((path, text)) = &config.authorities else {
        return Ok(CaCertificates::default());
    };
    CaCertificates::from_pem(text).map_err(|problem| {
        anyhow::anyhow!(
            "git.ca_file (WORKSPACE_GIT__CA_FILE) names {}, which {problem}",
            path.display()
        )
    })
}

/// Reads a list of private hosts. `key` names the setting in errors.
pub(super) fn private_hosts(key: &str, listed: &[String]) -> anyhow::Result<PrivateHosts> {
    match listed {
        [] => Ok(PrivateHosts::Refused),
        // Forms that operators write in a variable.
        [one] if one == "false" => Ok(PrivateHosts::Refused),
        [one] if one == "*" || one == "true" => Ok(PrivateHosts::Allowed),
        entries => {
            let read: Option<Vec<AllowedHost>> =
                entries.iter().map(|entry| entry.parse().ok()).collect();
            let read = read.with_context(|| {
                format!(
                    "{key} must hold host names (without scheme and port) and networks such as 10.0.0.0/8, or \"*\" alone"
                )
            });
            read.map(PrivateHosts::Listed)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_holds_host_names_and_networks() {
        let read = |entries: &[&str]| {
            let entries: Vec<String> = entries.iter().map(ToString::to_string).collect();
            private_hosts(PRIVATE_HOSTS_KEY, &entries)
        };
        assert_eq!(read(&[]).unwrap(), PrivateHosts::Refused);
        assert_eq!(read(&["false"]).unwrap(), PrivateHosts::Refused);
        assert_eq!(read(&["*"]).unwrap(), PrivateHosts::Allowed);
        assert_eq!(read(&["true"]).unwrap(), PrivateHosts::Allowed);
        let listed = read(&["git.corp", "10.0.0.0/8"]);
        assert!(matches!(listed, Ok(PrivateHosts::Listed(list)) if list.len() == 2));
        for bad in [&["*", "git.corp"][..], &["https://git.corp"], &["h:80"]] {
            let error = read(bad).unwrap_err().to_string();
            assert!(error.contains("allow_private_hosts"), "{error}");
        }
    }
}
