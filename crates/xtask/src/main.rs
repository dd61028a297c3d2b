//! Developer tasks: `cargo xtask ci` is what CI runs, `cargo xtask test` all test suites.
//!
//! Knows: cargo, and the service as a binary. Must never know: our crates.

mod access;
mod agent_servers;
mod attack;
mod bench;
mod config_schema;
mod debian;
mod deny;
mod docs;
mod docs_generated;
mod docs_links;
mod docs_metrics;
mod docs_service;
mod docs_team_server;
mod docs_tutorials;
mod engine;
mod images;
mod micro;
mod models;
mod openapi;
mod run;
mod schemathesis;
mod soak;
mod suites;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::run::{cargo, say};

/// Developer tasks of agent-workspace.
#[derive(Debug, Parser)]
struct XtaskCli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Everything that CI checks: format, lints, documentation, all tests, the `OpenAPI` document.
    Ci,
    /// Runs the service (`cargo run --release`) after installing the libraries that it is linked with, where they are
    /// missing.
    Run {
        /// Handed on to the service.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// All test suites, with what they need: agent servers are installed below `target/acceptance`, an engine is started
    /// where none runs, images are made.
    Test {
        /// Leave out the suites that need programs from the Python package index: real agent servers, schemathesis.
        #[arg(long)]
        no_agent_servers: bool,
        /// Handed on to the test runner, e.g. a part of a test's name.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Get everything ready that `test` needs, to run single suites with `cargo nextest run` or `cargo test`.
    Prepare {
        /// As for `test`.
        #[arg(long)]
        no_agent_servers: bool,
    },
    /// Install the tool that the suite `schemathesis` runs, as `test` does: to run that suite alone.
    Schemathesis,
    /// Send hostile requests for a long time; the tests send 10,000. With `--sandboxes`, instead, users start, pause, resume
    /// and delete containers while the service is killed; with `--crash-points`, it is killed at every point.
    Soak {
        /// How many; without a number and without minutes, 100,000.
        #[arg(long, conflicts_with = "sandboxes")]
        requests: Option<u64>,
        /// How long, at most.
        #[arg(long, conflicts_with = "sandboxes")]
        minutes: Option<u64>,
        /// How many containers are made in all, at most some 40 at once.
        #[arg(long)]
        sandboxes: Option<u64>,
        /// How often the service is killed meanwhile.
        #[arg(long, default_value_t = 20, requires = "sandboxes")]
        kills: u64,
        /// For so long, two services on one Postgres, one of which is killed every five seconds.
        #[arg(long, conflicts_with_all = ["sandboxes", "requests", "minutes"])]
        replicas_minutes: Option<u64>,
        /// Kill the service at every commit and every call that changes something, with processes and with containers, on
        /// `SQLite` and on Postgres; the tests do so with a part of them.
        #[arg(long, conflicts_with_all = ["sandboxes", "requests", "minutes", "replicas_minutes", "release"])]
        crash_points: bool,
        /// Slow clients: 10,000 idle connections, and deadlines that take minutes; the tests have fewer.
        #[arg(long, conflicts_with_all = ["sandboxes", "requests", "minutes", "replicas_minutes", "crash_points"])]
        slow: bool,
        /// One file of so many MiB, there and back through nginx and `HAProxy`; the tests take 1,024.
        #[arg(long, conflicts_with_all = ["sandboxes", "requests", "minutes", "replicas_minutes", "crash_points", "slow"])]
        transfer_mib: Option<u64>,
        /// Which requests, or in which order.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Against a release build.
        #[arg(long)]
        release: bool,
    },
    /// Attack the service as three hostile users beside three normal ones, while it is killed now and then. Prints what the
    /// normal users wait with and without attackers, and fails when a bound is broken (docs/explanation/attacks.md). The tests have a
    /// short form.
    Attack(attack::AttackArgs),
    /// Measure the service, over HTTP, in a release build, and print a table. Without a choice: the service alone.
    Bench(bench::BenchArgs),
    /// Write the generated pages of `docs/`, check all links and build the book (`target/book`); `mdbook` is installed where it
    /// is missing.
    Docs(docs::DocsArgs),
    /// Check bans, licenses and sources of dependencies (`deny.toml`); `cargo-deny` is installed where it is missing.
    Deny,
    /// Write `config/models.txt` and `config/acp-providers.json` from what the pinned agent server's environment knows.
    Models,
    /// Write `config/openapi.json` from the code.
    Openapi {
        /// Only say whether it is up to date.
        #[arg(long)]
        check: bool,
    },
}

fn main() -> ExitCode {
    let Err(error) = carry_out(XtaskCli::parse().task) else {
        return ExitCode::SUCCESS;
    };
    say(&format!("failed: {error:#}"));
    ExitCode::FAILURE
}

fn carry_out(task: Task) -> anyhow::Result<()> {
    match task {
        Task::Ci => ci(),
        Task::Run { args } => serve(&args),
        Task::Test {
            no_agent_servers,
            args,
        } => suites::test(!no_agent_servers, &args),
        Task::Prepare { no_agent_servers } => suites::prepare(!no_agent_servers),
        Task::Schemathesis => schemathesis::prepare(),
        Task::Soak {
            crash_points: true,
            seed,
            ..
        } => soak::crash_points(seed),
        Task::Soak {
            slow: true,
            release,
            ..
        } => soak::slow(release),
        Task::Soak {
            transfer_mib: Some(mib),
            release,
            ..
        } => soak::transfer(mib, release),
        Task::Soak {
            crash_points: false,
            slow: false,
            transfer_mib: None,
            requests,
            minutes,
            sandboxes: None,
            replicas_minutes: None,
            kills: _,
            seed,
            release,
        } => soak::hostile(requests, minutes, seed, release),
        Task::Soak {
            sandboxes: Some(sandboxes),
            kills,
            seed,
            release,
            ..
        } => soak::sandboxes(sandboxes, kills, seed, release),
        Task::Soak {
            replicas_minutes: Some(minutes),
            seed,
            release,
            ..
        } => soak::replicas(minutes, seed, release),
        Task::Attack(arguments) => attack::attack(&arguments),
        Task::Bench(arguments) => bench::bench(&arguments),
        Task::Docs(arguments) => docs::docs(&arguments),
        Task::Deny => deny::check(),
        Task::Models => models::write(),
        Task::Openapi { check } => openapi::write(check),
    }
}

fn serve(args: &[String]) -> anyhow::Result<()> {
    debian::libraries()?;
    run::run(cargo().args(["run", "--release", "--"]).args(args))
}

fn ci() -> anyhow::Result<()> {
    debian::libraries()?;
    say("lock file");
    let locked = ["metadata", "--locked", "--quiet", "--format-version", "1"];
    run::output(cargo().args(locked))?;
    say("format");
    run::run(cargo().args(["fmt", "--all", "--check"]))?;
    say("lints");
    let lint = [
        "clippy",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ];
    run::run(cargo().args(lint))?;
    say("documentation");
    let document = [
        "doc",
        "--workspace",
        "--no-deps",
        "--document-private-items",
    ];
    run::run(cargo().args(document).env("RUSTDOCFLAGS", "-D warnings"))?;
    say("dependencies");
    deny::check()?;
    say("OpenAPI document");
    openapi::write(true)?;
    say("book");
    docs::docs(&docs::DocsArgs::CI)?;
    suites::test(true, &[])
}
