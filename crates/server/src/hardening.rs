//! Hides the secrets of the service process from other processes of the machine.
//!
//! `/proc/<pid>/environ` shows the memory in which the kernel put the variables at `exec`; removing a variable later does not
//! change it. The service therefore executes itself again without variables that may be secret, and passes these in a memory
//! file. The process id stays the same, so a service manager does not notice.
//!
//! ```text
//!   start ── has secret variables?  ── yes ──► memory file = those, stdin = that file, exec ──► start
//!              │ no                                                                              │ HANDOVER_VARIABLE is set
//!              ▼                                                                                 ▼
//!            serve ◄──────────────────────────────────────────── read the file, empty it ────────┘
//! ```

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use anyhow::Context as _;
use rustix::fs::{MemfdFlags, Mode, ftruncate, memfd_create};
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit, umask,
};

use settings::EnvVariables;

/// Marks a process whose standard input holds the variables. Such a process does not re-execute itself, so there is no
/// loop.
const HANDOVER_VARIABLE: &str = "AGENT_WORKSPACE_VARIABLES_ON_STDIN";
/// Prefixes of variables that may hold a secret and that only the service reads: the configuration, and package indexes
/// (URLs with passwords). Libraries read `HTTPS_PROXY` or `PGPASSWORD` themselves, so those stay.
const CONCEALED_PREFIXES: [&str; 3] = ["WORKSPACE_", "PIP_", "UV_"];

pub(crate) fn make_files_private() {
    umask(Mode::RWXG | Mode::RWXO);
}

/// Keeps other processes of the same user from reading this process's memory, forbids core dumps, and removes variables
/// that may be secret from `/proc/<pid>/environ`. Returns all variables. Call it before threads exist.
pub(crate) fn close_process(
    variables: Vec<(OsString, OsString)>,
) -> anyhow::Result<Vec<(OsString, OsString)>> {
    let is_handed_over = variables.iter().any(|(name, _)| name == HANDOVER_VARIABLE);
    if !is_handed_over && variables.iter().any(|(name, _)| is_concealed(name)) {
        let error = reexec(&variables);
        return Err(error)
            .context("cannot re-execute the service without secrets in the environment");
    }
    http_api::open_io_counters();
    forbid_dumps().context("cannot forbid core dumps and access to the process's memory")?;
    if !is_handed_over {
        return Ok(variables);
    }
    let received = receive().context(
        "cannot read from standard input the environment that this process passes to itself on its re-execution",
    )?;
    Ok(variables.into_iter().chain(received).collect())
}

/// Executing a program makes a process dumpable again, so this comes after [`reexec`]. Child processes are not affected.
fn forbid_dumps() -> rustix::io::Result<()> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let zero = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    setrlimit(Resource::Core, zero)
}

fn is_concealed(name: &OsString) -> bool {
    let name = name.as_bytes();
    CONCEALED_PREFIXES
        .iter()
        .any(|prefix| name.starts_with(prefix.as_bytes()))
}

/// Executes this program again in the same process. Returns only on failure.
fn reexec(variables: &EnvVariables) -> io::Error {
    let (concealed, shown): (Vec<_>, Vec<_>) = variables
        .iter()
        .cloned()
        .partition(|(name, _)| is_concealed(name));
    let file = match memory_file(&concealed) {
        Ok(file) => file,
        Err(error) => return error,
    };
    // Not `/proc/self/exe`: process lists would show the name `exe`.
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return error,
    };
    let mut arguments = std::env::args_os();
    let mut command = Command::new(program);
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    command
        .args(arguments)
        .env_clear()
        .envs(shown)
        .env(HANDOVER_VARIABLE, "1")
        .stdin(Stdio::from(file))
        .exec()
}

/// Writes pairs `NAME=VALUE`, each followed by NUL, as in `/proc/<pid>/environ`.
fn memory_file(variables: &EnvVariables) -> io::Result<File> {
    let mut file = File::from(memfd_create("variables", MemfdFlags::CLOEXEC)?);
    for (name, value) in variables {
        let pair = [name.as_bytes(), b"=", value.as_bytes(), b"\0"].concat();
        file.write_all(&pair)?;
    }
    file.rewind()?;
    Ok(file)
}

/// Reads the variables that [`reexec`] passed, and truncates the file, because `/proc/<pid>/fd/0` shows it.
fn receive() -> io::Result<Vec<(OsString, OsString)>> {
    let mut stdin = io::stdin().lock();
    let mut bytes = Vec::new();
    stdin.read_to_end(&mut bytes)?;
    ftruncate(&stdin, 0)?;
    Ok(parse(&bytes))
}

fn parse(bytes: &[u8]) -> Vec<(OsString, OsString)> {
    let pairs = bytes.split(|byte| *byte == 0);
    let parsed = pairs.filter_map(|pair| {
        let equals = pair.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (&pair[..equals], &pair[equals + 1..]);
        let [name, value] = [name, value].map(|bytes| OsString::from_vec(bytes.to_vec()));
        Some((name, value))
    });
    parsed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_file_keeps_all_variables() {
        let variables: Vec<(OsString, OsString)> = [
            (&b"WORKSPACE_A"[..], &b"x=y\nz"[..]),
            (b"WORKSPACE_EMPTY", b""),
            (b"PIP_INDEX_URL", b"\xff"),
        ]
        .map(|(name, value)| [name, value].map(|bytes| OsString::from_vec(bytes.to_vec())))
        .map(|[name, value]| (name, value))
        .into();
        let mut bytes = Vec::new();
        let mut file = memory_file(&variables).unwrap();
        file.read_to_end(&mut bytes).unwrap();
        assert_eq!(parse(&bytes), variables);
    }

    #[test]
    fn the_process_is_not_dumpable() {
        forbid_dumps().unwrap();
        let behavior = rustix::process::dumpable_behavior().unwrap();
        assert_eq!(behavior, DumpableBehavior::NotDumpable);
        assert_eq!(rustix::process::getrlimit(Resource::Core).maximum, Some(0));
    }

    #[test]
    fn variables_that_libraries_read_stay_in_the_environment() {
        for (name, expected) in [
            ("WORKSPACE_SECRETS__MASTER_KEY", true),
            ("WORKSPACE_LOG__LEVEL", true),
            ("PIP_INDEX_URL", true),
            ("HTTPS_PROXY", false),
            ("PGPASSWORD", false),
            ("NOTIFY_SOCKET", false),
            (HANDOVER_VARIABLE, false),
        ] {
            assert_eq!(is_concealed(&name.into()), expected, "{name}");
        }
    }
}
