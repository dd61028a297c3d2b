//! Temporary Postgres servers.
//!
//! All tests share one server, also when each runs in its own process. The first process that needs the server starts it, and
//! every process holds a shared lock on a file. A shell script outlives the processes and waits for the exclusive lock, which is
//! free when all of them have ended, also after a crash. It then stops the server and deletes its files. Tests that stop or
//! configure a server start a private one, which the same script removes.

use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;

const INSTALL: &str =
    "these tests start a Postgres server of their own: apt-get install postgresql (14 or newer)";

/// Waits until `$1/lock` has been free for two seconds, because other tests may follow. Then it stops the server in `$1/data` at
/// once and deletes `$2`.
const CLEANUP_SCRIPT: &str = r#"(
    while :; do
        flock -x "$1/lock" sleep 0
        sleep 2
        flock -n -x "$1/lock" sh -c '
            pid=$(head -n 1 "$1/data/postmaster.pid" 2>/dev/null) && kill -QUIT "$pid"
            while [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
            rm -rf "$2"
            exit 0' sh "$1" "$2" && break
    done
    ) &"#;

/// A Postgres server. It runs at least until this is dropped.
pub(crate) struct Cluster {
    dir: PathBuf,
    options: String,
    /// Shared lock, which keeps the server running.
    _lock: File,
}

/// A database. Dropping this value drops the database.
pub(crate) struct TestDatabase {
    server: String,
    name: String,
}

impl Cluster {
    /// The server that all tests share. A test may only use its own database on it.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<Cluster> = OnceLock::new();
        SHARED.get_or_init(|| {
            // One server per checkout, version of Postgres and user. The name is short, because paths of sockets are limited.
            let mut checkout = DefaultHasher::new();
            env!("CARGO_MANIFEST_DIR").hash(&mut checkout);
            programs().hash(&mut checkout);
            let name = format!("store-sql-{:x}-{}", checkout.finish(), current_uid());
            let dir = std::env::temp_dir().join(name);
            fs::create_dir_all(&dir).expect("create the server's directory");
            let owner = fs::metadata(&dir)
                .expect("read the directory's owner")
                .uid();
            assert_eq!(
                owner,
                current_uid(),
                "{} belongs to another user",
                dir.display()
            );
            let cluster = Self::at(dir, "");
            // One process starts the server; the others wait here and find it running.
            let starting = open(&cluster.dir.join("starting"));
            starting.lock().expect("lock the file");
            if PgConnection::establish(&cluster.url("postgres")).is_err() {
                let _ = fs::remove_dir_all(cluster.dir.join("data"));
                cluster.create(&cluster.dir.join("data"));
            }
            cluster
        })
    }

    /// Starts a private server, with additional options of `postgres`.
    pub(crate) fn private(options: &str) -> Self {
        let dir = tempfile::tempdir().expect("temporary directory").keep();
        let cluster = Self::at(dir, options);
        cluster.create(&cluster.dir);
        cluster
    }

    /// Makes a file readable only by the user that the server runs as.
    pub(crate) fn make_private(file: &Path) {
        fs::set_permissions(file, fs::Permissions::from_mode(0o600)).expect("set permissions");
        if let Some((uid, gid)) = server_user() {
            chown(file, Some(uid), Some(gid)).expect("change the file's owner");
        }
    }

    fn at(dir: PathBuf, options: &str) -> Self {
        // The server may run as another user.
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).expect("set permissions");
        let lock = open(&dir.join("lock"));
        lock.lock_shared().expect("lock the file");
        Self {
            dir,
            options: options.to_owned(),
            _lock: lock,
        }
    }

    /// Creates and starts the server. The script that stops it also deletes `leftovers`.
    fn create(&self, leftovers: &Path) {
        let data = self.dir.join("data");
        fs::create_dir(&data).expect("create the data directory");
        if let Some((uid, gid)) = server_user() {
            chown(&data, Some(uid), Some(gid)).expect("change the directory's owner");
        }
        fs::set_permissions(&data, fs::Permissions::from_mode(0o700)).expect("set permissions");
        let mut initdb = self.tool("initdb");
        initdb.args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C"]);
        run(initdb.args(["-N", "--no-instructions"]));
        let cleanup = Command::new("sh")
            .args(["-c", CLEANUP_SCRIPT, "sh"])
            .args([&self.dir, leftovers])
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        assert!(cleanup.expect("run `sh`").success(), "`sh` failed");
        self.start();
    }

    /// Starts the server again after [`Cluster::stop`].
    pub(crate) fn start(&self) {
        let options = format!(
            "-k {} -c max_connections=300 -c fsync=off -c full_page_writes=off \
             -c listen_addresses= {}",
            self.dir.join("data").display(),
            self.options
        );
        let log = self.dir.join("data/log");
        let mut start = self.tool("pg_ctl");
        run(start
            .arg("start")
            .args(["-w", "-s", "-o", &options, "-l"])
            .arg(log));
    }

    /// Stops the server: `immediate` acts like a crash, `fast` ends all connections first.
    pub(crate) fn stop(&self, mode: &str) {
        run(self.tool("pg_ctl").args(["stop", "-w", "-s", "-m", mode]));
    }

    /// The URL of a database of this server.
    pub(crate) fn url(&self, database: &str) -> String {
        let socket = self.dir.join("data").display().to_string();
        format!(
            "postgres://postgres@{}/{database}",
            socket.replace('/', "%2F")
        )
    }

    /// Connects as a superuser.
    pub(crate) fn admin(&self, database: &str) -> PgConnection {
        PgConnection::establish(&self.url(database)).expect("connect to the server")
    }

    /// Creates an empty database.
    pub(crate) fn database(&self) -> TestDatabase {
        self.copy_of("template1").expect("create a database")
    }

    /// Creates a copy of a database that `migrate` prepares, once for all tests: that takes longer than most of them.
    pub(crate) async fn migrated_database<F: Future<Output = ()>>(
        &self,
        migrate: impl FnOnce(String) -> F,
    ) -> TestDatabase {
        const TEMPLATE: &str = "migrated";
        if let Ok(copy) = self.copy_of(TEMPLATE) {
            return copy;
        }
        let starting = open(&self.dir.join("starting"));
        starting.lock().expect("lock the file");
        // Another process may have made it meanwhile.
        if let Ok(copy) = self.copy_of(TEMPLATE) {
            return copy;
        }
        let unfinished = self.database();
        migrate(unfinished.url()).await;
        let rename = format!("ALTER DATABASE {} RENAME TO {TEMPLATE}", unfinished.name);
        // It waits some seconds for the end of connections.
        let renamed = self.admin("postgres").batch_execute(&rename);
        renamed.expect("rename the database");
        self.copy_of(TEMPLATE).expect("copy the database")
    }

    fn copy_of(&self, template: &str) -> QueryResult<TestDatabase> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::SeqCst);
        let name = format!("test_{}_{number}", std::process::id());
        // The default since version 15 writes each page to the log, which takes four times as long.
        let create = format!("CREATE DATABASE {name} TEMPLATE {template}");
        let admin = &mut self.admin("postgres");
        admin
            .batch_execute(&format!("{create} STRATEGY file_copy"))
            .or_else(|_| admin.batch_execute(&create))?;
        Ok(TestDatabase {
            server: self.url(""),
            name,
        })
    }

    /// A command that runs a program of Postgres as the user of the server.
    fn tool(&self, name: &str) -> Command {
        let mut command = Command::new(programs().join(name));
        if let Some((uid, gid)) = server_user() {
            command.uid(uid).gid(gid);
        }
        command
            .arg("-D")
            .arg(self.dir.join("data"))
            .current_dir(&self.dir);
        command
    }
}

impl TestDatabase {
    pub(crate) fn url(&self) -> String {
        format!("{}{}", self.server, self.name)
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        // Best effort, because the server's files are deleted at its end anyway.
        if let Ok(mut admin) = PgConnection::establish(&format!("{}postgres", self.server)) {
            let _ = admin.batch_execute(&format!("DROP DATABASE {} WITH (FORCE)", self.name));
        }
    }
}

fn open(path: &Path) -> File {
    let mut options = OpenOptions::new();
    let opened = options
        .create(true)
        .truncate(false)
        .write(true)
        .read(true)
        .open(path);
    opened.unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// User id of this process.
fn current_uid() -> u32 {
    fs::metadata("/proc/self").expect("read /proc/self").uid()
}

/// User and group of the server, if they are not those of this process. Postgres refuses to run as root.
fn server_user() -> Option<(u32, u32)> {
    if current_uid() != 0 {
        return None;
    }
    let id = |flag: &str| {
        let output = Command::new("id").args([flag, "postgres"]).output();
        let output = output.expect("run `id`").stdout;
        let number = String::from_utf8_lossy(&output).trim().parse();
        number.unwrap_or_else(|_| panic!("there is no user `postgres`; {INSTALL}"))
    };
    Some((id("-u"), id("-g")))
}

/// Directory of the newest installed server's programs, or the one that `WORKSPACE_TEST_POSTGRES_BIN` names.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place where these tests read their environment"
)]
fn programs() -> PathBuf {
    if let Some(directory) = std::env::var_os("WORKSPACE_TEST_POSTGRES_BIN") {
        return directory.into();
    }
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let newest = versions
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse::<u32>().ok()?, entry)))
        .filter(|(version, entry)| *version >= 14 && entry.path().join("bin/initdb").exists())
        .max_by_key(|(version, _)| *version);
    let Some((_, version)) = newest else {
        panic!("no server below /usr/lib/postgresql; {INSTALL}");
    };
    version.path().join("bin")
}

fn run(command: &mut Command) {
    // A file, because the server inherits the outputs and would keep a pipe open.
    let mut log = tempfile::tempfile().expect("temporary file");
    let output = || Stdio::from(log.try_clone().expect("duplicate the file"));
    let status = command
        .stdin(Stdio::null())
        .stdout(output())
        .stderr(output())
        .status();
    let status = status.unwrap_or_else(|error| panic!("{command:?}: {error}; {INSTALL}"));
    if !status.success() {
        std::io::Seek::rewind(&mut log).expect("rewind the output");
        let output = std::io::read_to_string(log).unwrap_or_default();
        panic!("{command:?}: {status}: {output}");
    }
}
