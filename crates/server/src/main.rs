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
mod password_link;
mod remote;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser as _;

use crate::cli::{Cli, CliCommand, Command, Web};
use crate::commands::{doctor, healthcheck, hosts, keys, manual, secrets, users};
use crate::config::{Config, ConfigError};
use crate::data_dir::DataDir;
use crate::lifecycle::serve;
use crate::logging::LogLevelHandle;
use settings::EnvVariables;

/// The system's allocator keeps most memory of a burst of large responses, because its arenas end at their highest
/// allocation. jemalloc returns pages in a background thread, a second after their last use (`.cargo/config.toml`).
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const SUCCESS: u8 = 0;
const FAILURE: u8 = 1;
/// `EX_USAGE` of sysexits.h: the configuration is invalid, and a restart will not help.
const BAD_CONFIGURATION: u8 = 64;

/// Threads of background work and the store's futures; requests have their own workers.
const RUNTIME_THREADS: usize = 2;
/// Threads of blocking work. The store's connections limit it further.
const MAX_BLOCKING_THREADS: usize = 64;
/// Idle threads take turns, so with the usual 10 s a little steady work would keep every thread of a burst, and the half
/// megabyte that each of them holds.
const BLOCKING_THREAD_KEEP_ALIVE: Duration = Duration::from_millis(50);

/// Time for blocking work after everything else has ended.
const RUNTIME_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);
const TRACE_EXPORT_TIMEOUT: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    if let Some(error) = compose::run_helper(std::env::args_os()) {
        to_stderr(&format!("cannot start the sandbox: {error}"));
        return ExitCode::FAILURE;
    }
    let cli = Cli::parse();
    let variables: Vec<(OsString, OsString)> = std::env::vars_os().collect();
    let result = match cli.command {
        Some(CliCommand::Remote(command)) => {
            remote::run(command, cli.config.as_deref(), &variables).map(|()| SUCCESS)
        }
        Some(CliCommand::Local(Command::Openapi)) => print_openapi().map(|()| SUCCESS),
        Some(CliCommand::Local(Command::Manual { dir })) => manual::write(&dir).map(|()| SUCCESS),
        Some(CliCommand::Local(command)) => run_local(command, cli.config.as_deref(), variables),
        None => run_local(Command::Serve, cli.config.as_deref(), variables),
    };
    finish(result).into()
}

fn run_local(
    command: Command,
    file: Option<&Path>,
    mut variables: Vec<(OsString, OsString)>,
) -> anyhow::Result<u8> {
    hardening::make_files_private();
    if let Command::Serve = command {
        variables = hardening::close_process(variables)?;
    }
    let config = Config::load(compose::BACKENDS, file, &variables)?;
    // Only the service exports traces.
    let telemetry = match command {
        Command::Serve => compose::open_telemetry(&config)?,
        _ => None,
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
fn end(code: u8) -> ! {
    let _ = std::io::stdout().flush();
    signal_hook::low_level::exit(code.into())
}

fn finish(result: anyhow::Result<u8>) -> u8 {
    result.unwrap_or_else(|error| {
        to_stderr(&format!("agent-workspace: {error:#}"));
        if error.is::<ConfigError>() {
            return BAD_CONFIGURATION;
        }
        FAILURE
    })
}

fn print_openapi() -> anyhow::Result<()> {
    let document = http_api::openapi_document();
    to_stdout(&format!("{}\n", serde_json::to_string_pretty(&document)?))
}

fn run(
    command: Command,
    config: &Config,
    variables: &EnvVariables,
    level: &LogLevelHandle,
) -> anyhow::Result<u8> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(RUNTIME_THREADS)
        .max_blocking_threads(MAX_BLOCKING_THREADS)
        .thread_keep_alive(BLOCKING_THREAD_KEEP_ALIVE)
        .thread_name("background")
        .enable_all()
        .build()
        .context("cannot start the runtime's threads: raise the limit of processes (ulimit -u, TasksMax of systemd)")?;
    // When the system refuses a thread, tokio panics unless the pool has one already: this one.
    let (last_thread, end) = std::sync::mpsc::channel::<()>();
    runtime.spawn_blocking(move || end.recv());
    let result = runtime.block_on(async {
        match command {
            Command::Serve => Box::pin(serve::serve(config, variables, level)).await?,
            Command::Migrate => {
                commands::open(config).await?;
                to_stdout("the database is up to date\n")?;
            }
            Command::Doctor(options) => {
                let report = doctor::examine(config, variables).await;
                to_stdout(&report.render(options.json))?;
                if !report.is_healthy() {
                    return Ok(FAILURE);
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
            Command::Web(Web::Install(options)) => {
                DataDir::open(&config.data_dir)?;
                let dir = compose::install_web_app(config, options.registry, options.from).await?;
                to_stdout(&format!("{}\n", dir.display()))?;
            }
            Command::Keys(command) => to_stdout(&keys::run(command, config).await?)?,
            Command::Users(command) => to_stdout(&users::run(command, config).await?)?,
            Command::Hosts(command) => to_stdout(&hosts::run(command, config).await?)?,
            Command::Secrets(command) => {
                let (text, is_complete) = secrets::run(command, config).await?;
                to_stdout(&text)?;
                if !is_complete {
                    return Ok(FAILURE);
                }
            }
            Command::Openapi => print_openapi()?,
            Command::Manual { dir } => manual::write(&dir)?,
            Command::Config => to_stdout(config.as_toml())?,
        }
        Ok(SUCCESS)
    });
    drop(last_thread);
    // Blocking work cannot be cancelled; a hanging disk must not keep the process alive.
    runtime.shutdown_timeout(RUNTIME_SHUTDOWN_TIMEOUT);
    result
}

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
