//! A service with an attacker's sandbox, a neighbour's, and one for bombs.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use acceptance::agent_server::{built_program, variable_of};
use acceptance::processes::Process;
use acceptance::wait::wait_for;
use acceptance::{Client, Sandboxing, Service, Stub, Version};
use serde_json::{Value, json};

use crate::host::HostFiles;
use crate::network::{self, HostNetwork};
use crate::sandbox::{EscapeSandbox, python};

/// Until the neighbour works.
const NEIGHBOUR_TIMEOUT: Duration = Duration::from_secs(20);
/// Limits of each sandbox. They are small, so that bombs are.
pub(crate) const MAX_PIDS: u64 = 128;
pub(crate) const MAX_MEMORY_BYTES: u64 = 512 << 20;
const MAX_OPEN_FILES: u64 = 1024;
const MAX_FILE_BYTES: u64 = 64 << 20;

/// What a client of the service asks for most.
pub(crate) const LIST: &str = "/api/v1/sandboxes/search";

/// The isolation of the sandboxes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Walls {
    None,
    Confined,
}

pub(crate) struct EscapeWorld {
    pub(crate) walls: Walls,
    pub(crate) attacker: EscapeSandbox,
    pub(crate) neighbour: EscapeSandbox,
    pub(crate) bomber: EscapeSandbox,
    pub(crate) user: Client,
    /// The neighbour's process with secrets.
    victim: Process,
    secrets: BTreeMap<&'static str, String>,
    /// Names of attempts, and whether each is a bomb.
    all: Vec<(String, bool)>,
    files: HostFiles,
    // Dropped last, in this order: the sandboxes end before what they use.
    pub(crate) service: Service,
    network: HostNetwork,
    _stub: Stub,
}

impl EscapeWorld {
    pub(crate) async fn start(walls: Walls) -> Self {
        let stub = Stub::new();
        let mark = stub.dir().file_name().unwrap_or_default().to_string_lossy();
        let mark = mark.trim_start_matches("aw-stub-").to_owned();
        let service = start_service(walls, &stub, &mark).await;
        let user = service.admin();
        let files = HostFiles::create(&service, &mark);
        let network = HostNetwork::start(walls, &mark, &files.sockets(&service));
        let neighbour = EscapeSandbox::start(&service, &user).await;
        let attacker = EscapeSandbox::start(&service, &user).await;
        let bomber = EscapeSandbox::start(&service, &user).await;
        let neighbour_secret = files.neighbour_secret.clone();
        let state = settle_neighbour(&neighbour, &neighbour_secret).await;
        let of_neighbour = |name: &str| {
            let all = service.processes().into_iter();
            let mut found = all.filter(|it| {
                it.sandbox == neighbour.id && it.arguments.iter().any(|argument| argument == name)
            });
            found.next().expect("the neighbour's process runs")
        };
        let victim = of_neighbour("escape/neighbour.py");
        let prey = of_neighbour("1000");
        let read = |name: &str| std::fs::read_to_string(service.data_dir().join(name));
        let read = |name: &str| read(name).expect("it exists").trim().to_owned();
        let secrets = BTreeMap::from([
            ("master key", read("master.key")),
            ("bootstrap key", read("bootstrap.key")),
            ("database", "SQLite format 3".to_owned()),
            ("service environment", format!("environment-{mark}")),
            ("password hashes", "root:".to_owned()),
            ("host file", files.secret.clone()),
            ("neighbour file", neighbour_secret.clone()),
            ("neighbour memory", format!("memory {neighbour_secret}")),
            ("neighbour environment", neighbour.id.clone()),
            ("neighbour id", neighbour.id.clone()),
            ("host port", network.host_secret.clone()),
            ("outside port", network.outside_secret.clone()),
        ]);
        let world = Self {
            all: list_attempts(&attacker),
            walls,
            attacker,
            neighbour,
            bomber,
            user,
            victim,
            secrets,
            files,
            service,
            network,
            _stub: stub,
        };
        for sandbox in [&world.attacker, &world.bomber] {
            sandbox.write_aims(&world.aims(sandbox, &state, prey.pid));
        }
        world.assert_reachable().await;
        world
    }

    /// What the attempts of a sandbox know.
    fn aims(&self, sandbox: &EscapeSandbox, state: &Value, prey: i32) -> Value {
        let variable = |name: &str| sandbox.variable(&self.service, name);
        let neighbour = self.neighbour.agent_server(&self.service);
        let callback = variable("OH_WEBHOOKS_0_BASE_URL");
        let callback = callback.and_then(|url| reqwest::Url::parse(&url).ok());
        let callback = callback.expect("the agent server has a callback URL");
        let port = neighbour.arguments.iter().position(|it| it == "--port");
        let is_root = network::is_root();
        let mut aims = json!({
            "confined": self.walls == Walls::Confined,
            "data": self.service.data_dir(),
            "service": self.service.pid(),
            "service_port": self.service.address().port(),
            "service_directory": std::fs::read_link(format!("/proc/{}/cwd", self.service.pid())).ok(),
            "init": if self.walls == Walls::None { self.service.pid() } else { 1 },
            "program": built_program("agent-workspace"),
            "agent_server": built_program("stub-agent-server").parent(),
            "root": sandbox.root,
            "workspace": sandbox.workspace(),
            "home": sandbox.root.join("home"),
            "tmp": variable("TMPDIR"),
            "own_key": sandbox.key,
            "callback": format!("{}:{}", callback.host_str().unwrap_or_default(), callback.port().unwrap_or(80)),
            "neighbour": neighbour.pid,
            "neighbour_id": self.neighbour.id,
            "neighbour_key": self.neighbour.key,
            "neighbour_root": self.neighbour.root,
            "neighbour_port": port.and_then(|at| neighbour.arguments.get(at + 1)),
            "neighbour_temporary_file": state["temporary_file"],
            "neighbour_memory_file": self.files.memory_file(),
            "segment_key": state["segment_key"],
            "victim": self.victim.pid,
            "victim_address": state["address"],
            "prey": prey,
            "host_port": self.network.host_port,
            "host_address": is_root.then_some(network::HOST_ADDRESS),
            "host_public_address": is_root.then_some(network::HOST_PUBLIC_ADDRESS),
            "host_ipv6": is_root.then_some(network::HOST_IPV6),
            "outside_port": is_root.then_some(network::OUTSIDE_PORT),
            "sockets": sockets_of(&self.service),
            "limits": {
                "pids": MAX_PIDS,
                "memory": MAX_MEMORY_BYTES,
                "open_files": MAX_OPEN_FILES,
                "file_size": MAX_FILE_BYTES,
            },
        });
        let runner = sandbox.workspace().join("escape/runner.py");
        let more = self.files.aims(&self.service, &runner);
        if let (Some(aims), Value::Object(more)) = (aims.as_object_mut(), more) {
            aims.extend(more);
        }
        aims
    }

    /// The attempts that `ESCAPE_ONLY` chooses, bombs or others.
    pub(crate) fn chosen(&self, bombs: bool) -> Vec<String> {
        let only = variable_of("ESCAPE_ONLY");
        let chosen = |name: &str| {
            only.as_ref()
                .is_none_or(|only| only.split(',').any(|it| it == name))
        };
        let names = self
            .all
            .iter()
            .filter(|(name, is_bomb)| *is_bomb == bombs && chosen(name));
        names.map(|(name, _)| name.clone()).collect()
    }

    pub(crate) fn secret(&self, name: &str) -> &str {
        self.secrets
            .get(name)
            .expect("the attempt names a known secret")
    }

    /// That the network is not merely broken: the internet is reached.
    async fn assert_reachable(&self) {
        if network::is_root() {
            let (address, port) = (network::INTERNET_ADDRESS, network::OUTSIDE_PORT);
            let command = format!("timeout 5 bash -c 'cat < /dev/tcp/{address}/{port}'");
            let answer = self.attacker.run(&command).await;
            assert_eq!(
                answer, self.network.outside_secret,
                "no way to the internet"
            );
        }
    }

    /// That the service and the neighbour live and answer, and the files of the host are as they were.
    pub(crate) async fn assert_unharmed(&self) {
        let _ = self.user.get(LIST).await.ok();
        let sandbox = self.user.sandbox(&self.neighbour.id).await;
        assert!(
            sandbox.is_some_and(|it| it.status == "RUNNING"),
            "the neighbour is gone"
        );
        assert_eq!(self.neighbour.run("echo here").await, "here\n");
        let lives = self
            .service
            .processes()
            .iter()
            .any(|it| it.pid == self.victim.pid);
        assert!(lives, "the neighbour's process was killed");
        self.files.assert_unchanged();
    }
}

/// The service, in mode `open`: then no key protects what a sandbox reaches.
async fn start_service(walls: Walls, stub: &Stub, mark: &str) -> Service {
    let mut builder = Service::builder()
        .env("ESCAPE_SECRET", &format!("environment-{mark}"))
        .env("WORKSPACE_LOG__LEVEL", "warn");
    builder = if variable_of("ESCAPE_REAL_AGENT_SERVER").is_some() {
        // It is forked where sandboxes are confined.
        let builder = builder.env("WORKSPACE_PROCESS__FORK_SERVER", "on");
        builder.installed_agent_server(Version::V1_58_0)
    } else {
        let command = format!("{} --run-commands yes", stub.command());
        builder.env("WORKSPACE_SANDBOX__AGENT_SERVER_COMMAND", &command)
    };
    if walls == Walls::None {
        builder = builder.sandboxing(&Sandboxing::UnconfinedProcess);
    } else {
        let programs = built_program("stub-agent-server");
        let programs = programs.parent().unwrap_or(&programs).to_string_lossy();
        let limits = [
            // The addresses of this machine are aims.
            ("REACHABLE_NETWORKS", String::new()),
            ("READABLE_PATHS", format!("{programs},{}", python().prefix)),
            ("PIDS", MAX_PIDS.to_string()),
            ("MEMORY", format!("{}MiB", MAX_MEMORY_BYTES >> 20)),
            ("OPEN_FILES", MAX_OPEN_FILES.to_string()),
            ("FILE_SIZE", format!("{}MiB", MAX_FILE_BYTES >> 20)),
        ];
        for (name, value) in limits {
            builder = builder.env(&format!("WORKSPACE_PROCESS__{name}"), &value);
        }
    }
    // The first start makes a key to steal.
    let mut service = builder.start().await;
    let any = format!("0.0.0.0:{}", service.address().port());
    for (name, value) in [
        ("WORKSPACE_AUTH__MODE", "open"),
        ("WORKSPACE_AUTH__ALLOW_OPEN_ON_PUBLIC", "true"),
        ("WORKSPACE_HTTP__BIND", any.as_str()),
        ("WORKSPACE_HTTP__PUBLIC_URL", service.url().as_str()),
    ] {
        service.set_variable(name, value);
    }
    service.restart().await;
    service
}

/// Starts the neighbour's work, and returns what it says of itself.
async fn settle_neighbour(neighbour: &EscapeSandbox, secret: &str) -> Value {
    let start = format!(
        "nohup {} escape/neighbour.py {secret} \"$PWD\" > escape/errors 2>&1 < /dev/null &",
        python().command
    );
    neighbour.run(&start).await;
    let file = neighbour.workspace().join("neighbour.json");
    wait_for("the neighbour's work", NEIGHBOUR_TIMEOUT, || async {
        let text = std::fs::read_to_string(&file).ok()?;
        serde_json::from_str(&text).ok()
    })
    .await
}

/// The table of attempts, in its order.
fn list_attempts(sandbox: &EscapeSandbox) -> Vec<(String, bool)> {
    let output = Command::new("python3")
        .arg("-B")
        .arg(sandbox.workspace().join("escape/runner.py"))
        .arg("--list")
        .output()
        .expect("cannot run python3");
    let list = serde_json::from_slice(&output.stdout);
    list.unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// Unix sockets of the service that have a path.
fn sockets_of(service: &Service) -> Vec<String> {
    let listed = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let paths = listed
        .lines()
        .filter_map(|line| line.split_whitespace().nth(7));
    let root = service.root().to_string_lossy().into_owned();
    let of_service =
        paths.filter(|path| path.starts_with(&root) || path.contains("agent-workspace"));
    of_service.map(str::to_owned).collect()
}
