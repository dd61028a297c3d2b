//! What a fork server and the agent servers of its self-test are started with.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use domain::id::{OwnerId, SandboxId, SpecId};
use domain::sandbox::{PrepareProgress, SandboxLaunch};
use sandbox_provider::{SECRET_KEY_VARIABLE, SESSION_KEY_VARIABLE, SandboxVariables, short_digest};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};

use crate::config::ProcessConfig;
use crate::environment;
use crate::files::certificates;
use crate::files::layout::SandboxPaths;
use crate::fork_server::record::RecordKey;
use crate::processes::marker::{self, Marker};
use crate::processes::programs::find_program;

const FORK_SERVER: &str = include_str!("fork_server.py");
const SELF_TEST: &str = include_str!("self_test.py");

/// The memory for the command line that `ps` shows of a child, and for its marker. Spaces show if a child does not write it.
const PADDING_BYTES: usize = 4096;
/// Where the self-test listens in its own network: the scripted model and the receiver of webhooks.
const SELF_TEST_CALLBACKS: &str = "http://127.0.0.1:26229";
/// The first of the agent servers' ports there. Below the ephemeral ports: a connection to one of those may meet itself.
const SELF_TEST_PORT: u16 = 20_000;

/// The settings of a fork server.
#[derive(Debug, Clone)]
pub(crate) struct ForkServerTemplate {
    config: ProcessConfig,
    /// Python, and its arguments for an agent server.
    command: Vec<OsString>,
    /// Where bubblewrap is.
    search_path: String,
    pub(super) directory: PathBuf,
}

impl ForkServerTemplate {
    /// `command` starts an agent server of the installation that this service made.
    pub(crate) fn new(config: &ProcessConfig, command: Vec<OsString>, search_path: String) -> Self {
        let name = short_digest(&[config.instance.as_str().as_bytes(), b"fork server"]);
        Self {
            config: config.clone(),
            command,
            search_path,
            directory: config.runtime_dir.join(name),
        }
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.directory.join("socket")
    }

    pub(super) fn log_file(&self) -> PathBuf {
        self.directory.join("log")
    }

    pub(super) fn working_dir(&self) -> PathBuf {
        self.paths("server").root
    }

    /// Writes the scripts, and empties all directories. Returns where the record of this server belongs, and whether an
    /// earlier one holds. Blocks.
    pub(super) fn prepare(&self) -> io::Result<(RecordKey, bool)> {
        match fs::remove_dir_all(&self.directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::DirBuilder::new().mode(0o700).create(&self.directory)?;
        fs::write(self.directory.join("fork_server.py"), FORK_SERVER)?;
        fs::write(self.directory.join("self_test.py"), SELF_TEST)?;
        for name in ["server", "self-test-0", "self-test-1"] {
            let paths = self.paths(name);
            paths.create()?;
            if self.config.has_proxy() {
                // Without an authority: what imports load stays in memory of all children.
                certificates::write(&paths.certificates(), &self.config, "")?;
            }
        }
        let python = self.command.first().map(Path::new);
        let key = RecordKey::new(
            python.ok_or(io::ErrorKind::InvalidInput)?,
            &self.directory,
            &self.environment(),
            &[FORK_SERVER, SELF_TEST],
        )?;
        let record = key.load();
        if let Some(record) = &record {
            let modules = serde_json::to_vec(&record.modules)?;
            fs::write(self.directory.join("modules.json"), modules)?;
        }
        Ok((key, record.is_some()))
    }

    /// The command of the server. The launcher gives it, and so its children, a session and the OOM score of sandboxes.
    pub(super) fn command(&self) -> Vec<OsString> {
        let mut words = self.config.launcher.prefix();
        words.extend(self.command.first().cloned());
        words.push("-P".into());
        words.push(self.directory.join("fork_server.py").into());
        words.push(self.socket().into());
        words.push(" ".repeat(PADDING_BYTES).into());
        words
    }

    /// The environment of the server: the one of all sandboxes, without keys, with paths that a child replaces by its own.
    pub(super) fn environment(&self) -> SandboxVariables {
        let mut all = self.variables("server", true);
        // A variable of the server must have the same value in all sandboxes.
        let differing = ["OH_DEFERRED_INIT", marker::VARIABLE];
        for name in [SESSION_KEY_VARIABLE, SECRET_KEY_VARIABLE]
            .iter()
            .chain(&differing)
        {
            all.remove(*name);
        }
        // Confined sandboxes share the path `/tmp`, but what the libraries keep there is this server's own.
        let tmp = self.paths("server").tmp().to_string_lossy().into_owned();
        all.insert("TMPDIR".to_owned(), tmp.clone().into());
        all.insert("TMUX_TMPDIR".to_owned(), tmp.into());
        all.insert("PADDING".to_owned(), " ".repeat(PADDING_BYTES).into());
        // Several heaps per process would waste memory: one thread does nearly all the work.
        all.insert("MALLOC_ARENA_MAX".to_owned(), "1".into());
        all
    }

    /// The self-test: as process 1 of its own namespaces, with all files of this machine.
    pub(super) fn self_test_command(&self) -> io::Result<Vec<OsString>> {
        let bubblewrap = find_program("bwrap".as_ref(), &self.search_path)?;
        let mut words = vec![bubblewrap.into_os_string()];
        let flags = "--unshare-all --unshare-user --die-with-parent --as-pid-1 --uid 1000 --gid 1000 --bind / / --dev /dev \
                     --proc /proc --tmpfs /tmp";
        words.extend(flags.split(' ').map(OsString::from));
        // Both may be below `/tmp`.
        let installation = self.command.first().map(Path::new);
        let installation = installation.and_then(|python| python.parent()?.parent());
        for (how, path) in [
            ("--ro-bind", installation),
            ("--bind", Some(&*self.directory)),
        ] {
            let path: OsString = path.unwrap_or(Path::new("/")).into();
            words.extend([how.into(), path.clone(), path]);
        }
        words.push("--".into());
        words.extend(self.command.first().cloned());
        words.push("-I".into());
        words.push(self.directory.join("self_test.py").into());
        Ok(words)
    }

    /// The document on the self-test's standard input. It has keys of its own.
    pub(super) fn self_test_document(&self) -> Value {
        let children = ["self-test-0", "self-test-1"].iter().zip(SELF_TEST_PORT..);
        let children = children.map(|(name, port)| {
            let environment = self.variables(name, false);
            let environment: BTreeMap<_, _> = environment
                .iter()
                .map(|(name, value)| (name, value.expose_secret()))
                .collect();
            json!({"environment": environment, "directory": self.paths(name).root, "port": port})
        });
        let arguments = self.command.iter().skip(1);
        json!({
            "socket": self.socket(),
            "arguments": arguments.map(|word| word.to_string_lossy()).collect::<Vec<_>>(),
            "uid": 1000,
            "gid": 1000,
            "callbacks": SELF_TEST_CALLBACKS,
            "children": children.collect::<Vec<_>>(),
        })
    }

    fn paths(&self, name: &str) -> SandboxPaths {
        let root = self.directory.join(name);
        SandboxPaths {
            short: root.clone(),
            control: root.join("control"),
            lock: root.join("lock"),
            root,
        }
    }

    fn variables(&self, name: &str, dormant: bool) -> SandboxVariables {
        let program = self.command.first().cloned().unwrap_or_default();
        let (Ok(id), Ok(owner), Ok(spec), Ok(webhook_url)) = (
            SandboxId::parse(name),
            OwnerId::parse("self-test"),
            SpecId::parse("self-test"),
            format!("{SELF_TEST_CALLBACKS}/webhooks").parse(),
        ) else {
            return SandboxVariables::new();
        };
        let launch = SandboxLaunch {
            id: id.clone(),
            owner,
            spec,
            session_key: random_key(),
            secret_key: random_key(),
            webhook_url,
            cors_origins: Vec::new(),
            dormant,
            progress: PrepareProgress::silent(),
        };
        let marker = Marker::new(&self.config.instance, &id);
        let paths = self.paths(name);
        let mut all = environment::variables(&self.config, &paths, &marker, &launch, &program);
        environment::add_base_python(&mut all, &program);
        all
    }
}

/// A key of an agent server that lives for some seconds, in a network of its own.
fn random_key() -> SecretString {
    let number = RandomState::new().build_hasher().finish();
    format!("{number:016x}").into()
}

#[cfg(test)]
mod tests {
    use domain::id::HostId;

    use super::*;
    use crate::config::AgentServerSource;

    fn template() -> ForkServerTemplate {
        let source = AgentServerSource::Command(Vec::new());
        let host = HostId::parse("host").unwrap();
        let mut config = ProcessConfig::new("/data", host, source);
        config.extra_env = BTreeMap::from([("CUSTOM".to_owned(), "custom".into())]);
        let command = ["/venv/bin/python", "-P", "/venv/boot.py"].map(OsString::from);
        ForkServerTemplate::new(&config, command.to_vec(), "/usr/bin".to_owned())
    }

    #[test]
    fn the_server_has_the_variables_of_sandboxes_but_no_keys() {
        let server = template().environment();
        let value = |name: &str| {
            server
                .get(name)
                .map(|value| value.expose_secret().to_owned())
        };
        assert_eq!(value("CUSTOM").as_deref(), Some("custom"));
        for name in [SESSION_KEY_VARIABLE, SECRET_KEY_VARIABLE, marker::VARIABLE] {
            assert_eq!(value(name), None, "{name}");
        }
        let directory = template().directory.to_string_lossy().into_owned();
        for name in ["HOME", "TMPDIR", "OH_PERSISTENCE_DIR"] {
            assert!(value(name).unwrap().starts_with(&directory), "{name}");
        }
    }

    /// Imports search for programs, in what a small system has. The first name that is tried consists of bytes.
    #[test]
    fn a_search_for_a_program_is_recorded_as_a_read_of_the_path() {
        let (_, from_class) = FORK_SERVER
            .split_once("\nclass RecordedEnvironment")
            .unwrap();
        let (rest_of_class, _) = from_class.split_once("\ndef ").unwrap();
        let search = "os.environ.__class__ = RecordedEnvironment\n\
                      os.get_exec_path()\n\
                      assert RecordedEnvironment.reads == {'PATH'}, RecordedEnvironment.reads\n";
        let output = std::process::Command::new("python3")
            .args([
                "-c",
                &format!("import os\nclass RecordedEnvironment{rest_of_class}\n{search}"),
            ])
            .env("PATH", "/usr/bin:/bin")
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{stderr}");
    }

    #[test]
    fn the_agent_servers_of_a_self_test_differ_in_keys_and_directories() {
        let document = template().self_test_document();
        let [first, second] = [0, 1].map(|index| &document["children"][index]);
        for name in [SESSION_KEY_VARIABLE, SECRET_KEY_VARIABLE, "HOME"] {
            let [one, other] = [first, second].map(|child| &child["environment"][name]);
            assert!(one.is_string() && one != other, "{name}");
        }
        assert_eq!(first["environment"]["CUSTOM"], "custom");
        assert_eq!(document["arguments"], json!(["-P", "/venv/boot.py"]));
    }
}
