//! The service's image and the compose file, used as an operator does. The suite needs no registry: `local_images` builds the
//! images that would come from one.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod backup;
mod local_images;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use acceptance::agent_server::built_program;
use acceptance::engine::stub_image;
use acceptance::wait::{wait_for, wait_until};
use acceptance::{Client, Engine};
use local_images::Images;
use tempfile::TempDir;
use tokio::net::TcpSocket;

/// Until a state is reached. Generous, because other suites use the same engine and disk.
const STATE_TIMEOUT: Duration = Duration::from_secs(300);
/// The user id of the image.
const UID: &str = "10001";
/// The service's name in the compose file.
const SERVICE: &str = "agent-workspace";

fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap().to_owned()
}

/// Process sandboxes go on without the service, and nothing else would end them.
#[tokio::test]
async fn removal_of_the_package_ends_what_its_user_runs() {
    // The id of no other account.
    const ID: &str = "1879048100";
    // What the script would change here is replaced for it alone.
    const IN_ITS_OWN_MOUNTS: &str = r#"
        mount --bind "$0/passwd" /etc/passwd
        mount --bind "$0/group" /etc/group
        mount -t tmpfs none /usr/lib/systemd/system
        if [ -d /etc/apparmor.d ]; then mount -t tmpfs none /etc/apparmor.d; fi
        exec sh "$1" remove
    "#;
    let dir = tempfile::tempdir().unwrap();
    for (file, entry) in [
        (
            "passwd",
            format!("agent-workspace:x:{ID}:{ID}::/:/bin/false"),
        ),
        ("group", format!("agent-workspace:x:{ID}:")),
    ] {
        let text = fs::read_to_string(Path::new("/etc").join(file)).unwrap();
        let others = text
            .lines()
            .filter(|line| !line.starts_with("agent-workspace:"));
        let lines: Vec<&str> = others.chain([entry.as_str()]).collect();
        fs::write(dir.path().join(file), lines.join("\n") + "\n").unwrap();
    }
    let mut sandbox = Command::new("setpriv")
        .args(["--reuid", ID, "--regid", ID, "--clear-groups"])
        .args(["sh", "-c", "echo runs; exec sleep infinity"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let stdout = sandbox.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-ec", IN_ITS_OWN_MOUNTS])
        .arg(dir.path())
        .arg(root().join("config/debian/postrm"))
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.is_empty(), "{stderr}");
    let mut end = None;
    wait_until("the end of the process", STATE_TIMEOUT, || {
        end = sandbox.try_wait().unwrap();
        end.is_some()
    })
    .await;
    assert_eq!(end.unwrap().signal(), Some(9));
}

/// systemd only warns about unknown settings, and ignores them, so warnings fail the test.
#[test]
fn systemd_accepts_the_unit() {
    let unit = fs::read_to_string(root().join("config/systemd/agent-workspace.service")).unwrap();
    let program = "/usr/bin/agent-workspace";
    assert!(unit.contains(program));
    let dir = tempfile::tempdir().unwrap();
    let verify = |text: &str| {
        let file = dir.path().join("agent-workspace.service");
        // The service is not installed on this machine.
        let text = text.replace(program, "/bin/true");
        fs::write(&file, text).unwrap();
        let output = Command::new("systemd-analyze")
            .arg("verify")
            .arg(&file)
            .output()
            .expect("cannot run systemd-analyze: apt-get install systemd");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let about_unit = stderr.lines().filter(|it| it.contains("agent-workspace"));
        about_unit.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(verify(&unit), Vec::<String>::new());
    let invalid = unit.replace("KillMode=process", "KillMode=sandboxes");
    assert_eq!(
        verify(&invalid).len(),
        1,
        "systemd must warn about an invalid value"
    );
}

/// A compose project with the operator's variables. Dropping it removes its containers.
struct Project {
    dir: TempDir,
    name: String,
    engine: Engine,
    /// Whether there are containers to remove.
    has_containers: bool,
}

impl Project {
    fn new(variables: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let lines: Vec<_> = variables
            .iter()
            .map(|(name, value)| format!("{name}={value}\n"))
            .collect();
        fs::write(dir.path().join("env"), lines.concat() + "\n").unwrap();
        Self {
            dir,
            name: format!("aw-packaging-{}", std::process::id()),
            engine: Engine::shared(),
            has_containers: false,
        }
    }

    /// Runs the compose program of this machine.
    fn compose(&self, arguments: &[&str]) -> Output {
        let has_plugin = Command::new("docker")
            .args(["compose", "version"])
            .output()
            .is_ok_and(|output| output.status.success());
        let mut command = if has_plugin {
            let mut docker = Command::new("docker");
            docker.arg("compose");
            docker
        } else {
            Command::new("docker-compose")
        };
        let path = |name: &str| self.dir.path().join(name);
        command
            .args(["--project-name", &self.name, "--env-file"])
            .arg(path("env"));
        command.args(["--file", "docker-compose.yml"]);
        if path("more.yml").exists() {
            command.arg("--file").arg(path("more.yml"));
        }
        let output = command
            .args(arguments)
            .current_dir(root())
            .env("DOCKER_BUILDKIT", "0")
            .env("COMPOSE_DOCKER_CLI_BUILD", "0")
            .output();
        output.expect("cannot run docker compose or docker-compose: `cargo xtask prepare` installs it on Debian")
    }

    /// The id of a service's container.
    fn container(&self, service: &str) -> String {
        let output = self.compose(&["ps", "--quiet", service]);
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn exec(&self, arguments: &[&str]) -> String {
        let container = self.container(SERVICE);
        self.engine
            .docker(&[&["exec", container.as_str()], arguments].concat())
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        if !self.has_containers {
            return;
        }
        let container = self.container(SERVICE);
        if std::thread::panicking() {
            for service in ["postgres", SERVICE] {
                acceptance::print_line(&self.engine.log_of(&self.container(service), 60));
            }
        }
        let instance = self.engine.file_in(&container, "/data/host.id");
        let _ = self.compose(&["down", "--volumes", "--timeout", "40"]);
        if let Some(instance) = instance {
            self.engine.remove_all_of(instance.trim());
        }
    }
}

/// The variables that an operator writes to `.env`.
fn required_variables() -> [(&'static str, &'static str); 3] {
    [
        (
            "WORKSPACE_MASTER_KEY",
            "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE=",
        ),
        ("POSTGRES_PASSWORD", "0123456789abcdef"),
        ("DOCKER_GID", "7"),
    ]
}

/// A bound socket that does not listen, so that the system gives its port to no other program; and the port.
fn reserve_port() -> (TcpSocket, u16) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = socket.local_addr().unwrap().port();
    (socket, port)
}

#[tokio::test]
async fn compose_starts_a_healthy_unprivileged_service() {
    let mut images = Images::new(&format!("agent-workspace-packaging-{}", std::process::id()));
    let engine = images.engine.clone();
    let socket = engine.socket().unwrap_or("unix:///var/run/docker.sock");
    let socket = socket.trim_start_matches("unix://").to_owned();
    let group = fs::metadata(&socket).unwrap().gid().to_string();
    let ((_web, web), (_database, database)) = (reserve_port(), reserve_port());
    let (bind, database) = (format!("127.0.0.1:{web}"), database.to_string());
    let [master_key, password, _] = required_variables();
    let mut project = Project::new(&[
        master_key,
        password,
        ("DOCKER_GID", &group),
        ("DOCKER_SOCKET", &socket),
        ("AGENT_WORKSPACE_BIND", &bind),
        ("POSTGRES_PORT", &database),
        ("BUILD_IMAGE", &images.build()),
        ("RUNTIME_IMAGE", &images.runtime()),
        ("POSTGRES_IMAGE", &images.postgres()),
        ("AGENT_WORKSPACE_IMAGE", &images.name("service")),
    ]);
    let stub = stub_image();
    let more = format!(
        "services:\n  {SERVICE}:\n    environment:\n      WORKSPACE_DOCKER__IMAGE: {stub}\n"
    );
    fs::write(project.dir.path().join("more.yml"), more).unwrap();
    project.has_containers = true;
    let up = project.compose(&["up", "--detach", "--build"]);
    let stderr = String::from_utf8_lossy(&up.stderr);
    assert!(up.status.success(), "{stderr}");
    let service = project.container(SERVICE);
    let inspect = |format: &str| engine.docker(&["inspect", "--format", format, &service]);
    wait_for("a healthy service", STATE_TIMEOUT, || {
        let state = inspect("{{.State.Health.Status}}");
        async move { (state == "healthy").then_some(()) }
    })
    .await;
    assert_eq!(project.exec(&["id", "-u"]), UID);
    let data = project.exec(&["stat", "-c", "%u %a", "/data"]);
    assert_eq!(data, format!("{UID} 700"));

    // The service reaches the engine as a member of the socket's group, and the database for the key.
    let key = project.exec(&["agent-workspace", "keys", "create", "--user", "ada"]);
    let ada = Client::new(format!("http://{bind}"), &key);
    let sandbox = ada.start_sandbox().await;
    ada.wait_for_sandbox_status(&sandbox.id, "RUNNING", STATE_TIMEOUT)
        .await;
    assert_sandboxes_reach_the_service(&engine, &format!("agent-workspace-{}", sandbox.id), web)
        .await;
    let path = format!("/api/v1/sandboxes/{}", sandbox.id);
    let _ = ada.delete(&path).await.ok();

    let stop = project.compose(&["stop", "--timeout", "40", SERVICE]);
    assert!(
        stop.status.success(),
        "{}",
        String::from_utf8_lossy(&stop.stderr)
    );
    assert_eq!(
        inspect("{{.State.ExitCode}}"),
        "0",
        "the service must exit in order"
    );
}

/// Sandboxes reach the service through the gateway, although it listens on loopback, and find only routes for sandboxes.
async fn assert_sandboxes_reach_the_service(engine: &Engine, container: &str, port: u16) {
    let ask = |path: &str| {
        let url = format!("http://host.docker.internal:{port}{path}");
        // This program does not know `no_proxy`.
        let fetch = ["env", "-u", "http_proxy", "wget", "-q", "-O", "-", &url];
        engine.try_docker(&[&["exec", container], &fetch[..]].concat())
    };
    wait_for("the listener at the gateway", STATE_TIMEOUT, || {
        let answer = ask("/alive").stdout;
        async move { (answer == b"{\"status\":\"ok\"}").then_some(()) }
    })
    .await;
    wait_for(
        "the refusal of a route that is not for sandboxes",
        STATE_TIMEOUT,
        || {
            let answer = ask("/ready");
            assert!(!answer.status.success(), "a sandbox can read /ready");
            let is_not_found = String::from_utf8_lossy(&answer.stderr).contains("404");
            async move { is_not_found.then_some(()) }
        },
    )
    .await;
}

#[test]
fn compose_file_sets_only_known_settings() {
    let project = Project::new(&required_variables());
    let output = project.compose(&["config"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().filter_map(|line| line.trim().split_once(": "));
    let variables: Vec<(&str, &str)> = lines
        .filter(|(name, _)| name.starts_with("WORKSPACE_"))
        .map(|(name, value)| (name, value.trim_matches(['"', '\''])))
        .collect();
    assert!(variables.len() >= 4, "{text}");
    let config = Command::new(built_program("agent-workspace"))
        .arg("config")
        .env_clear()
        .env("HOME", project.dir.path())
        .envs(variables)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&config.stderr);
    assert!(config.status.success(), "{stderr}");
    let shown = String::from_utf8_lossy(&config.stdout);
    let url = "url = \"postgres://***@127.0.0.1:5432/workspace\"";
    assert!(shown.contains(url), "{shown}");
}

#[test]
fn compose_file_requires_the_operators_secrets() {
    let all = required_variables();
    for missing in 0..all.len() {
        let mut variables = all.to_vec();
        let (name, _) = variables.remove(missing);
        let output = Project::new(&variables).compose(&["config"]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "without {name}");
        assert!(
            stderr.contains("write .env first"),
            "without {name}: {stderr}"
        );
    }
}

#[test]
fn doctor_reports_the_engine_and_creates_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::shared();
    let (stub, absent) = (stub_image(), "agent-workspace-test/absent:1");
    let templates = format!(
        "[docker]\nid = 'stub'\nimage = '{stub}'\n[[docker.templates]]\nid = 'other'\nimage = '{absent}'\n"
    );
    let file = dir.path().join("config.toml");
    fs::write(&file, templates).unwrap();
    let mut doctor = Command::new(built_program("agent-workspace"));
    doctor
        .arg("doctor")
        .env_clear()
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .env("WORKSPACE_DATA_DIR", dir.path().join("data"))
        .env("WORKSPACE_CONFIG", &file)
        .env("WORKSPACE_HTTP__BIND", "127.0.0.1:0");
    if let Some(socket) = engine.socket() {
        doctor.env("DOCKER_HOST", socket);
    }
    let output = doctor.output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    let version = engine.docker(&["version", "--format", "{{.Server.Version}}"]);
    for part in [
        "ok       sandboxes: docker (auto: an engine answers",
        &format!("ok       engine: {version} on "),
        "disk limits: ",
        &format!("template stub: image {stub} is present"),
        &format!("template other: image {absent} is missing"),
        "metadata address: ",
        "callbacks: ",
    ] {
        assert!(stdout.contains(part), "{part} is missing in {stdout}");
    }
    assert!(!dir.path().join("data").exists());
}
