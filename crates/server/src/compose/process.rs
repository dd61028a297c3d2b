//! Local processes as sandboxes.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use domain::clock::{Clock as _, SystemClock};
use domain::id::HostId;
use sandbox_process::launcher::Launcher;
use sandbox_process::provision::{self, InstallEnvironment, Provisioner};
use sandbox_process::{AgentServerSource, ProcessConfig, ProcessSandboxes, ProcessSpecs};

use super::{EnvVariables, OpenedBackend};
use crate::config::Config;

/// Opens the backend.
pub(super) async fn open(
    config: &Config,
    variables: &EnvVariables,
    host: &HostId,
    reason: String,
) -> anyhow::Result<OpenedBackend> {
    let mut process = ProcessConfig::new(
        &config.data_dir,
        host.clone(),
        agent_server(config, variables)?,
    );
    process.launcher = Launcher::ThisBinary;
    process.grace = config.sandbox.stop_grace;
    process.boot_limit = config.start.sandbox_deadline;
    process.parallel_starts = config.sandbox.parallel_starts;
    process.idle_stop = config.sandbox.idle_stop;
    process.lifetime = config.sandbox.lifetime;
    if let Some(path) = &config.sandbox.path {
        process.path.clone_from(path);
    } else if let Some(path) = service_path(variables) {
        process.path = path;
    }
    ensure!(
        sandbox_process::settings_are_readable(&config.sandbox.env),
        "sandbox.env: the variable OH must hold a JSON object, the agent server's settings by their names"
    );
    for (name, value) in &config.sandbox.env {
        let value = value.clone().into();
        process.extra_env.insert(name.clone(), value);
    }
    let specs = ProcessSpecs::new(&process, SystemClock.now());
    let backend = ProcessSandboxes::new(process)
        .await
        .context("cannot use process sandboxes")?;
    let backend = Arc::new(backend);
    Ok(OpenedBackend {
        backend: Arc::clone(&backend) as _,
        endpoints: backend,
        specs: Arc::new(specs),
        reason,
        engine: None,
    })
}

fn service_path(variables: &EnvVariables) -> Option<String> {
    let (_, path) = variables.iter().find(|(name, _)| name == "PATH")?;
    path.to_str()
        .filter(|path| !path.is_empty())
        .map(str::to_owned)
}

fn agent_server(config: &Config, variables: &EnvVariables) -> anyhow::Result<AgentServerSource> {
    Ok(match &config.sandbox.agent_server_command {
        Some(words) => AgentServerSource::Command(words.iter().map(OsString::from).collect()),
        None => AgentServerSource::Provision(provisioner(config, variables)?),
    })
}

fn provisioner(config: &Config, variables: &EnvVariables) -> anyhow::Result<Provisioner> {
    let environment = InstallEnvironment::pick(variables.iter().cloned());
    let mut settings = provision::Config::new(&config.data_dir, environment);
    if let Some(version) = &config.sandbox.agent_server_version {
        settings.version.clone_from(version);
    }
    settings.python.clone_from(&config.sandbox.python);
    settings.index_url.clone_from(&config.sandbox.index_url);
    settings.proxy.clone_from(&config.sandbox.proxy);
    settings.wheels.clone_from(&config.sandbox.wheel_dir);
    Provisioner::new(settings).context("cannot provision the agent server")
}

/// Installs the agent server if the service manages it, and returns its command.
pub(crate) async fn prepare(
    config: &Config,
    variables: &EnvVariables,
) -> anyhow::Result<Vec<OsString>> {
    match agent_server(config, variables)? {
        AgentServerSource::Command(words) => Ok(words),
        AgentServerSource::Provision(provisioner) => Ok(provisioner.ensure().await?.command()),
    }
}

/// Describes the agent server for `doctor`. The error says why there is none.
pub(crate) async fn describe_agent_server(
    config: &Config,
    variables: &EnvVariables,
) -> anyhow::Result<String> {
    let provisioner = match agent_server(config, variables)? {
        AgentServerSource::Provision(provisioner) => provisioner,
        AgentServerSource::Command(words) => return describe_command(config, variables, &words),
    };
    let version = provisioner.version().to_owned();
    if let Some(server) = provisioner.find().await {
        return Ok(format!(
            "{version} is installed in {}",
            server.root.display()
        ));
    }
    let python = provisioner.describe_python().await?;
    Ok(format!(
        "{version} is not installed yet; the first start installs it with {python}"
    ))
}

/// Whether the program of the configured command exists and is executable.
fn describe_command(
    config: &Config,
    variables: &EnvVariables,
    words: &[OsString],
) -> anyhow::Result<String> {
    let program = words
        .first()
        .context("sandbox.agent_server_command is empty")?;
    let path = config
        .sandbox
        .path
        .clone()
        .or_else(|| service_path(variables));
    let path = path.unwrap_or_default();
    let file = if Path::new(program).components().count() > 1 {
        Some(Path::new(program).to_owned())
    } else {
        std::env::split_paths(&path)
            .map(|folder| folder.join(program))
            .find(|file| file.is_file())
    };
    let file = file.with_context(|| {
        format!(
            "the program {} of the agent server's command is not in {path}: correct WORKSPACE_SANDBOX__AGENT_SERVER_COMMAND",
            program.display()
        )
    })?;
    rustix::fs::access(&file, rustix::fs::Access::EXEC_OK).with_context(|| {
        format!(
            "the program {} of the agent server's command is not executable: correct WORKSPACE_SANDBOX__AGENT_SERVER_COMMAND",
            file.display()
        )
    })?;
    Ok(format!("configured command, {}", file.display()))
}
