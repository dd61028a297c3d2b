//! Installations with shell scripts in place of `python` and `uv`, which log their arguments.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use secrecy::SecretString;

use super::*;

/// A machine in a folder: `bin` is its PATH, `log` has the arguments of the scripts, `switches` change their behaviour.
struct FakeMachine {
    dir: tempfile::TempDir,
}

impl FakeMachine {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["bin", "home", "data", "switches"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn script(&self, name: &str, body: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let base = self.dir.path().display();
        fs::write(&path, format!("#!/bin/sh\nBASE={base}\n{body}")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// A Python of this version that can create environments, install and compile.
    fn python(&self, name: &str, version: &str) -> PathBuf {
        let body = PYTHON.replace("@VERSION@", version);
        self.script(name, &body)
    }

    fn switch(&self, name: &str) {
        fs::write(self.path("switches").join(name), "").unwrap();
    }

    fn config(&self) -> Config {
        let path = format!("{}:/usr/bin:/bin", self.path("bin").display());
        // A script that fails takes each name, so that the Pythons of the test machine are not found.
        for name in [
            "python3.12",
            "python3.13",
            "python3.14",
            "python3",
            "python",
        ] {
            if !self.path("bin").join(name).exists() {
                self.script(&format!("bin/{name}"), "exit 127\n");
            }
        }
        let home = self.path("home").display().to_string();
        let variables = [
            ("PATH", path),
            ("HOME", home),
            ("PYTHONDONTWRITEBYTECODE", "1".into()),
        ];
        let mut config = Config::new(
            PythonProgram::AgentServer,
            self.path("data"),
            InstallEnvironment::pick(variables),
        );
        config.deadlines.probe = Duration::from_secs(60);
        config
    }

    fn provisioner(&self) -> Provisioner {
        Provisioner::new(self.config()).unwrap()
    }

    fn log_file(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    fn count(&self, what: &str) -> usize {
        self.log_file()
            .lines()
            .filter(|line| line.contains(what))
            .count()
    }
}

const PYTHON: &str = r#"
echo "python $*" >> $BASE/log
case "$*" in
  *AGENT-WORKSPACE*) echo "AGENT-WORKSPACE cpython @VERSION@ 1 $0" ;;
  *"-m venv "*) for root; do :; done; mkdir -p "$root/bin" "$root/lib"; cp "$0" "$root/bin/python" ;;
  *"-m pip config list"*) if [ -e $BASE/switches/own-index ]; then echo "global.index-url='https://mirror.test/simple'"; fi ;;
  *"-m pip install"*" --target "*)
    if [ ! -e $BASE/switches/uv ]; then echo "ERROR: no such release" >&2; exit 1; fi
    while [ "$1" != --target ]; do shift; done; mkdir -p "$2/bin"; cp $BASE/uv "$2/bin/uv" ;;
  *"-m pip install"*)
    env >> $BASE/env
    echo "Collecting openhands-agent-server"
    if [ -e $BASE/switches/hang ]; then sleep 600; fi
    case "$*" in *" -c "*) if [ -e $BASE/switches/no-release ]; then echo "ERROR: no such release" >&2; exit 1; fi ;; esac
    if [ -e $BASE/switches/fail ]; then
      echo "ERROR: No matching distribution; index https://me:canary@index.test/simple" >&2; exit 1
    fi ;;
  *compileall*) env >> $BASE/compile-env; if [ -e $BASE/switches/odd-file ]; then exit 1; fi ;;
esac
exit 0
"#;

/// In the arguments of `pip` for the agent server's packages.
const WITH_PIP: &str = "--no-compile";

/// An installer that logs its arguments.
const UV: &str = r#"echo "uv $*" >> $BASE/log; if [ -e $BASE/switches/uv-fails ]; then exit 2; fi"#;

/// An installer that also downloads the Python `template`.
const UV_WITH_PYTHON: &str = r#"
echo "uv $*" >> $BASE/log
case "$*" in
  "python install"*) d=$HOME/.local/share/uv/python/cpython-3.12.8/bin; mkdir -p $d; cp $BASE/template $d/python3 ;;
  "venv "*) for root; do :; done; mkdir -p "$root/bin" "$root/lib"; cp "$3" "$root/bin/python" ;;
esac
"#;

#[tokio::test]
async fn the_first_call_installs_and_the_second_one_reuses() {
    let machine = FakeMachine::new();
    machine.python("bin/python3.12", "3.12.1");
    let provisioner = machine.provisioner();
    assert_eq!(provisioner.find().await, None);
    let server = provisioner.ensure().await.unwrap();
    assert!(server.root.starts_with(machine.path("data/agent-server")));
    assert!(server.python().exists());
    assert_eq!(server.command()[1], "-P");
    assert_eq!(server.command()[2..], [server.root.join("boot.py")]);
    let requirements = fs::read_to_string(server.root.join("requirements.txt")).unwrap();
    for line in [
        "openhands-agent-server==1.58.0",
        "openhands-sdk==1.58.0",
        "openhands-tools==1.58.0",
        "litellm==1.105.3",
    ] {
        assert!(
            requirements.lines().any(|requirement| requirement == line),
            "{line} in {requirements}"
        );
    }
    let compile_env = fs::read_to_string(machine.path("compile-env")).unwrap();
    assert!(!compile_env.contains("PYTHONDONTWRITEBYTECODE"));
    assert_eq!(provisioner.ensure().await.unwrap(), server);
    assert_eq!(machine.count(WITH_PIP), 1);
}

#[tokio::test]
async fn an_installation_of_an_earlier_release_gets_the_current_start_script() {
    let machine = FakeMachine::new();
    machine.python("bin/python3.12", "3.12.1");
    let server = machine.provisioner().ensure().await.unwrap();
    let file = server.root.join("boot.py");
    for earlier in [None, Some("script of an earlier release")] {
        fs::remove_file(&file).unwrap();
        let module = ["-m", "openhands.agent_server"];
        assert_eq!(server.command()[1..], module, "without the script");
        if let Some(text) = earlier {
            fs::write(&file, text).unwrap();
        }
        let found = machine.provisioner().find().await.unwrap();
        assert_eq!(found.command()[2], file);
        assert!(fs::read_to_string(&file).unwrap().contains("agent_server"));
    }
    let entries = fs::read_dir(&server.root).unwrap();
    let is_unfinished = |name: &str| name.starts_with("boot.py.");
    let names = entries.map(|entry| entry.unwrap().file_name());
    assert!(
        !names
            .into_iter()
            .any(|name| is_unfinished(&name.to_string_lossy()))
    );
}

#[tokio::test]
async fn tested_libraries_are_installed_if_available() {
    let machine = FakeMachine::new();
    machine.python("bin/python3.12", "3.12.1");
    let server = machine.provisioner().ensure().await.unwrap();
    assert_eq!(machine.count("constraints.txt"), 1);
    let constraints = fs::read_to_string(server.root.join("constraints.txt")).unwrap();
    assert!(constraints.contains("\npydantic=="));
    assert!(!constraints.contains("litellm=="));

    let without = FakeMachine::new();
    without.python("bin/python3.12", "3.12.1");
    without.switch("no-release");
    without.provisioner().ensure().await.unwrap();
    assert_eq!(without.count(WITH_PIP), 2);
    assert_eq!(without.count("constraints.txt"), 1);
}

#[tokio::test]
async fn a_python_that_is_too_old_is_skipped() {
    let machine = FakeMachine::new();
    machine.python("bin/python3", "3.11.9");
    machine.python("home/.pyenv/versions/3.10.2/bin/python3", "3.10.2");
    let good = machine.python("home/.pyenv/versions/3.13.0/bin/python3", "3.13.0");
    machine.provisioner().ensure().await.unwrap();
    let marker = fs::read_dir(machine.path("data/agent-server"))
        .unwrap()
        .find_map(|entry| fs::read_to_string(entry.unwrap().path().join(".complete")).ok())
        .unwrap();
    assert!(marker.contains(good.to_str().unwrap()), "{marker}");
}

#[tokio::test]
async fn a_missing_python_is_an_error_with_advice() {
    let machine = FakeMachine::new();
    machine.python("bin/python3", "3.11.9");
    let error = machine
        .provisioner()
        .ensure()
        .await
        .unwrap_err()
        .to_string();
    for part in [
        "3.11.9, older than 3.12",
        "a download with uv: the installation failed at \"installing uv\"",
        "no such release",
        "python3.12",
        "pyenv",
        "Install uv",
        "WORKSPACE_SANDBOX__AGENT_SERVER_COMMAND",
    ] {
        assert!(error.contains(part), "{part} in {error}");
    }
}

#[tokio::test]
async fn a_configured_python_is_used_or_refused_but_never_replaced() {
    let machine = FakeMachine::new();
    machine.python("bin/python3.12", "3.12.1");
    let mut config = machine.config();
    config.python = Some(machine.python("old/python", "3.9.1"));
    let error = Provisioner::new(config.clone())
        .unwrap()
        .ensure()
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("3.9.1, older than 3.12"), "{error}");
    config.python = Some(machine.python("new/python", "3.13.2"));
    Provisioner::new(config).unwrap().ensure().await.unwrap();
    assert_eq!(machine.count(WITH_PIP), 1);
}

#[tokio::test]
async fn an_interrupted_installation_is_repeated() {
    let machine = FakeMachine::new();
    machine.python("bin/python3.12", "3.12.1");
    machine.switch("hang");
    let provisioner = machine.provisioner();
    let installs = async {
        while machine.count(WITH_PIP) == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        result = provisioner.ensure() => panic!("{result:?}"),
        () = installs => {}
    }
    // The incomplete environment exists and must not count as an installation.
    let root = fs::read_dir(machine.path("data/agent-server"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.is_dir())
        .unwrap();
    fs::write(root.join("half-written"), "").unwrap();
    assert_eq!(provisioner.find().await, None);
    fs::remove_file(machine.path("switches/hang")).unwrap();
    let server = provisioner.ensure().await.unwrap();
    assert_eq!(server.root, root);
    assert!(!root.join("half-written").exists());
}

#[tokio::test]
async fn a_step_that_outlives_its_service_keeps_the_lock() {
    let machine = FakeMachine::new();
    machine.python("bin/python3.12", "3.12.1");
    let mut config = machine.config();
    config.deadlines.lock = Duration::ZERO;
    let provisioner = Provisioner::new(config).unwrap();
    let lock = provisioner.lock().await.unwrap();
    // As after `kill -9` of the service during `pip install`: the child runs, with the lock as its input.
    let mut orphan = std::process::Command::new("/bin/sleep")
        .arg("600")
        .stdin(child::input(&lock).unwrap())
        .spawn()
        .unwrap();
    drop(lock);
    let error = provisioner.ensure().await.unwrap_err();
    assert!(matches!(error, ProvisionError::TooLong { .. }), "{error}");
    orphan.kill().unwrap();
    orphan.wait().unwrap();
    provisioner.ensure().await.unwrap();
}

#[tokio::test]
async fn concurrent_calls_install_once() {
    let machine = FakeMachine::new();
    machine.python("bin/python3.12", "3.12.1");
    let provisioners: Vec<_> = (0..5).map(|_| machine.provisioner()).collect();
    let all = futures::future::join_all(provisioners.iter().map(Provisioner::ensure)).await;
    let roots: std::collections::BTreeSet<_> =
        all.into_iter().map(|server| server.unwrap().root).collect();
    assert_eq!(roots.len(), 1);
    assert_eq!(machine.count(WITH_PIP), 1);
}

#[tokio::test]
async fn a_failing_step_shows_its_last_lines_without_credentials() {
    let machine = FakeMachine::new();
    machine.python("bin/python3.12", "3.12.1");
    machine.switch("fail");
    let mut config = machine.config();
    config.index_url = Some(SecretString::from("https://me:canary@index.test/simple"));
    config.proxy = Some(SecretString::from("http://me:canary@proxy.test:8080"));
    let shown = format!("{config:?}");
    assert!(!shown.contains("canary"), "{shown}");
    let error = Provisioner::new(config)
        .unwrap()
        .ensure()
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("installing packages") && error.contains("No matching distribution"),
        "{error}"
    );
    assert!(!error.contains("canary"), "{error}");
    // Credentials are passed by environment, not by argument.
    assert!(!machine.log_file().contains("canary"));
    let environment = fs::read_to_string(machine.path("env")).unwrap();
    assert!(environment.contains("PIP_INDEX_URL=https://me:canary@index.test/simple"));
    assert!(environment.contains("HTTPS_PROXY=http://me:canary@proxy.test:8080"));
}

#[tokio::test]
async fn a_file_that_does_not_compile_does_not_fail_the_installation() {
    let machine = FakeMachine::new();
    machine.python("bin/python3.12", "3.12.1");
    machine.switch("odd-file");
    machine.provisioner().ensure().await.unwrap();
}

#[tokio::test]
async fn uv_is_preferred_and_downloads_a_missing_python() {
    let machine = FakeMachine::new();
    machine.python("template", "3.12.8");
    machine.script("bin/uv", UV_WITH_PYTHON);
    machine.provisioner().ensure().await.unwrap();
    assert_eq!(machine.count("uv python install"), 1);
    assert_eq!(machine.count("uv pip install --python"), 1);
    assert_eq!(machine.count("-m pip install"), 0);
}

#[tokio::test]
async fn an_older_python_installs_the_uv_that_downloads_a_python() {
    let machine = FakeMachine::new();
    machine.python("bin/python3", "3.11.2");
    machine.python("template", "3.12.8");
    machine.script("uv", UV_WITH_PYTHON);
    machine.switch("uv");
    let provisioner = machine.provisioner();
    let will_use = provisioner.describe_python().await.unwrap();
    assert_eq!(
        will_use,
        "a Python that uv downloads; Python 3.11.2 installs uv"
    );
    let server = provisioner.ensure().await.unwrap();
    assert_eq!(machine.count("uv python install"), 1);
    let marker = fs::read_to_string(server.root.join(".complete")).unwrap();
    assert!(marker.contains("3.12.8"), "{marker}");
    assert!(!machine.path("data/agent-server/uv").exists());
}

#[tokio::test]
async fn a_downloaded_uv_installs_and_is_removed() {
    let machine = FakeMachine::new();
    machine.python("bin/python3.12", "3.12.1");
    machine.script("uv", UV);
    machine.switch("uv");
    let server = machine.provisioner().ensure().await.unwrap();
    assert_eq!(machine.count("uv pip install --python"), 1);
    assert_eq!(machine.count(WITH_PIP), 0);
    assert!(!server.root.join("uv").exists());
}

#[tokio::test]
async fn pip_installs_where_uv_fails_or_would_use_another_index() {
    for (switches, uses) in [(["uv", "uv-fails"], 2), (["uv", "own-index"], 0)] {
        let machine = FakeMachine::new();
        machine.python("bin/python3.12", "3.12.1");
        machine.script("uv", UV);
        for name in switches {
            machine.switch(name);
        }
        machine.provisioner().ensure().await.unwrap();
        assert_eq!(machine.count("uv pip install"), uses, "{switches:?}");
        assert_eq!(machine.count(WITH_PIP), 1, "{switches:?}");
    }
}

#[tokio::test]
async fn a_folder_of_wheels_disables_the_index() {
    let machine = FakeMachine::new();
    machine.python("bin/python3.12", "3.12.1");
    let mut config = machine.config();
    config.wheels = Some("/some/wheels".into());
    Provisioner::new(config).unwrap().ensure().await.unwrap();
    assert_eq!(machine.count("--no-index --find-links /some/wheels -r"), 1);
    // The folder determines the versions, so there are no constraints.
    assert_eq!(machine.count("constraints.txt"), 0);
}

#[test]
fn configured_values_cannot_become_paths_or_arguments() {
    let machine = FakeMachine::new();
    for version in ["", "../1", "1/2", "-r", "1 2", "1..2", "1.0\n"] {
        let config = Config {
            version: version.into(),
            ..machine.config()
        };
        assert!(Provisioner::new(config).is_err(), "{version:?}");
    }
}
