//! The automations service: an unmodified Python package that this service installs and runs as a confined process, or that
//! runs elsewhere.
//!
//! A process backend of its own runs it, with one sandbox. So it starts, is adopted after a crash of the service, and is
//! confined as sandboxes are. Its network has one way out: a listener of this service, which is its HTTP proxy. So it reaches
//! this service at the URL by which the sandboxes of its runs do, and nothing else. Elsewhere it uses the same listener.

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use agent_client::AutomationsClient;
use domain::encryption::vault::Fingerprints as _;
use domain::error::chain;
use domain::id::{HostId, SandboxId};
use domain::sandbox::SandboxError;
use endpoint_guard::{EndpointGuard, Unguarded};
use http_api::{AutomationsSite, AutomationsStatus, Gateway, GatewayLimits};
use keyring::InstallationKey;
use sandbox_process::ProcessSandboxes;
use secrecy::SecretString;
use settings::EnvVariables;
use tokio::sync::{Notify, mpsc, watch};
use url::Url;

use super::automation_process::{NAME, launch, process, settings_text, source};
use crate::config::{AutomationsElsewhere, Config};
use crate::lifecycle::automations::{AutomationsProbe, AutomationsRunner, RunCleanup, STARTING};
use crate::listeners::callback::CallbackRoute;

/// Ended runs whose sandboxes are not looked at yet. Those of more runs are found by their age.
const MAX_ENDED_RUNS: usize = 1_000;
/// Largest body: its uploads have at most 1 MiB.
const MAX_BODY_BYTES: u64 = 4 * 1024 * 1024;

/// The automations service of this installation.
pub(crate) struct Automations {
    pub(crate) site: AutomationsSite,
    pub(crate) cleanup: RunCleanup,
    pub(crate) place: AutomationsPlace,
}

/// Where the automations service runs.
pub(crate) enum AutomationsPlace {
    /// This service runs it. `listener` is set to the address of the listener for it.
    Here {
        runner: Arc<AutomationsRunner>,
        listener: Arc<OnceLock<SocketAddr>>,
    },
    /// It runs elsewhere, and calls this service at this address.
    Elsewhere {
        probe: Box<AutomationsProbe>,
        bind: SocketAddr,
    },
}

/// The automations service; `None` where there is none.
pub(crate) async fn open_automations(
    (config, variables, host, fingerprints): (&Config, &EnvVariables, &HostId, &InstallationKey),
    route: &CallbackRoute,
) -> anyhow::Result<Option<Automations>> {
    if !config.automations.is_enabled {
        return Ok(None);
    }
    let internal_url = route.base();
    if let Some(elsewhere) = &config.automations.elsewhere {
        check_url(internal_url)?;
        return Ok(Some(elsewhere_at(elsewhere, internal_url)?));
    }
    if let Err(cause) = check(config, internal_url) {
        tracing::info!("automations are off: {cause}");
        return Ok(None);
    }
    let secret = |purpose: &str, text: &str| {
        SecretString::from(fingerprints.fingerprint(purpose, text.as_bytes()))
    };
    let service_key = secret("automations-service-key", "");
    let values_key = secret("automations-values-key", "");
    let listener = Arc::<OnceLock<SocketAddr>>::default();
    let process = process(
        config,
        variables,
        host,
        (internal_url, &service_key, &values_key, &listener),
    )?;
    let session_key = secret("automations-session-key", &settings_text(&process));
    let is_in_use = process.data_dir.join("sandboxes").join(NAME).exists();
    let opened = ProcessSandboxes::new(process).await;
    let warn = |error: &SandboxError| tracing::warn!(error = %chain(error), "automations are off: their process cannot be prepared");
    // Everything else works without it, for example where no directory for sockets is writable.
    let Ok(backend) = opened.map(Arc::new).inspect_err(warn) else {
        return Ok(None);
    };
    let guard = Arc::clone(&backend) as Arc<dyn EndpointGuard>;
    let (site, cleanup, status) = connect(&guard, STARTING, (service_key, internal_url))?;
    let runner = AutomationsRunner {
        lifecycle: Arc::clone(&backend) as _,
        client: cleanup.client.clone(),
        backend,
        launch: launch(session_key, internal_url)?,
        clock: super::clock(),
        status,
        process_start: Arc::clone(&cleanup.process_start),
        wanted: Arc::clone(&site.wanted),
        is_stopping: AtomicBool::new(false),
        is_in_use,
    };
    let runner = Arc::new(runner);
    Ok(Some(Automations {
        site,
        cleanup,
        place: AutomationsPlace::Here { runner, listener },
    }))
}

/// An automations service that this service does not run.
fn elsewhere_at(
    elsewhere: &AutomationsElsewhere,
    internal_url: &str,
) -> anyhow::Result<Automations> {
    let guard = Arc::new(Unguarded) as Arc<dyn EndpointGuard>;
    let key = elsewhere.service_key.clone();
    let (site, cleanup, status) = connect(&guard, AutomationsProbe::AWAY, (key, internal_url))?;
    let probe = AutomationsProbe {
        client: cleanup.client.clone(),
        url: elsewhere.url.clone(),
        status,
    };
    Ok(Automations {
        site,
        cleanup,
        place: AutomationsPlace::Elsewhere {
            probe: Box::new(probe),
            bind: elsewhere.bind,
        },
    })
}

/// What users and ended runs need of it; and where its state is set.
fn connect(
    guard: &Arc<dyn EndpointGuard>,
    first_state: &str,
    (service_key, internal_url): (SecretString, &str),
) -> anyhow::Result<(
    AutomationsSite,
    RunCleanup,
    watch::Sender<AutomationsStatus>,
)> {
    let first_state = AutomationsStatus::Unavailable(first_state.to_owned());
    let (status, receiver) = watch::channel(first_state);
    let (run_ends, ended) = mpsc::channel(MAX_ENDED_RUNS);
    let cleanup = RunCleanup {
        client: AutomationsClient::new(Arc::clone(guard), SandboxId::parse(NAME)?),
        status: receiver.clone(),
        process_start: Arc::default(),
        ended,
    };
    let site = AutomationsSite {
        status: receiver,
        wanted: Arc::<Notify>::default(),
        run_ends,
        name: NAME.into(),
        gateway: Gateway::new(limits(), Arc::clone(guard)),
        service_key,
        internal_url: internal_url.to_owned(),
    };
    Ok((site, cleanup, status))
}

/// What `doctor` says about it. The error says why there are no automations.
pub(crate) async fn describe_automations(
    config: &Config,
    variables: &EnvVariables,
    route: &CallbackRoute,
) -> anyhow::Result<String> {
    if !config.automations.is_enabled {
        return Ok("off".to_owned());
    }
    let internal_url = route.base();
    if let Some(AutomationsElsewhere { url, bind, .. }) = &config.automations.elsewhere {
        check_url(internal_url)?;
        let client = AutomationsClient::new(Arc::new(Unguarded), SandboxId::parse(NAME)?);
        anyhow::ensure!(
            client.is_ready(url).await,
            "the automations service at {url} does not answer; it must call this service at {internal_url} through {bind}"
        );
        return Ok(format!(
            "{url} answers; it must call this service at {internal_url} through {bind}"
        ));
    }
    check(config, internal_url)?;
    let path = settings::variable(variables, "PATH").and_then(|path| path.to_str());
    let source = source(config, variables)?;
    source.describe(path.unwrap_or_default()).await
}

fn limits() -> GatewayLimits {
    GatewayLimits {
        max_upload_bytes: Some(MAX_BODY_BYTES),
        ..GatewayLimits::default()
    }
}

/// Whether this service can run it.
fn check(config: &Config, internal_url: &str) -> anyhow::Result<()> {
    anyhow::ensure!(
        config.sandbox.shared_host.is_none(),
        "each service with this WORKSPACE_SANDBOX__HOST would keep automations of its own; run one automations service for \
         all of them, and name it in WORKSPACE_AUTOMATIONS__URL"
    );
    check_url(internal_url)
}

/// Checks that it reaches this service at the URL: its proxy takes plain requests only.
fn check_url(internal_url: &str) -> anyhow::Result<()> {
    let is_supported =
        Url::parse(internal_url).is_ok_and(|url| url.scheme() == "http" && url.path() == "/");
    anyhow::ensure!(
        is_supported,
        "sandboxes call this service at {internal_url}, and automations need an http URL without a path \
         (WORKSPACE_SANDBOX__CALLBACK_URL)"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_urls_without_a_path_are_supported() {
        for (url, expected) in [
            ("http://127.0.0.2:26229", true),
            ("http://host.docker.internal:3000", true),
            ("https://agents.example", false),
            ("http://agents.example/team", false),
            ("agents.example", false),
        ] {
            assert_eq!(check_url(url).is_ok(), expected, "{url}");
        }
    }
}
