//! Processes and directories, or containers, volumes and networks, of a service's sandboxes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;

use super::{Sandboxing, Service};
use crate::client::Client;
use crate::engine::Engine;
use crate::processes::{self, Process};

/// Until the objects of a deleted sandbox are gone. A container gets 10 s to stop.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The workspace in containers of the default template.
const CONTAINER_WORKSPACE: &str = "/workspace/project";
/// Lines of each sandbox's log that a failed test prints.
const MAX_SHOWN_LINES: usize = 40;

/// An object that must be removed with its sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trace {
    /// A file or directory.
    Path(PathBuf),
    /// A container, by its full id.
    Container(Engine, String),
    /// A volume, by name.
    Volume(Engine, String),
}

impl Trace {
    /// Whether it still exists.
    #[must_use]
    pub fn exists(&self) -> bool {
        let inspect = |engine: &Engine, kind, name: &str| {
            engine.try_docker(&[kind, "inspect", name]).status.success()
        };
        match self {
            Self::Path(path) => path.exists(),
            Self::Container(engine, id) => inspect(engine, "container", id),
            Self::Volume(engine, name) => inspect(engine, "volume", name),
        }
    }
}

impl Service {
    /// How the service runs sandboxes.
    #[must_use]
    pub fn sandboxing(&self) -> &Sandboxing {
        self.builder.configured_sandboxing()
    }

    /// The engine, and the name of this installation in its labels.
    fn engine_and_instance(&self) -> Option<(&Engine, String)> {
        let Sandboxing::Docker(engine) = self.sandboxing() else {
            return None;
        };
        Some((engine, self.instance()?))
    }

    /// The name of this installation in the engine's labels; `None` before its first start.
    #[must_use]
    pub fn instance(&self) -> Option<String> {
        if let Some(host) = self.builder.variable("WORKSPACE_SANDBOX__HOST") {
            return Some(host.to_owned());
        }
        let text = std::fs::read_to_string(self.data_dir().join("host.id")).ok()?;
        let text = text.trim().to_owned();
        (!text.is_empty()).then_some(text)
    }

    /// The directory of a process sandbox.
    #[must_use]
    pub fn sandbox_dir(&self, sandbox: &str) -> PathBuf {
        self.data_dir().join("sandboxes").join(sandbox)
    }

    /// The content of a file in the workspace of a sandbox, if it exists.
    #[must_use]
    pub fn workspace_file(&self, sandbox: &str, name: &str) -> Option<String> {
        if let Some((engine, _)) = self.engine_and_instance() {
            let container = self.container(sandbox)?;
            return engine.file_in(&container, &format!("{CONTAINER_WORKSPACE}/{name}"));
        }
        let workspace = self.sandbox_dir(sandbox).join("workspace");
        std::fs::read_to_string(workspace.join(name)).ok()
    }

    /// What the agent server of a process sandbox has written, since its last start.
    #[must_use]
    pub fn agent_server_log(&self, sandbox: &str) -> String {
        let file = self.sandbox_dir(sandbox).join("agent-server.log");
        std::fs::read_to_string(file).unwrap_or_default()
    }

    /// The full id of a sandbox's container, if it exists.
    #[must_use]
    pub fn container(&self, sandbox: &str) -> Option<String> {
        let (engine, instance) = self.engine_and_instance()?;
        let containers = engine.containers_of(&instance).into_iter();
        let mut ids = containers
            .filter(|it| it.sandbox == sandbox)
            .map(|it| it.id);
        ids.next()
    }

    /// Living processes of the sandboxes.
    #[must_use]
    pub fn processes(&self) -> Vec<Process> {
        if let Sandboxing::Process | Sandboxing::UnconfinedProcess = self.sandboxing() {
            return processes::of_sandboxes_in(&self.data_dir());
        }
        let Some((engine, instance)) = self.engine_and_instance() else {
            return Vec::new();
        };
        let containers = engine.containers_of(&instance).into_iter();
        let containers: Vec<_> = containers.map(|it| (it.id, it.sandbox)).collect();
        processes::in_containers(&containers)
    }

    /// The agent servers among them.
    #[must_use]
    pub fn agent_servers(&self) -> Vec<Process> {
        let mut found = self.processes();
        found.retain(Process::is_agent_server);
        found
    }

    /// The objects of a sandbox that must be removed with it.
    #[must_use]
    pub fn traces_of(&self, sandbox: &str) -> Vec<Trace> {
        if let Some((engine, instance)) = self.engine_and_instance() {
            let containers = engine.containers_of(&instance).into_iter();
            let containers = containers.filter(|it| it.sandbox == sandbox);
            let volumes = engine.volumes_of(&instance).into_iter();
            let volumes = volumes.filter(|it| it.sandbox == sandbox);
            return containers
                .map(|it| Trace::Container(engine.clone(), it.id))
                .chain(volumes.map(|it| Trace::Volume(engine.clone(), it.name)))
                .collect();
        }
        let processes = self.processes().into_iter();
        let in_sandbox = processes.filter(|process| process.sandbox == sandbox);
        let sockets =
            in_sandbox.filter_map(|process| process.variable("TMUX_TMPDIR").map(PathBuf::from));
        // A confined sandbox has its own `/tmp`.
        let sockets = sockets.filter(|path| path != Path::new("/tmp"));
        let mut paths: Vec<_> = sockets.chain([self.sandbox_dir(sandbox)]).collect();
        paths.dedup();
        paths.into_iter().map(Trace::Path).collect()
    }

    /// Asserts that every process, directory, container and volume belongs to a sandbox of these users, that no sandbox has two agent
    /// servers or containers, that there is one network at most, and that the service has waited for its children. Waits for
    /// removals in progress, because the service responds to a deletion before its last file is gone.
    ///
    /// # Panics
    /// When orphans remain.
    pub async fn assert_no_orphans(&self, users: &[&Client]) {
        let mut owned = Vec::new();
        for user in users {
            owned.extend(user.sandboxes().await.into_iter().map(|sandbox| sandbox.id));
        }
        let mut found = Vec::new();
        let removed = tokio::time::timeout(REMOVAL_TIMEOUT, async {
            loop {
                found = self.orphans(&owned);
                if found.is_empty() {
                    return;
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        })
        .await;
        assert!(removed.is_ok(), "orphans: {found:#?}");
    }

    /// Objects that belong to none of these sandboxes, and duplicates.
    fn orphans(&self, owned: &[String]) -> Vec<String> {
        let processes = self.processes();
        let mut found: Vec<String> = processes
            .iter()
            .filter(|process| !owned.contains(&process.sandbox))
            .map(|process| format!("process without a sandbox: {process:?}"))
            .collect();
        for id in owned {
            let servers = processes
                .iter()
                .filter(|p| p.is_agent_server() && p.sandbox == *id);
            if servers.count() > 1 {
                found.push(format!("two agent servers in {id}: {processes:?}"));
            }
        }
        for name in self.sandbox_directories() {
            if !owned.contains(&name) {
                found.push(format!("directory or volume without a sandbox: {name}"));
            }
        }
        if let Some((engine, instance)) = self.engine_and_instance() {
            found.extend(orphans_on(engine, &instance, owned));
        }
        if let Some(child) = &self.child {
            let zombies = processes::zombies_of(child.id());
            found.extend(zombies.iter().map(|pid| format!("zombie: {pid}")));
        }
        found
    }

    /// The ids of sandboxes with a directory or a volume.
    #[must_use]
    pub fn sandbox_directories(&self) -> Vec<String> {
        if let Some((engine, instance)) = self.engine_and_instance() {
            let volumes = engine.volumes_of(&instance).into_iter();
            return volumes.map(|volume| volume.sandbox).collect();
        }
        let entries = std::fs::read_dir(self.data_dir().join("sandboxes"));
        let directories = entries
            .into_iter()
            .flatten()
            .filter_map(Result::ok)
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        directories
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect()
    }

    /// Prints the logs of all sandboxes after a failed test.
    pub(super) fn print_sandbox_logs(&self) {
        let print_tail = |what: &str, text: &str| {
            let lines: Vec<&str> = text.lines().collect();
            let tail = lines[lines.len().saturating_sub(MAX_SHOWN_LINES)..].join("\n");
            crate::print_line(&format!("---- {what} ----\n{tail}"));
        };
        if let Some((engine, instance)) = self.engine_and_instance() {
            if !engine.is_responding() {
                return crate::print_line("---- the engine does not respond ----");
            }
            for it in engine.containers_of(&instance) {
                let log = engine.log_of(&it.id, MAX_SHOWN_LINES);
                print_tail(&format!("container {} ({})", it.name, it.state), &log);
            }
            return;
        }
        for sandbox in self.sandbox_directories() {
            let file = self.sandbox_dir(&sandbox).join("agent-server.log");
            let bytes = std::fs::read(file).unwrap_or_default();
            print_tail(
                &format!("agent server of {sandbox}"),
                &String::from_utf8_lossy(&bytes),
            );
        }
    }

    /// Ends all processes of the sandboxes of a service that has exited, or removes their containers.
    pub(super) fn remove_sandboxes(&self) {
        if let Some((engine, instance)) = self.engine_and_instance() {
            engine.remove_all_of(&instance);
            return;
        }
        // A process may start another one before it is killed, so this repeats.
        for _ in 0..200 {
            let left = self.processes();
            if left.is_empty() {
                break;
            }
            for process in &left {
                process.signal(Signal::KILL);
            }
        }
    }
}

fn orphans_on(engine: &Engine, instance: &str, owned: &[String]) -> Vec<String> {
    let containers = engine.containers_of(instance);
    let mut found: Vec<String> = containers
        .iter()
        .filter(|it| !owned.contains(&it.sandbox))
        .map(|it| format!("container without a sandbox: {it:?}"))
        .collect();
    for id in owned {
        if containers.iter().filter(|it| it.sandbox == *id).count() > 1 {
            found.push(format!("two containers of {id}: {containers:?}"));
        }
    }
    let networks = engine.networks_of(instance);
    if networks.len() > 1 {
        found.push(format!("more than one network: {networks:?}"));
    }
    found
}
