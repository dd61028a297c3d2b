//! The choice of the sandbox backend.

use std::ffi::OsString;

use domain::id::HostId;
use sandbox_provider::{BackendFeatures, ConfiguredBackend, Installation, SandboxPorts};
use settings::EnvVariables;

use super::BACKENDS;
use crate::config::Config;
use crate::data_dir::DataDir;

pub(crate) struct OpenedBackend {
    pub(crate) ports: SandboxPorts,
    pub(crate) features: BackendFeatures,
    /// For the banner: why this backend was chosen, and how to choose another one.
    pub(crate) reason: String,
}

pub(crate) async fn open_backend(
    config: &Config,
    installation: &Installation<'_>,
    before: Option<&str>,
) -> anyhow::Result<OpenedBackend> {
    let (backend, reason) = choose_backend(config, installation, before).await;
    Ok(OpenedBackend {
        ports: backend.open(installation).await?,
        features: backend.features(),
        reason,
    })
}

/// Chooses the backend, and says why. `before` is the backend of the installation's existing sandboxes: `auto` keeps it, because another
/// backend would not find them.
pub(crate) async fn choose_backend<'a>(
    config: &'a Config,
    installation: &Installation<'_>,
    before: Option<&str>,
) -> (&'a dyn ConfiguredBackend, String) {
    if let Some(backend) = config.sandbox.backend.and_then(|name| config.backend(name)) {
        return (backend, "configured".to_owned());
    }
    if let Some(backend) = before.and_then(|name| config.backend(name)) {
        let found = "auto: as before, so that this installation's sandboxes are found";
        let mut reason = found.to_owned() + &isolation_warning(backend);
        if !backend.features().is_isolated {
            let mut others = config.backends.iter();
            let isolated = others.find(|other| other.features().is_isolated);
            reason.extend(isolated.map(|other| advice(&**other, "from now on")));
        }
        return (backend, reason);
    }
    let mut problems = Vec::new();
    let mut backends = config.backends.iter().map(AsRef::as_ref).peekable();
    while let Some(backend) = backends.next() {
        let probed = backend.probe(installation).await;
        let reason = match probed {
            Ok(why) if problems.is_empty() => {
                let other = backends.peek().map(|other| advice(*other, "instead"));
                format!("auto: {why}{}", other.unwrap_or_default())
            }
            // The last one is taken in any case: the start then fails with its problem.
            Err(problem) if backends.peek().is_some() => {
                problems.push(problem);
                continue;
            }
            _ => {
                let (problems, warning) = (problems.join("; "), isolation_warning(backend));
                format!("auto: {problems}, then start this service again{warning}")
            }
        };
        return (backend, reason);
    }
    unreachable!("this program has a backend")
}

/// The backend of the directory's sandboxes, if known: recorded by the last service, or inferred from existing files.
pub(crate) fn previous_backend(data_dir: &DataDir) -> anyhow::Result<Option<String>> {
    let recorded = data_dir.recorded_backend()?;
    let inferred = || {
        let mut backends = BACKENDS.iter();
        let found = backends.find(|backend| backend.has_sandboxes(data_dir.path()));
        found.map(|backend| backend.name().to_owned())
    };
    Ok(recorded.or_else(inferred))
}

fn isolation_warning(backend: &dyn ConfiguredBackend) -> String {
    let features = backend.features();
    if features.is_isolated {
        return String::new();
    }
    format!("; {} are not isolated from this machine", features.noun)
}

fn advice(backend: &dyn ConfiguredBackend, when: &str) -> String {
    let features = backend.features();
    let isolation = if features.is_isolated {
        ""
    } else {
        ", without isolation from this machine"
    };
    format!(
        "; for {} {when}{isolation}, set WORKSPACE_SANDBOX__BACKEND={}",
        features.noun, features.name
    )
}

/// Installs what a first start would install, and returns the agent server's command.
pub(crate) async fn prepare(
    config: &Config,
    variables: &EnvVariables,
) -> anyhow::Result<Vec<OsString>> {
    let installation = Installation {
        host: &unnamed_host(),
        data_dir: &config.data_dir,
        variables,
    };
    for backend in &config.backends {
        if let Some(command) = backend.prepare(&installation).await {
            return command;
        }
    }
    Ok(Vec::new())
}

/// Nothing uses this name. A host id is chosen at the first start.
pub(crate) fn unnamed_host() -> HostId {
    HostId::parse("not-chosen-yet").expect("a constant name")
}
