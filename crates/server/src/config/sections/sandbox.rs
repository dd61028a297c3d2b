//! Sections `sandbox` and `start`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use domain::id::HostId;
use secrecy::SecretString;
use url::Url;

use super::docker::template::variables;
use super::storage::StorageSettings;
use crate::config::reader::SettingReader;

/// The configured backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BackendKind {
    /// Docker if an engine answers, otherwise processes.
    Auto,
    /// Docker containers.
    Docker,
    /// Local processes.
    Process,
}

/// The section `sandbox`.
#[derive(Debug, Clone)]
pub(crate) struct SandboxSettings {
    pub(crate) backend: BackendKind,
    /// Limit of running sandboxes per user.
    pub(crate) max_running_per_user: u32,
    /// Limit of running sandboxes.
    pub(crate) max_running: u32,
    /// Idle time after which a RUNNING sandbox is paused.
    pub(crate) idle_stop: Option<Duration>,
    /// Time after which a sandbox is deleted.
    pub(crate) lifetime: Option<Duration>,
    /// Warm sandboxes to keep; `None`: the default of the backend.
    pub(crate) warm: Option<u32>,
    /// Maximum age of a warm sandbox.
    pub(crate) warm_max_age: Duration,
    /// Program and arguments of the agent server; `None`: the provisioned one.
    pub(crate) agent_server_command: Option<Vec<String>>,
    /// Version to provision; `None`: the tested one.
    pub(crate) agent_server_version: Option<String>,
    /// Python interpreter for provisioning.
    pub(crate) python: Option<PathBuf>,
    /// Package index; may contain credentials.
    pub(crate) index_url: Option<SecretString>,
    /// Proxy; may contain credentials.
    pub(crate) proxy: Option<SecretString>,
    /// Folder of wheels.
    pub(crate) wheel_dir: Option<PathBuf>,
    /// `PATH` in sandboxes; `None`: the service's own.
    pub(crate) path: Option<String>,
    /// Additional variables of process sandboxes.
    pub(crate) env: BTreeMap<String, String>,
    /// Concurrent boots of agent servers.
    pub(crate) parallel_starts: usize,
    /// The URL by which sandboxes reach the service; `None`: its own address.
    pub(crate) callback_url: Option<Url>,
    /// The host that several services share.
    pub(crate) shared_host: Option<HostId>,
    /// Whether clients get direct URLs of sandboxes instead of URLs of this service.
    pub(crate) direct_urls: bool,
    /// Time for an agent server to stop.
    pub(crate) stop_grace: Duration,
}

impl SandboxSettings {
    /// The number of warm sandboxes. Containers have memory limits of their own; processes use the memory of a machine that
    /// may be a desktop, so the default keeps none.
    pub(crate) fn kept_warm(&self, has_containers: bool) -> u32 {
        self.warm.unwrap_or(u32::from(has_containers))
    }

    pub(in crate::config) fn read(reader: &SettingReader<'_>, storage: &StorageSettings) -> Self {
        Self {
            shared_host: shared_host(reader, storage),
            direct_urls: reader.switch("sandbox.direct_urls"),
            backend: backend(reader),
            max_running_per_user: reader.number("sandbox.max_running_per_user", 0..=100_000),
            max_running: reader.number("sandbox.max_running", 0..=100_000),
            idle_stop: reader.limit("sandbox.idle_stop"),
            lifetime: reader.limit("sandbox.lifetime"),
            warm: reader.parsed("sandbox.warm", "auto or a number from 0 to 100", warm_count),
            warm_max_age: reader.duration("sandbox.warm_max_age"),
            agent_server_command: reader.optional_parsed(
                "sandbox.agent_server_command",
                "a command, quoted as for a shell",
                |text| shlex::split(text).filter(|words| !words.is_empty()),
            ),
            agent_server_version: reader.optional_parsed(
                "sandbox.agent_server_version",
                "a version, e.g. 1.58.0",
                version,
            ),
            python: reader.optional_path("sandbox.python"),
            index_url: reader.secret("sandbox.index_url"),
            proxy: reader.secret("sandbox.proxy"),
            wheel_dir: reader.optional_path("sandbox.wheel_dir"),
            path: reader.optional("sandbox.path"),
            env: variables(reader, "sandbox.env", &reader.list("sandbox.env")),
            parallel_starts: match reader.number("sandbox.parallel_starts", 0..=1000) {
                0 => std::thread::available_parallelism().map_or(2, |cores| cores.get().max(2)),
                number => number,
            },
            callback_url: reader.optional_url("sandbox.callback_url"),
            stop_grace: reader.duration("sandbox.stop_grace"),
        }
    }
}

/// Parses a number; `auto` is resolved when the backend is known.
#[expect(
    clippy::option_option,
    reason = "the outer None is a text that does not parse, the inner one the automatic choice"
)]
fn warm_count(text: &str) -> Option<Option<u32>> {
    if text == "auto" {
        return Some(None);
    }
    let number = text.parse().ok().filter(|number| *number <= 100);
    number.map(Some)
}

fn backend(reader: &SettingReader<'_>) -> BackendKind {
    reader.parsed(
        "sandbox.backend",
        "auto, docker or process",
        |text| match text {
            "auto" => Some(BackendKind::Auto),
            "docker" => Some(BackendKind::Docker),
            "process" => Some(BackendKind::Process),
            _ => None,
        },
    )
}

/// The host that several services share. It needs Postgres and one engine, so that they see each other's changes.
fn shared_host(reader: &SettingReader<'_>, storage: &StorageSettings) -> Option<HostId> {
    let host = reader.optional_parsed("sandbox.host", "a name without spaces", |text| {
        HostId::parse(text).ok()
    })?;
    if !storage.is_shared {
        reader.problem("sandbox.host", "needs Postgres: set WORKSPACE_STORAGE__URL");
    }
    if reader.text("sandbox.backend") != "docker" {
        reader.problem("sandbox.host", "needs sandbox.backend = \"docker\"");
    }
    Some(host)
}

/// The version becomes part of a requirement (`name==VERSION`) and of a folder's name.
fn version(text: &str) -> Option<String> {
    let digit_first = text.starts_with(|c: char| c.is_ascii_digit());
    let plain = text
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b == b'.' || b == b'+');
    (digit_first && plain && text.len() <= 64).then(|| text.to_owned())
}

/// Deadlines and limits of starts.
#[derive(Debug, Clone)]
pub(crate) struct StartSettings {
    /// Concurrent starts.
    pub(crate) parallel: usize,
    /// Time for a new sandbox's agent server to answer.
    pub(crate) sandbox_deadline: Duration,
    /// Time for the backend to become ready for its first start.
    pub(crate) prepare_deadline: Duration,
    /// Time to clone a repository.
    pub(crate) clone_deadline: Duration,
    /// Time for a repository's setup script.
    pub(crate) setup_deadline: Duration,
}

impl StartSettings {
    pub(in crate::config) fn read(reader: &SettingReader<'_>) -> Self {
        Self {
            parallel: reader.number("start.parallel", 1..=1000),
            sandbox_deadline: reader.deadline("start.sandbox_deadline"),
            prepare_deadline: reader.deadline("start.prepare_deadline"),
            clone_deadline: reader.deadline("start.clone_deadline"),
            setup_deadline: reader.deadline("start.setup_deadline"),
        }
    }
}
