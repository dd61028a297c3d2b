//! The egress policy: what sandboxes reach beside the service.

use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

use anyhow::{anyhow, ensure};
use application::App;
use application::administration::Origin;
use async_trait::async_trait;
use broker::{
    CaCertificates, EgressApprovals, EgressLimits, EgressProxy, EgressRules, SandboxSecrets,
};
use domain::audit::{AuditActor, sanitize_text};
use domain::egress_list::SandboxEgress;
use domain::error::BoxError;
use domain::host_rule::HostRules;
use domain::id::SandboxId;
use domain::secret_rule::SecretRules;
use sandbox_provider::{BackendFeatures, EgressGateway, EgressPolicy};
use secrecy::SecretString;
use tokio::net::TcpStream;

use super::backends::OpenedBackend;
use super::git::authorities;
use crate::config::{Config, EgressSettings};

/// The action of audit entries about refused placeholders.
const REFUSAL_ACTION: &str = "secrets send";
const FORBIDDEN: u16 = 403;
const ALLOW_KEY: &str = "egress.allow (WORKSPACE_EGRESS__ALLOW)";

/// What sandboxes reach through the forward proxy.
pub(super) fn rules(config: &Config, sandboxes: &OpenedBackend) -> anyhow::Result<EgressRules> {
    let listed = check(&config.egress, &sandboxes.features)?;
    if config.egress.policy != EgressPolicy::Open {
        return Ok(listed);
    }
    let route = sandboxes.ports.egress.as_ref();
    let networks = route.iter().flat_map(|route| &route.reachable_networks);
    Ok(EgressRules::Open {
        // The backend has checked them.
        listed: networks
            .filter_map(|network| network.parse().ok())
            .collect(),
        by_default_route: route.is_some_and(|route| route.by_default_route),
    })
}

/// Whether sandboxes get placeholders of secrets.
pub(super) fn sends_secrets(config: &Config, sandboxes: &OpenedBackend) -> bool {
    config.broker.secrets && sandboxes.ports.egress.is_some()
}

/// The forward proxy of sandboxes, which their backend gets. `None`: it uses none.
pub(super) fn open(
    config: &Config,
    sandboxes: &OpenedBackend,
    rules: EgressRules,
    app: &App,
) -> anyhow::Result<Option<Arc<EgressProxy>>> {
    let Some(route) = &sandboxes.ports.egress else {
        return Ok(None);
    };
    let mut proxy = EgressProxy::new(rules);
    if sends_secrets(config, sandboxes) {
        let secrets = Arc::new(OwnersSecrets(app.clone()));
        // Tokens of git hosts go to hosts with the operator's authorities.
        let trusted = CaCertificates::of_system().and(&authorities(&config.git)?);
        proxy = proxy.with_secrets(secrets, trusted)?;
    }
    if config.egress.policy == EgressPolicy::AllowList {
        proxy = proxy.with_limits(Arc::new(OwnersLists(app.clone())));
    }
    if config.egress.policy == EgressPolicy::AllowList && config.egress.approvals {
        proxy = proxy.with_approvals(Arc::new(OwnersApprovals(app.clone())));
    }
    let proxy = Arc::new(proxy);
    // This is the only place that sets it.
    let _ = route
        .gateway
        .set(Arc::new(ProxyGateway(Arc::clone(&proxy))));
    Ok(Some(proxy))
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
         (WORKSPACE_SANDBOX__BACKEND=process, WORKSPACE_PROCESS__ISOLATION=confined), containers of an engine on this machine or pods in a \
         closed network (kubernetes.network and proxy_port), or set WORKSPACE_EGRESS__POLICY=open",
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
struct ProxyGateway(Arc<EgressProxy>);

#[async_trait]
impl EgressGateway for ProxyGateway {
    async fn serve(&self, sandbox: &SandboxId, stream: TcpStream) {
        self.0.serve(sandbox, stream).await;
    }

    fn authority(&self, sandbox: &SandboxId) -> Result<Option<String>, BoxError> {
        Ok(self.0.authority(sandbox).transpose()?)
    }
}

/// The lists of single sandboxes.
struct OwnersLists(App);

impl Debug for OwnersLists {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("OwnersLists")
    }
}

#[async_trait]
impl EgressLimits for OwnersLists {
    async fn of(&self, sandbox: &SandboxId) -> Result<SandboxEgress, BoxError> {
        Ok(self.0.egress.lists(sandbox).await?)
    }
}

/// What sandboxes' owners approved.
struct OwnersApprovals(App);

impl Debug for OwnersApprovals {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("OwnersApprovals")
    }
}

#[async_trait]
impl EgressApprovals for OwnersApprovals {
    async fn is_approved(
        &self,
        sandbox: &SandboxId,
        host: &str,
        port: u16,
    ) -> Result<bool, BoxError> {
        Ok(self.0.egress.is_approved(sandbox, host, port).await?)
    }
}

/// The secrets of sandboxes' owners.
struct OwnersSecrets(App);

impl Debug for OwnersSecrets {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("OwnersSecrets")
    }
}

#[async_trait]
impl SandboxSecrets for OwnersSecrets {
    async fn hosts(&self, sandbox: &SandboxId) -> Result<HostRules, BoxError> {
        Ok(self.0.secrets.hosts(sandbox).await?)
    }

    async fn reveal(
        &self,
        sandbox: &SandboxId,
        placeholder: &str,
    ) -> Result<Option<(SecretString, SecretRules)>, BoxError> {
        let opened = self
            .0
            .secrets
            .open_placeholder(sandbox, placeholder)
            .await?;
        Ok(opened.map(|secret| (secret.value, secret.hosts)))
    }

    fn refused(&self, sandbox: &SandboxId, reason: &str) {
        let origin = Origin {
            actor: AuditActor::Sandbox(sandbox.clone()),
            status: Some(FORBIDDEN),
            ..Origin::service(REFUSAL_ACTION)
        };
        let detail = Some(sanitize_text(reason));
        self.0.audit.record(origin, None, detail);
    }

    fn authority_seed(&self, sandbox: &SandboxId) -> SecretString {
        self.0.secrets.authority_seed(sandbox)
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
            parallel_starts: 2,
            network: SandboxNetworking::Shared,
        }
    }

    fn settings(policy: EgressPolicy, host: &str) -> EgressSettings {
        let hosts = vec![host.to_owned()];
        EgressSettings {
            policy,
            hosts,
            approvals: true,
        }
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
