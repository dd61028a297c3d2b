//! The `agent-workspace` binary: command line, configuration and composition root.
//!
//! Knows: every crate. Must never know: what a request means, SQL, or a sandbox's protocol. Only `compose` names adapters.

mod cli;
mod commands;
mod compose;
mod config;
#[cfg(debug_assertions)]
mod crash_points;
mod data_dir;
mod disk_space;
mod hardening;
mod lifecycle;
mod listeners;
mod logging;
mod remote;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser as _;

use crate::cli::{Cli, CliCommand, Command};
use crate::commands::{doctor, healthcheck, keys, secrets, users};
use crate::compose::{EnvVariables, Telemetry};
use crate::config::{Config, ConfigError};
use crate::data_dir::DataDir;
use crate::lifecycle::serve;
use crate::logging::LogLevelHandle;

/// The system's allocator keeps most memory of a burst of large responses, because its arenas end at their highest
/// allocation. jemalloc returns pages in a background thread, a second after their last use (`.cargo/config.toml`).
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// `EX_USAGE` of sysexits.h: the configuration is invalid, and a restart will not help.
const BAD_CONFIGURATION: u8 = 64;

/// Threads of background work and the store's futures; requests have their own workers.
const RUNTIME_THREADS: usize = 2;
/// Threads of blocking work. The store's connections limit it further.
const MAX_BLOCKING_THREADS: usize = 64;

/// Time for blocking work after everything else has ended.
const RUNTIME_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);
/// Time to export the last traces.
const TRACE_EXPORT_TIMEOUT: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    if let Some(error) = compose::run_helper(std::env::args_os()) {
        to_stderr(&format!("cannot start the sandbox: {error}"));
        return ExitCode::FAILURE;
    }
    let cli = Cli::parse();
    let variables: Vec<(OsString, OsString)> = std::env::vars_os().collect();
    let command = match cli.command {
        Some(CliCommand::Remote(command)) => {
            return finish(remote::run(command, cli.config.as_deref(), &variables));
        }
        Some(CliCommand::Local(Command::Openapi)) => return finish(print_openapi()),
        Some(CliCommand::Local(command)) => command,
        None => Command::Serve,
    };
    hardening::make_files_private();
    let variables = match command {
        Command::Serve => match hardening::close_process(variables) {
            Ok(variables) => variables,
            Err(error) => return finish(Err(error)),
        },
        _ => variables,
    };
    let config = match Config::load(cli.config.as_deref(), &variables) {
        Ok(config) => config,
        Err(error) => return finish(Err(error.into())),
    };
    let telemetry = match open_telemetry(&command, &config) {
        Ok(telemetry) => telemetry,
        Err(error) => return finish(Err(error)),
    };
    let level = logging::start(&config.log, telemetry.as_ref());
    let flush = logging::FlushOnDrop;
    #[cfg(debug_assertions)]
    crash_points::install(&variables);
    let result = run(command, &config, &variables, &level);
    if telemetry.is_some_and(|telemetry| !telemetry.finish(TRACE_EXPORT_TIMEOUT)) {
        tracing::warn!(
            "the last traces were not exported within 2 s: check the collector at telemetry.otlp_endpoint"
        );
    }
    let code = finish(result);
    drop(flush);
    end(code)
}

/// Ends the process without the exit handlers of libraries. A thread of a connection pool may still connect to Postgres,
/// and crashes when OpenSSL's handler frees what it uses.
fn end(code: ExitCode) -> ! {
    let status = if code == ExitCode::SUCCESS {
        0
    } else if code == ExitCode::from(BAD_CONFIGURATION) {
        i32::from(BAD_CONFIGURATION)
    } else {
        1
    };
    let _ = std::io::stdout().flush();
    signal_hook::low_level::exit(status)
}

/// Only `serve` exports traces.
fn open_telemetry(command: &Command, config: &Config) -> anyhow::Result<Option<Telemetry>> {
    match command {
        Command::Serve => compose::open_telemetry(config),
        _ => Ok(None),
    }
}

fn finish(result: anyhow::Result<ExitCode>) -> ExitCode {
    result.unwrap_or_else(|error| {
        to_stderr(&format!("agent-workspace: {error:#}"));
        if error.is::<ConfigError>() {
            return BAD_CONFIGURATION.into();
        }
        ExitCode::FAILURE
    })
}

/// Prints the document without reading the configuration.
fn print_openapi() -> anyhow::Result<ExitCode> {
    let document = http_api::openapi_document();
    to_stdout(&format!("{}\n", serde_json::to_string_pretty(&document)?))?;
    Ok(ExitCode::SUCCESS)
}

fn run(
    command: Command,
    config: &Config,
    variables: &EnvVariables,
    level: &LogLevelHandle,
) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(RUNTIME_THREADS)
        .max_blocking_threads(MAX_BLOCKING_THREADS)
        .thread_name("background")
        .enable_all()
        .build()
        .context("cannot start the runtime's threads: raise the limit of processes (ulimit -u, TasksMax of systemd)")?;
    let result = runtime.block_on(async {
        match command {
            Command::Serve => serve::serve(config, variables, level).await?,
            Command::Migrate => {
                DataDir::open(&config.data_dir)?;
                compose::open_store(config).await?;
                to_stdout("the database is up to date\n")?;
            }
            Command::Doctor(options) => {
                let report = doctor::examine(config, variables).await;
                to_stdout(&report.render(options.json))?;
                if !report.is_healthy() {
                    return Ok(ExitCode::FAILURE);
                }
            }
            Command::Healthcheck => healthcheck::check(&config.http).await?,
            Command::Prepare => {
                DataDir::open(&config.data_dir)?;
                let command = compose::prepare(config, variables).await?;
                let words = command.iter().map(|word| {
                    word.to_str()
                        .context("the agent server's command is not valid UTF-8")
                });
                let words: Vec<&str> = words.collect::<anyhow::Result<_>>()?;
                to_stdout(&format!("{}\n", shlex::try_join(words)?))?;
            }
            Command::Keys(command) => to_stdout(&manage_keys(command, config).await?)?,
            Command::Users(command) => {
                DataDir::open(&config.data_dir)?;
                let store = compose::open_store(config).await?;
                let (local, ids) = (compose::local_user(config), compose::ids());
                let clock = compose::clock();
                let output = users::run(
                    command,
                    local.as_ref(),
                    &store,
                    ids.as_ref(),
                    clock.as_ref(),
                );
                to_stdout(&output.await?)?;
            }
            Command::Secrets(command) => return rotate(command, config).await,
            Command::Openapi => return print_openapi(),
            Command::Config => to_stdout(config.as_toml())?,
        }
        Ok(ExitCode::SUCCESS)
    });
    // Blocking work cannot be cancelled; a hanging disk must not keep the process alive.
    runtime.shutdown_timeout(RUNTIME_SHUTDOWN_TIMEOUT);
    result
}

async fn manage_keys(command: cli::Keys, config: &Config) -> anyhow::Result<String> {
    let data_dir = DataDir::open(&config.data_dir)?;
    let single_user = has_single_user(config, &data_dir)?;
    let store = compose::open_store(config).await?;
    let (ids, clock) = (compose::ids(), compose::clock());
    keys::run(command, single_user, &store, ids.as_ref(), clock.as_ref()).await
}

/// Whether nothing isolates the sandboxes of different users. Before the first start the backend is unknown, unless it is
/// configured; `serve` refuses in that case.
fn has_single_user(config: &Config, data_dir: &DataDir) -> anyhow::Result<bool> {
    let name = match config.sandbox.backend {
        Some(name) => Some(name.to_owned()),
        None => data_dir.backend()?,
    };
    let backend = name.and_then(|name| config.backend(&name));
    Ok(backend.is_some_and(|backend| !backend.features().allows_multiple_users))
}

/// The exit code reports whether all secrets could be opened.
async fn rotate(command: cli::Secrets, config: &Config) -> anyhow::Result<ExitCode> {
    let data_dir = DataDir::open(&config.data_dir)?;
    let store = compose::open_store(config).await?;
    let (text, is_complete) = secrets::run(command, config, &data_dir, &store).await?;
    to_stdout(&text)?;
    Ok(if is_complete {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Prints the output of a command.
fn to_stdout(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .context("cannot write to standard output")
}

/// Prints a message for the person at the terminal. Errors are ignored: there is no other place to report them.
fn to_stderr(text: &str) {
    logging::flush();
    let _ = writeln!(std::io::stderr(), "{text}");
}
