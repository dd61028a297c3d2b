//! What a service's sandboxes have on the machine: processes and directories, or containers, volumes and networks.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{Sandboxing, Service};
use crate::client::Client;
use crate::engine::Engine;
use crate::processes::{self, Process};

/// How long what a deleted sandbox had may still be there: a container that does not stop by itself gets 10 s.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(30);
/// Where agents work in the containers of the default template.
const WORKSPACE: &str = "/workspace/project";
/// How much of the log of each sandbox a failed test shows.
const SHOWN_LINES: usize = 40;

/// Something of a sandbox that must go with it.
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
    /// Whether it is still there.
    #[must_use]
    pub fn is_there(&self) -> bool {
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
    /// How it runs sandboxes.
    #[must_use]
    pub fn sandboxing(&self) -> &Sandboxing {
        self.builder.sandboxing_of()
    }

    /// The engine, and the name of this installation on it.
    fn engine(&self) -> Option<(&Engine, String)> {
        let Sandboxing::Docker(engine) = self.sandboxing() else {
            return None;
        };
        Some((engine, self.instance()?))
    }

    /// By which name the engine knows the installation; `None` before its first start.
    #[must_use]
    pub fn instance(&self) -> Option<String> {
        if let Some(host) = self.builder.sets("WORKSPACE_SANDBOX__HOST") {
            return Some(host.to_owned());
        }
        let text = std::fs::read_to_string(self.data().join("host.id")).ok()?;
        let text = text.trim().to_owned();
        (!text.is_empty()).then_some(text)
    }

    /// The directory of a process sandbox.
    #[must_use]
    pub fn sandbox_dir(&self, sandbox: &str) -> PathBuf {
        self.data().join("sandboxes").join(sandbox)
    }

    /// A file in the workspace of a sandbox, if it is there.
    #[must_use]
    pub fn workspace_file(&self, sandbox: &str, name: &str) -> Option<String> {
        if let Some((engine, _)) = self.engine() {
            let container = self.container(sandbox)?;
            return engine.file_in(&container, &format!("{WORKSPACE}/{name}"));
        }
        let workspace = self.sandbox_dir(sandbox).join("workspace");
        std::fs::read_to_string(workspace.join(name)).ok()
    }

    /// The full id of the container of a sandbox, if there is one.
    #[must_use]
    pub fn container(&self, sandbox: &str) -> Option<String> {
        let (engine, instance) = self.engine()?;
        let containers = engine.containers_of(&instance).into_iter();
        let mut ids = containers
            .filter(|it| it.sandbox == sandbox)
            .map(|it| it.id);
        ids.next()
    }

    /// Living processes of its sandboxes.
    #[must_use]
    pub fn processes(&self) -> Vec<Process> {
        if let Sandboxing::Process = self.sandboxing() {
            return processes::of_sandboxes_in(&self.data());
        }
        let Some((engine, instance)) = self.engine() else {
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

    /// What a sandbox has now that must go with it.
    #[must_use]
    pub fn traces_of(&self, sandbox: &str) -> Vec<Trace> {
        if let Some((engine, instance)) = self.engine() {
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
        let its_own = processes.filter(|process| process.sandbox == sandbox);
        let sockets =
            its_own.filter_map(|process| process.variable("TMUX_TMPDIR").map(PathBuf::from));
        let mut paths: Vec<_> = sockets.chain([self.sandbox_dir(sandbox)]).collect();
        paths.dedup();
        paths.into_iter().map(Trace::Path).collect()
    }

    /// Fails if a process, directory, container or volume belongs to no sandbox that these users see, if a sandbox has two
    /// agent servers or containers, if there are two networks, or if the service has children that it did not wait for. A
    /// deletion is answered before its last file is gone, so what is there for a moment only is no orphan.
    ///
    /// # Panics
    /// Then.
    pub async fn assert_no_orphans(&self, users: &[&Client]) {
        let mut owned = Vec::new();
        for user in users {
            owned.extend(user.sandboxes().await.into_iter().map(|sandbox| sandbox.id));
        }
        let started = Instant::now();
        loop {
            let found = self.orphans(&owned);
            if found.is_empty() {
                return;
            }
            assert!(started.elapsed() < REMOVAL_TIMEOUT, "orphans: {found:#?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// What belongs to none of these sandboxes, or is there twice.
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
        if let Some((engine, instance)) = self.engine() {
            found.extend(orphans_on(engine, &instance, owned));
        }
        if let Some(child) = &self.child {
            let zombies = processes::zombies_of(child.id());
            found.extend(zombies.iter().map(|pid| format!("zombie: {pid}")));
        }
        found
    }

    /// The sandboxes that have a directory, or a volume.
    #[must_use]
    pub fn sandbox_directories(&self) -> Vec<String> {
        if let Some((engine, instance)) = self.engine() {
            let volumes = engine.volumes_of(&instance).into_iter();
            return volumes.map(|volume| volume.sandbox).collect();
        }
        let entries = std::fs::read_dir(self.data().join("sandboxes"));
        let directories = entries
            .into_iter()
            .flatten()
            .filter_map(Result::ok)
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        directories
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect()
    }

    /// For whoever looks at a failed test.
    pub(super) fn show_sandboxes(&self) {
        let show = |what: &str, text: &str| {
            let lines: Vec<&str> = text.lines().collect();
            let tail = lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n");
            crate::print_line(&format!("---- {what} ----\n{tail}"));
        };
        if let Some((engine, instance)) = self.engine() {
            if !engine.answers() {
                return crate::print_line("---- the engine does not answer ----");
            }
            for it in engine.containers_of(&instance) {
                let log = engine.log_of(&it.id, SHOWN_LINES);
                show(&format!("container {} ({})", it.name, it.state), &log);
            }
            return;
        }
        for sandbox in self.sandbox_directories() {
            let file = self.sandbox_dir(&sandbox).join("agent-server.log");
            let bytes = std::fs::read(file).unwrap_or_default();
            show(
                &format!("agent server of {sandbox}"),
                &String::from_utf8_lossy(&bytes),
            );
        }
    }

    /// Ends everything of the sandboxes of a service that has ended.
    pub(super) fn end_sandboxes(&self) {
        if let Some((engine, instance)) = self.engine() {
            engine.remove_all_of(&instance);
            return;
        }
        // What is being killed may still start something: until nothing is left, within reason.
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
