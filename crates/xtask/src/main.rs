//! Developer tasks: `cargo xtask ci` is what CI runs, `cargo xtask test` runs the test suites, `cargo xtask nightly`
//! the tests that take hours.
//!
//! Knows: cargo, and the service as a binary. Must never know: the crates of the workspace.

mod bench;
mod charts;
mod deny;
mod docs;
mod install;
mod micro_benchmarks;
mod models;
mod openapi;
mod package;
mod run;
mod suites;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::install::{debian, schemathesis};
use crate::run::{cargo, say};
use crate::suites::{attack, ci, escape, flaky, kubernetes, nightly, soak};

/// Developer tasks of agent-workspace.
#[derive(Debug, Parser)]
struct XtaskCli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Run everything that must pass before a change lands: format, lints, dependencies, documentation, the `OpenAPI`
    /// document, the test suites.
    Ci,
    /// Run what takes too long for each change: all scenarios on all releases of the agent server, every crash point,
    /// long hostile runs, short benchmarks. Prints a summary for `bench/results`.
    Nightly(nightly::NightlyArgs),
    /// Install the libraries that the service links and what process sandboxes need, if they are missing, and run the service
    /// (`cargo run --release`).
    Run {
        /// Arguments of the service.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Build a Debian package and an archive of the service in `target/package`. `cargo-deb` and `cargo-cyclonedx` are
    /// installed where they are missing.
    Package(package::PackageArgs),
    /// Run the test suites of `ci`. First install what they need: agent servers below `target/acceptance`, images, and
    /// an engine if none runs.
    Test {
        /// Leave out the suites that need something from a package index: real agent servers, schemathesis, the web application.
        #[arg(long)]
        no_agent_servers: bool,
        /// Run only tests that need no engine, database server, browser or agent server. They take minutes.
        #[arg(long, conflicts_with = "no_agent_servers")]
        inner: bool,
        /// Arguments of the test runner, e.g. a part of a test's name.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Test the Kubernetes backend on a real cluster: conformance, the agent server of an image, pauses, deleted pods, drained
    /// nodes, restarts. The tests of `ci` do the same on a simulated one.
    TestKubernetes(kubernetes::KubernetesArgs),
    /// Run tests repeatedly, also beside busy loops, and print which failed how often.
    Flaky(flaky::FlakyArgs),
    /// Install everything that `test` needs, to run single suites with `cargo nextest run` or `cargo test`.
    Prepare {
        /// Leave out what only the suites with something from a package index need.
        #[arg(long)]
        no_agent_servers: bool,
    },
    /// Install the tool that the suite `schemathesis` runs, as `test` does: to run that suite alone.
    Schemathesis,
    /// Run the long form of one suite; without a choice, hostile requests.
    Soak(soak::SoakArgs),
    /// Attack the service as three hostile users beside three normal ones, and kill it several times. Prints the
    /// waiting times of the normal users with and without attackers, and fails when a bound is broken
    /// (docs/explanation/attacks.md). The test suites have a short form.
    Attack(attack::AttackArgs),
    /// Try to get out of a process sandbox, with commands inside. Prints a table, and fails when an attempt gets through
    /// (docs/explanation/attacks.md).
    Escape(escape::EscapeArgs),
    /// Measure the service, over HTTP, in a release build, and print a table. Without a choice: the service alone.
    Bench(bench::BenchArgs),
    /// Write the generated pages of `docs/`, check all links and build the book (`target/book`); `mdbook` is installed
    /// where it is missing. With `--check`: no page is written, and no book is built.
    Docs(docs::DocsArgs),
    /// Write the manifests in `deploy/kubernetes` from the Helm chart. With `--check`: lint the chart, render it with several
    /// values, and validate the result; no file in `deploy` is written.
    Charts(charts::ChartsArgs),
    /// Check bans, licenses and sources of dependencies (`deny.toml`); `cargo-deny` is installed where it is missing.
    Deny,
    /// Write `config/models.txt` and `config/acp-providers.json` from the environment of the pinned agent server.
    Models,
    /// Write `config/openapi.json` from the code.
    Openapi {
        /// Fail if the file is out of date, instead of writing it.
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
        Task::Ci => ci::ci(),
        Task::Nightly(arguments) => nightly::nightly(arguments),
        Task::Package(arguments) => package::build(&arguments),
        Task::Run { args } => serve(&args),
        Task::Test {
            inner: true, args, ..
        } => suites::test_inner(&args),
        Task::Test {
            no_agent_servers,
            args,
            ..
        } => {
            let extent = if no_agent_servers {
                suites::Extent::WithoutAgentServers
            } else {
                suites::Extent::Ci
            };
            suites::test(extent, &args)
        }
        Task::TestKubernetes(arguments) => kubernetes::test(&arguments),
        Task::Flaky(arguments) => flaky::flaky(&arguments),
        Task::Prepare { no_agent_servers } => suites::prepare(!no_agent_servers),
        Task::Schemathesis => schemathesis::prepare(),
        Task::Soak(arguments) => soak::soak(arguments),
        Task::Attack(arguments) => attack::attack(&arguments),
        Task::Escape(arguments) => escape::escape(&arguments),
        Task::Bench(arguments) => bench::bench(&arguments),
        Task::Docs(arguments) => docs::docs(&arguments),
        Task::Charts(arguments) => charts::charts(&arguments),
        Task::Deny => deny::check(),
        Task::Models => models::write(),
        Task::Openapi { check } => openapi::write(check),
    }
}

fn serve(args: &[String]) -> anyhow::Result<()> {
    debian::libraries()?;
    debian::process_sandboxes();
    run::run(cargo().args(["run", "--release", "--"]).args(args))
}
