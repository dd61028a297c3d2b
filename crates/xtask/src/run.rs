//! Runs programs and prints messages.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, bail};

/// Root of the repository.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

/// Prints the next step on standard error.
pub(crate) fn say(what: &str) {
    // A closed standard error is ignored.
    let _ = writeln!(std::io::stderr(), "==> {what}");
}

/// Prints a result on standard output.
pub(crate) fn print(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// Whether [`cargo`] checks lints.
static LINTS: AtomicBool = AtomicBool::new(false);

/// Makes clippy the compiler of the workspace's crates from now on, so that one build makes the programs and checks lints.
/// They are errors. (Clippy compiles as rustc does; `cargo clippy` passes the same variables to `cargo check`.)
pub(crate) fn lint_builds() {
    LINTS.store(true, Ordering::Relaxed);
}

/// What `cargo run` says about this package. Cargo takes it for a change of all packages whose build scripts read such a
/// variable, and would compile `ring`, and what uses it, anew after each command without `xtask`.
const OF_THIS_PACKAGE: [&str; 6] = [
    "CARGO_MANIFEST_DIR",
    "CARGO_PKG_NAME",
    "CARGO_PKG_VERSION_MAJOR",
    "CARGO_PKG_VERSION_MINOR",
    "CARGO_PKG_VERSION_PATCH",
    "CARGO_PKG_VERSION_PRE",
];

/// Cargo in the workspace of the benchmarks.
pub(crate) fn bench_cargo() -> Command {
    let mut cargo = plain_cargo();
    cargo.current_dir(root().join("bench"));
    cargo
}

/// Cargo in the repository, without lints.
pub(crate) fn plain_cargo() -> Command {
    let mut cargo = program("cargo");
    for name in OF_THIS_PACKAGE {
        cargo.env_remove(name);
    }
    cargo
}

/// Cargo, in the repository.
pub(crate) fn cargo() -> Command {
    let mut cargo = plain_cargo();
    if LINTS.load(Ordering::Relaxed) {
        cargo.env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver");
        cargo.env("CLIPPY_ARGS", "-Dwarnings__CLIPPY_HACKERY__");
    }
    cargo
}

/// A program, in the repository.
pub(crate) fn program(name: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(name);
    command.current_dir(root());
    command
}

/// Runs a command, which must succeed.
pub(crate) fn run(command: &mut Command) -> anyhow::Result<()> {
    let status = command
        .status()
        .with_context(|| format!("cannot run {command:?}"))?;
    if !status.success() {
        bail!("{command:?} failed: {status}");
    }
    Ok(())
}

/// The output of a program to watch; the other one is passed through.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WatchedStream {
    Standard,
    Error,
}

/// Runs a program, shows its output, passes each line of one output to `on_line`, and returns whether it succeeded.
pub(crate) fn watch(
    command: &mut Command,
    output: WatchedStream,
    mut on_line: impl FnMut(&str),
) -> anyhow::Result<bool> {
    match output {
        WatchedStream::Standard => command.stdout(Stdio::piped()),
        WatchedStream::Error => command.stderr(Stdio::piped()),
    };
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot run {command:?}"))?;
    let pipe: Box<dyn std::io::Read> = match (child.stdout.take(), child.stderr.take()) {
        (Some(pipe), _) => Box::new(pipe),
        (None, Some(pipe)) => Box::new(pipe),
        (None, None) => bail!("{command:?} has no output"),
    };
    for line in BufReader::new(pipe).split(b'\n') {
        let line = line.context("cannot read the output")?;
        let line = String::from_utf8_lossy(&line);
        match output {
            WatchedStream::Standard => print(&line),
            WatchedStream::Error => {
                let _ = writeln!(std::io::stderr(), "{line}");
            }
        }
        on_line(&line);
    }
    Ok(child.wait()?.success())
}

/// The standard output of a program, which must succeed.
pub(crate) fn output(command: &mut Command) -> anyhow::Result<String> {
    command.stderr(Stdio::inherit());
    let output = command
        .output()
        .with_context(|| format!("cannot run {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", output.status);
    }
    String::from_utf8(output.stdout).context("the output is not UTF-8")
}

/// The programs that suites start.
#[derive(Debug, Clone)]
pub(crate) struct Programs {
    pub(crate) service: PathBuf,
    /// The stub agent server.
    pub(crate) stub: PathBuf,
}

/// Builds all programs, once, and returns their paths. The whole workspace and `--examples` (there are none) select the
/// same features of dependencies as the test suites, so that nothing compiles twice.
pub(crate) fn programs() -> anyhow::Result<Programs> {
    static BUILT: Mutex<Option<Programs>> = Mutex::new(None);
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(programs) = &*built {
        return Ok(programs.clone());
    }
    let arguments = [
        "build",
        "--workspace",
        "--bins",
        "--examples",
        "--message-format",
        "json-render-diagnostics",
    ];
    let programs = find_programs(&output(cargo().args(arguments))?)?;
    Ok(built.insert(programs).clone())
}

/// Reads the messages of a build.
fn find_programs(messages: &str) -> anyhow::Result<Programs> {
    let find = |name: &str| {
        messages
            .lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
            .filter(|message| message["target"]["name"] == name)
            .filter_map(|message| Some(PathBuf::from(message["executable"].as_str()?)))
            .next_back()
            .with_context(|| format!("cargo reported no path of the program {name}"))
    };
    Ok(Programs {
        service: find("agent-workspace")?,
        stub: find("stub-agent-server")?,
    })
}
