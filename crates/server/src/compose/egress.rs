//! The egress policy: what sandboxes reach beside the service.

use std::sync::Arc;

use anyhow::{anyhow, ensure};
use async_trait::async_trait;
use broker::{EgressProxy, EgressRules};
use domain::id::SandboxId;
use sandbox_provider::{BackendFeatures, EgressGateway, EgressPolicy};
use tokio::net::TcpStream;

use crate::config::{Config, EgressSettings};

const ALLOW_KEY: &str = "egress.allow (WORKSPACE_EGRESS__ALLOW)";

/// The forward proxy of sandboxes. `None`: the policy needs none.
pub(super) fn open(
    config: &Config,
    sandboxes: &BackendFeatures,
) -> anyhow::Result<Option<Arc<EgressProxy>>> {
    let rules = check(&config.egress, sandboxes)?;
    let is_listed = config.egress.policy == EgressPolicy::AllowList;
    Ok(is_listed.then(|| Arc::new(EgressProxy::new(rules))))
}

/// Fails if the hosts are not valid, or if the sandboxes of this backend could ignore the policy.
pub(crate) fn check(
    egress: &EgressSettings,
    sandboxes: &BackendFeatures,
) -> anyhow::Result<EgressRules> {
    let name = describe(egress);
    ensure!(
        egress.policy == EgressPolicy::Open || sandboxes.enforces_egress,
        "egress.policy is {name}, but {} of the backend {} can ignore it: use confined processes \
         (WORKSPACE_SANDBOX__BACKEND=process, WORKSPACE_PROCESS__ISOLATION=confined), or set WORKSPACE_EGRESS__POLICY=open",
        sandboxes.noun,
        sandboxes.name
    );
    let hosts = egress.hosts.iter().map(String::as_str);
    EgressRules::parse(hosts).map_err(|problem| anyhow!("{ALLOW_KEY}: {problem}"))
}

/// The value of `egress.policy`.
pub(crate) fn describe(egress: &EgressSettings) -> &'static str {
    match egress.policy {
        EgressPolicy::Open => "open",
        EgressPolicy::AllowList => "allow_list",
        EgressPolicy::None => "none",
    }
}

/// Hands connections of sandboxes to the forward proxy.
#[derive(Debug)]
pub(super) struct ProxyGateway(pub(super) Arc<EgressProxy>);

#[async_trait]
impl EgressGateway for ProxyGateway {
    async fn serve(&self, sandbox: &SandboxId, stream: TcpStream) {
        self.0.serve(sandbox.as_str(), stream).await;
    }
}

#[cfg(test)]
mod tests {
    use sandbox_provider::SandboxNetworking;

    use super::*;

    fn features(enforces_egress: bool) -> BackendFeatures {
        BackendFeatures {
            name: "example",
            noun: "containers",
            is_isolated: true,
            single_user: None,
            enforces_egress,
            can_share_host: false,
            warm: 0,
            network: SandboxNetworking::Shared,
        }
    }

    fn settings(policy: EgressPolicy, host: &str) -> EgressSettings {
        let hosts = vec![host.to_owned()];
        EgressSettings { policy, hosts }
    }

    #[test]
    fn a_backend_that_cannot_enforce_the_policy_does_not_start() {
        for (policy, enforces, works) in [
            (EgressPolicy::Open, false, true),
            (EgressPolicy::AllowList, false, false),
            (EgressPolicy::None, false, false),
            (EgressPolicy::AllowList, true, true),
            (EgressPolicy::None, true, true),
        ] {
            let checked = check(&settings(policy, "git"), &features(enforces));
            assert_eq!(checked.is_ok(), works, "{policy:?} {enforces}");
            if let Err(error) = checked {
                assert!(error.to_string().contains("WORKSPACE_PROCESS__ISOLATION"));
            }
        }
    }

    #[test]
    fn an_invalid_host_names_its_setting() {
        let settings = settings(EgressPolicy::AllowList, "https://example.org");
        let error = check(&settings, &features(true)).unwrap_err().to_string();
        assert!(
            error.contains("egress.allow") && error.contains("https://example.org"),
            "{error}"
        );
    }
}
