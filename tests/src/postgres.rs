//! A throw-away Postgres server that a test may stop and start.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::agent_server::variable_of;

const INSTALL: &str = "this suite starts a Postgres server of its own: `cargo xtask test` installs one, or \
                       apt-get install postgresql (14 or newer)";

/// A server in a directory of its own, reached by a socket in it. Dropping it ends it.
#[derive(Debug)]
pub struct Postgres {
    dir: TempDir,
    /// As whom it runs, if not as us: it refuses to run as root.
    user: Option<(u32, u32)>,
}

impl Postgres {
    /// Makes and starts one.
    ///
    /// # Panics
    /// When none is installed, or it does not start.
    #[must_use]
    pub fn start() -> Self {
        let dir = tempfile::Builder::new()
            .prefix("aw-pg-")
            .tempdir()
            .expect("a temporary directory can be made");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
        let server = Self {
            user: server_user(),
            dir,
        };
        let data = server.data();
        fs::create_dir(&data).expect("the directory is writable");
        if let Some((uid, gid)) = server.user {
            chown(&data, Some(uid), Some(gid)).expect("we are root");
        }
        fs::set_permissions(&data, fs::Permissions::from_mode(0o700)).expect("it is ours");
        let init = [
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "-N",
        ];
        run(server.tool("initdb").args(init));
        server.resume();
        server
    }

    /// Ends it as a crash would (`immediate`) or by turning everybody out (`fast`).
    pub fn stop(&self, mode: &str) {
        run(self.tool("pg_ctl").args(["stop", "-w", "-s", "-m", mode]));
    }

    /// Starts it again.
    pub fn resume(&self) {
        let options = format!(
            "-k {} -c listen_addresses= -c max_connections=200 -c track_activity_query_size=16384",
            self.data().display()
        );
        let log = self.data().join("server.log");
        let mut start = self.tool("pg_ctl");
        run(start
            .args(["start", "-w", "-s", "-o", &options, "-l"])
            .arg(log));
    }

    /// The URL of its database.
    #[must_use]
    pub fn url(&self) -> String {
        let socket = self.data().display().to_string().replace('/', "%2F");
        format!("postgres://postgres@{socket}/postgres")
    }

    /// What a statement gives, without headings.
    ///
    /// # Panics
    /// When it is refused.
    #[must_use]
    pub fn query(&self, sql: &str) -> String {
        let output = Command::new(programs().join("psql"))
            .args(["-X", "-A", "-t", "-U", "postgres", "-d", "postgres", "-h"])
            .arg(self.data())
            .args(["-c", sql])
            .stdin(Stdio::null())
            .output()
            .unwrap_or_else(|error| panic!("psql: {error}: {INSTALL}"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{sql}: {said}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Everything that is stored, as `pg_dump` writes it (bytes as hexadecimal digits), and what the server has logged.
    ///
    /// # Panics
    /// When it cannot be dumped.
    #[must_use]
    pub fn dump(&self) -> String {
        let output = Command::new(programs().join("pg_dump"))
            .args(["-U", "postgres", "-d", "postgres", "-h"])
            .arg(self.data())
            .stdin(Stdio::null())
            .output()
            .unwrap_or_else(|error| panic!("pg_dump: {error}: {INSTALL}"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "pg_dump: {said}");
        let log = fs::read(self.data().join("server.log")).unwrap_or_default();
        String::from_utf8_lossy(&[output.stdout, log].concat()).into_owned()
    }

    /// Where `pg_dump` and the others are.
    ///
    /// # Panics
    /// When none is installed.
    #[must_use]
    pub fn programs() -> PathBuf {
        programs()
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn tool(&self, name: &str) -> Command {
        let mut command = Command::new(programs().join(name));
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        command
            .arg("-D")
            .arg(self.data())
            .current_dir(self.dir.path())
            .stdin(Stdio::null());
        command
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // It may be stopped already.
        let _ = self
            .tool("pg_ctl")
            .args(["stop", "-s", "-m", "immediate"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
    }
}

fn server_user() -> Option<(u32, u32)> {
    let is_root = fs::metadata("/proc/self").expect("our own process").uid() == 0;
    if !is_root {
        return None;
    }
    let id = |flag: &str| {
        let output = Command::new("id").args([flag, "postgres"]).output();
        let text = output.expect("the program `id`").stdout;
        let number = String::from_utf8_lossy(&text).trim().parse();
        number.unwrap_or_else(|_| panic!("there is no user `postgres`: {INSTALL}"))
    };
    Some((id("-u"), id("-g")))
}

/// Where the newest installed server's programs are, or those that `WORKSPACE_TEST_POSTGRES_BIN` names.
fn programs() -> PathBuf {
    if let Some(given) = variable_of("WORKSPACE_TEST_POSTGRES_BIN") {
        return given.into();
    }
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let newest = versions
        .flatten()
        .filter_map(|entry| {
            Some((
                entry.file_name().to_str()?.parse::<u32>().ok()?,
                entry.path(),
            ))
        })
        .filter(|(version, path)| *version >= 14 && has_server(path))
        .max();
    let (_, found) = newest.unwrap_or_else(|| panic!("no Postgres is installed: {INSTALL}"));
    found.join("bin")
}

fn has_server(path: &Path) -> bool {
    path.join("bin/initdb").exists()
}

fn run(command: &mut Command) {
    // Not a pipe: the server would keep it open.
    let log = tempfile::NamedTempFile::new().expect("a temporary file can be made");
    let said = || Stdio::from(log.reopen().expect("it is ours"));
    let status = command.stdout(said()).stderr(said()).status();
    let status = status.unwrap_or_else(|error| panic!("{command:?}: {error}: {INSTALL}"));
    if !status.success() {
        let said = fs::read_to_string(log.path()).unwrap_or_default();
        panic!("{command:?}: {status}: {said}");
    }
}
