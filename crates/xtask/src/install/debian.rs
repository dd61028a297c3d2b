//! Installs packages of Debian and Ubuntu that the suites need.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::{Context as _, bail};

use crate::run::{program, run, say};

/// Another process may be installing packages.
const APT_LOCK_TIMEOUT_OPTION: &str = "DPkg::Lock::Timeout=300";

/// Whether packages can be installed here: as root or with sudo, with apt.
pub(crate) fn can_install() -> bool {
    (is_root() || has_program("sudo")) && Path::new("/usr/bin/apt-get").exists()
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|ours| ours.uid() == 0)
}

/// A command as root. `sudo` may ask for a password.
fn as_root(name: &str) -> std::process::Command {
    if is_root() {
        return program(name);
    }
    let mut sudo = program("sudo");
    sudo.args(["env", "DEBIAN_FRONTEND=noninteractive", name]);
    sudo
}

/// Whether a program is on `PATH`.
pub(crate) fn has_program(name: &str) -> bool {
    let found = program("sh")
        .args(["-c", "command -v \"$0\" >/dev/null", name])
        .status();
    found.is_ok_and(|status| status.success())
}

/// Installs packages; `missing` names the reason.
pub(crate) fn install(missing: &str, packages: &[&str]) -> anyhow::Result<()> {
    let names = packages.join(" ");
    if !can_install() {
        bail!(
            "{missing} is missing: install it (on Debian or Ubuntu, as root: apt-get install {names})"
        );
    }
    say(&format!("{missing} is missing: installing {names}"));
    if !has_lists() {
        update()?;
    }
    let install = || {
        let mut apt = as_root("apt-get");
        apt.args([
            "install",
            "-q",
            "-y",
            "--no-install-recommends",
            "-o",
            APT_LOCK_TIMEOUT_OPTION,
        ])
        .args(packages)
        .env("DEBIAN_FRONTEND", "noninteractive");
        run(&mut apt)
    };
    // Outdated lists name files that the mirror no longer has.
    install().or_else(|_| update().and_then(|()| install()))
}

fn update() -> anyhow::Result<()> {
    run(as_root("apt-get").args(["update", "-q", "-o", APT_LOCK_TIMEOUT_OPTION]))
}

/// Stops and disables the service of a package that is only needed for its programs.
fn stop(service: &str) {
    let has_systemd = Path::new("/run/systemd/system").exists();
    if has_systemd && run(as_root("systemctl").args(["disable", "--now", service])).is_err() {
        say(&format!(
            "the service {service}, which came with it, may run now: nothing here needs it"
        ));
    }
}

fn has_lists() -> bool {
    let lists = fs::read_dir("/var/lib/apt/lists").into_iter().flatten();
    lists
        .flatten()
        .any(|entry| entry.file_name().to_string_lossy().contains("_Packages"))
}

/// The libraries that the service links.
pub(crate) fn libraries() -> anyhow::Result<()> {
    // `openssl-sys` looks here unless `OPENSSL_DIR` is set.
    let asked = "test -n \"$OPENSSL_DIR\" || pkg-config --exists openssl";
    let has_openssl = program("sh").args(["-c", asked]).status();
    if !has_openssl.is_ok_and(|it| it.success()) {
        install(
            "OpenSSL, with which libpq reaches Postgres",
            &["libssl-dev", "pkg-config"],
        )?;
    }
    if !has_program("cc") || !has_program("make") {
        install("a C compiler and make", &["build-essential"])?;
    }
    Ok(())
}

/// What process sandboxes need: the programs that confine them, and their device, and a Python for the installation of their agent
/// server. Where these cannot be had, the service says what it lacks.
pub(crate) fn process_sandboxes() {
    for (name, package) in [("bwrap", "bubblewrap"), ("slirp4netns", "slirp4netns")] {
        if !has_program(name)
            && let Err(error) = install(name, &[package])
        {
            say(&format!("sandboxes cannot be confined: {error:#}"));
        }
    }
    // One that is too old for the agent server is enough: the service downloads a newer one with it.
    let has_python = has_program("uv") || has_python_with_venv();
    let missing = "a Python that makes virtual environments";
    if !has_python && let Err(error) = install(missing, &["python3-venv"]) {
        say(&format!("the agent server cannot be installed: {error:#}"));
    }
    // udev gives it this mode; a machine without udev has a private one.
    let tun = Path::new("/dev/net/tun");
    let is_private = fs::metadata(tun).is_ok_and(|meta| meta.mode() & 0o006 != 0o006);
    if is_root() && is_private && run(program("chmod").args(["0666", "/dev/net/tun"])).is_err() {
        say("cannot change the mode of /dev/net/tun: sandboxes have no network");
    }
}

fn has_python_with_venv() -> bool {
    let found = program("python3")
        .args(["-c", "import venv, ensurepip"])
        .output();
    found.is_ok_and(|output| output.status.success())
}

/// Names of a headless browser (for the suite of the web console).
const BROWSERS: [&str; 4] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
];

/// Installs the browser for the web console's suite. Ubuntu's is a snap, which cannot see temporary directories.
pub(crate) fn browser() -> anyhow::Result<()> {
    if BROWSERS.iter().any(|name| has_program(name)) {
        return Ok(());
    }
    install("a browser (chromium)", &["chromium"]).context(
        "the suite of the web console needs Chromium or Chrome. Ubuntu's Chromium is a snap, which the suite cannot use: \
         install Google Chrome's .deb there first",
    )
}

/// Installs programs of single suites: a Postgres server (`store-sql`), Docker Compose and `sqlite3` (packaging), nginx and
/// `HAProxy` (proxies), and a static `busybox` for an empty image.
pub(crate) fn tools() -> anyhow::Result<()> {
    process_sandboxes();
    if !has_postgres() {
        install("a Postgres server (initdb)", &["postgresql"])?;
        stop("postgresql");
    }
    let programs = [
        ("docker-compose", "docker-compose", None),
        ("ip", "iproute2", None),
        ("nginx", "nginx-light", Some("nginx")),
        ("systemd-analyze", "systemd", None),
        ("sqlite3", "sqlite3", None),
        ("haproxy", "haproxy", Some("haproxy")),
    ];
    for (name, package, service) in programs {
        if !has_program(name) && !Path::new("/usr/sbin").join(name).exists() {
            install(name, &[package])?;
            service.into_iter().for_each(stop);
        }
    }
    if !has_static_busybox() {
        install("a busybox that runs in an empty image", &["busybox-static"])?;
    }
    Ok(())
}

/// Two packages of Debian have a program of this name.
fn has_static_busybox() -> bool {
    let linked = program("sh")
        .args(["-c", "ldd \"$(command -v busybox)\""])
        .output();
    has_program("busybox") && linked.is_ok_and(|linked| !linked.status.success())
}

/// Debian keeps the server's programs outside of `PATH`.
fn has_postgres() -> bool {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    has_program("initdb")
        || versions
            .flatten()
            .any(|version| version.path().join("bin/initdb").exists())
}
