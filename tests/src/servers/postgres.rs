//! A temporary Postgres server, which a test may stop and start.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::agent_server::variable_of;

const INSTALL_HINT: &str = "this suite starts a Postgres server of its own: `cargo xtask test` installs one, or \
                       apt-get install postgresql (14 or newer)";

/// A server with its own directory and a socket in it. Dropping it stops it.
#[derive(Debug)]
pub struct Postgres {
    dir: TempDir,
    /// The user and group it runs as instead of root, which it refuses.
    user: Option<(u32, u32)>,
}

impl Postgres {
    /// Creates and starts a server.
    ///
    /// # Panics
    /// When no server is installed, or it does not start.
    #[must_use]
    pub fn start() -> Self {
        let dir = tempfile::Builder::new()
            .prefix("aw-pg-")
            .tempdir()
            .expect("cannot create a temporary directory");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755))
            .expect("cannot set permissions");
        let server = Self {
            user: server_user(),
            dir,
        };
        let data = server.data();
        fs::create_dir(&data).expect("cannot write to the directory");
        if let Some((uid, gid)) = server.user {
            chown(&data, Some(uid), Some(gid))
                .expect("cannot change the owner of the data directory");
        }
        fs::set_permissions(&data, fs::Permissions::from_mode(0o700))
            .expect("cannot set permissions");
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
        run_tool(server.tool("initdb").args(init));
        server.resume();
        server
    }

    /// Stops it like a crash (`immediate`) or by closing all connections (`fast`).
    pub fn stop(&self, mode: &str) {
        run_tool(self.tool("pg_ctl").args(["stop", "-w", "-s", "-m", mode]));
    }

    /// Starts it again.
    pub fn resume(&self) {
        let options = format!(
            "-k {} -c listen_addresses= -c max_connections=200 -c track_activity_query_size=16384",
            self.data().display()
        );
        let log = self.data().join("server.log");
        let mut start = self.tool("pg_ctl");
        run_tool(
            start
                .args(["start", "-w", "-s", "-o", &options, "-l"])
                .arg(log),
        );
    }

    /// The URL of its database.
    #[must_use]
    pub fn url(&self) -> String {
        let socket = self.data().display().to_string().replace('/', "%2F");
        format!("postgres://postgres@{socket}/postgres")
    }

    /// The result of a statement, without headings.
    ///
    /// # Panics
    /// When the statement fails.
    #[must_use]
    pub fn query(&self, sql: &str) -> String {
        let output = Command::new(programs().join("psql"))
            .args(["-X", "-A", "-t", "-U", "postgres", "-d", "postgres", "-h"])
            .arg(self.data())
            .args(["-c", sql])
            .stdin(Stdio::null())
            .output()
            .unwrap_or_else(|error| panic!("psql: {error}: {INSTALL_HINT}"));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{sql}: {stderr}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// The output of `pg_dump` (bytes as hexadecimal digits), followed by the server's log.
    ///
    /// # Panics
    /// When `pg_dump` fails.
    #[must_use]
    pub fn dump(&self) -> String {
        let output = Command::new(programs().join("pg_dump"))
            .args(["-U", "postgres", "-d", "postgres", "-h"])
            .arg(self.data())
            .stdin(Stdio::null())
            .output()
            .unwrap_or_else(|error| panic!("pg_dump: {error}: {INSTALL_HINT}"));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "pg_dump: {stderr}");
        let log = fs::read(self.data().join("server.log")).unwrap_or_default();
        String::from_utf8_lossy(&[output.stdout, log].concat()).into_owned()
    }

    /// The directory of the server's programs.
    ///
    /// # Panics
    /// When no server is installed.
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
    let is_root = fs::metadata("/proc/self")
        .expect("cannot read /proc/self")
        .uid()
        == 0;
    if !is_root {
        return None;
    }
    let id = |flag: &str| {
        let output = Command::new("id").args([flag, "postgres"]).output();
        let text = output.expect("cannot run `id`").stdout;
        let number = String::from_utf8_lossy(&text).trim().parse();
        number.unwrap_or_else(|_| panic!("there is no user `postgres`: {INSTALL_HINT}"))
    };
    Some((id("-u"), id("-g")))
}

/// The directory that `WORKSPACE_TEST_POSTGRES_BIN` names, or that of the newest installed server.
fn programs() -> PathBuf {
    if let Some(configured) = variable_of("WORKSPACE_TEST_POSTGRES_BIN") {
        return configured.into();
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
    let (_, newest_path) =
        newest.unwrap_or_else(|| panic!("no Postgres is installed: {INSTALL_HINT}"));
    newest_path.join("bin")
}

fn has_server(path: &Path) -> bool {
    path.join("bin/initdb").exists()
}

fn run_tool(command: &mut Command) {
    // A file, because the server would keep a pipe open.
    let log = tempfile::NamedTempFile::new().expect("cannot create a temporary file");
    let output = || Stdio::from(log.reopen().expect("cannot open the temporary file"));
    let status = command.stdout(output()).stderr(output()).status();
    let status = status.unwrap_or_else(|error| panic!("{command:?}: {error}: {INSTALL_HINT}"));
    if !status.success() {
        let stderr = fs::read_to_string(log.path()).unwrap_or_default();
        panic!("{command:?}: {status}: {stderr}");
    }
}
