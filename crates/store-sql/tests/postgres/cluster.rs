//! Throw-away Postgres servers.
//!
//! One server is shared by all tests, also when each runs in a process of its own: whoever needs it first starts it, and
//! every process holds a shared lock on a file. A small shell, which outlives its starter, waits for the exclusive lock,
//! and so until nobody is left (however they ended), stops the server and deletes its files. Tests that must do something
//! to the server itself start a private one, which goes the same way.

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

/// Waits until `$1/lock` has been free for a while (tests come and go), then ends the server in `$1/data` at once and
/// deletes `$2`.
const UNDERTAKER: &str = r#"(
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

/// A server, for as long as this lives.
pub(crate) struct Cluster {
    dir: PathBuf,
    options: String,
    /// Held until the process ends or this is dropped.
    _lock: File,
}

/// A database that is dropped with this.
pub(crate) struct Database {
    server: String,
    name: String,
}

impl Cluster {
    /// The one that all tests share. Do nothing to it beyond a database of your own.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: OnceLock<Cluster> = OnceLock::new();
        SHARED.get_or_init(|| {
            // One for each checkout, user and version. The path of a socket must not be long.
            let mut checkout = DefaultHasher::new();
            env!("CARGO_MANIFEST_DIR").hash(&mut checkout);
            programs().hash(&mut checkout);
            let name = format!("store-sql-{:x}-{}", checkout.finish(), me());
            let dir = std::env::temp_dir().join(name);
            fs::create_dir_all(&dir).expect("a directory for the server");
            let owner = fs::metadata(&dir).expect("its owner").uid();
            assert_eq!(owner, me(), "{} is somebody else's", dir.display());
            let cluster = Self::at(dir, "");
            // Only one starts it; the others find it started.
            let starting = open(&cluster.dir.join("starting"));
            starting.lock().expect("lock");
            if PgConnection::establish(&cluster.url("postgres")).is_err() {
                let _ = fs::remove_dir_all(cluster.dir.join("data"));
                cluster.create(&cluster.dir.join("data"));
            }
            cluster
        })
    }

    /// One of its own, with these options of `postgres` beside the usual ones.
    pub(crate) fn private(options: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory").keep();
        let cluster = Self::at(dir, options);
        cluster.create(&cluster.dir);
        cluster
    }

    /// Gives a file to the user that the server runs as, who alone may read it.
    pub(crate) fn give(file: &Path) {
        fs::set_permissions(file, fs::Permissions::from_mode(0o600)).expect("rights");
        if let Some((uid, gid)) = server_user() {
            chown(file, Some(uid), Some(gid)).expect("the server's own file");
        }
    }

    fn at(dir: PathBuf, options: &str) -> Self {
        // The server may run as another user.
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).expect("rights");
        let lock = open(&dir.join("lock"));
        lock.lock_shared().expect("lock");
        Self {
            dir,
            options: options.to_owned(),
            _lock: lock,
        }
    }

    /// Makes and starts the server, and sees to its end: then `leftovers` are deleted.
    fn create(&self, leftovers: &Path) {
        let data = self.dir.join("data");
        fs::create_dir(&data).expect("a data directory");
        if let Some((uid, gid)) = server_user() {
            chown(&data, Some(uid), Some(gid)).expect("the server's own directory");
        }
        fs::set_permissions(&data, fs::Permissions::from_mode(0o700)).expect("rights");
        let mut initdb = self.tool("initdb");
        initdb.args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C"]);
        run(initdb.args(["-N", "--no-instructions"]));
        let undertaker = Command::new("sh")
            .args(["-c", UNDERTAKER, "sh"])
            .args([&self.dir, leftovers])
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        assert!(undertaker.expect("a shell").success(), "no shell");
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

    /// Stops the server: `immediate` as a crash would, `fast` by turning everybody out.
    pub(crate) fn stop(&self, mode: &str) {
        run(self.tool("pg_ctl").args(["stop", "-w", "-s", "-m", mode]));
    }

    /// The URL of one of its databases.
    pub(crate) fn url(&self, database: &str) -> String {
        let socket = self.dir.join("data").display().to_string();
        format!(
            "postgres://postgres@{}/{database}",
            socket.replace('/', "%2F")
        )
    }

    /// A connection of a superuser.
    pub(crate) fn admin(&self, database: &str) -> PgConnection {
        PgConnection::establish(&self.url(database)).expect("a connection")
    }

    /// A new, empty database.
    pub(crate) fn database(&self) -> Database {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::SeqCst);
        let name = format!("test_{}_{number}", std::process::id());
        let create = format!("CREATE DATABASE {name}");
        self.admin("postgres")
            .batch_execute(&create)
            .expect("a database");
        Database {
            server: self.url(""),
            name,
        }
    }

    /// One of Postgres' programs, as the user that the server runs as.
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

impl Database {
    /// Its URL.
    pub(crate) fn url(&self) -> String {
        format!("{}{}", self.server, self.name)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // Best effort: with the server goes everything in it.
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

/// Our user.
fn me() -> u32 {
    fs::metadata("/proc/self").expect("our own process").uid()
}

/// As whom the server runs, if not as us: Postgres refuses to run as root.
fn server_user() -> Option<(u32, u32)> {
    if me() != 0 {
        return None;
    }
    let id = |flag: &str| {
        let output = Command::new("id").args([flag, "postgres"]).output();
        let output = output.expect("the program `id`").stdout;
        let number = String::from_utf8_lossy(&output).trim().parse();
        number.unwrap_or_else(|_| panic!("there is no user `postgres`; {INSTALL}"))
    };
    Some((id("-u"), id("-g")))
}

/// Where the newest installed server's programs are, or those that `WORKSPACE_TEST_POSTGRES_BIN` names.
#[expect(
    clippy::disallowed_methods,
    reason = "the one place where these tests read their environment"
)]
fn programs() -> PathBuf {
    if let Some(given) = std::env::var_os("WORKSPACE_TEST_POSTGRES_BIN") {
        return given.into();
    }
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let newest = versions
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse::<u32>().ok()?, entry)))
        .filter(|(version, entry)| *version >= 14 && entry.path().join("bin/initdb").exists())
        .max_by_key(|(version, _)| *version);
    let Some((_, found)) = newest else {
        panic!("no server below /usr/lib/postgresql; {INSTALL}");
    };
    found.path().join("bin")
}

fn run(command: &mut Command) {
    // Not a pipe: the server would keep it open.
    let log = tempfile::tempfile().expect("a file");
    let said = || Stdio::from(log.try_clone().expect("a file"));
    let status = command
        .stdin(Stdio::null())
        .stdout(said())
        .stderr(said())
        .status();
    let status = status.unwrap_or_else(|error| panic!("{command:?}: {error}; {INSTALL}"));
    if !status.success() {
        let said = std::io::read_to_string(rewound(log)).unwrap_or_default();
        panic!("{command:?}: {status}: {said}");
    }
}

fn rewound(mut file: File) -> File {
    std::io::Seek::rewind(&mut file).expect("a file");
    file
}
