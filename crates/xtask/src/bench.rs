//! Runs the benchmarks, a workspace of its own in `bench/`. They assert no time; their results go into `bench/results`.

use anyhow::ensure;

use crate::install::{debian, engine, images};
use crate::micro_benchmarks;
use crate::run::{bench_cargo, cargo, programs, run, say};

/// The benchmark and its options.
#[derive(Debug, clap::Args)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    which: BenchSelection,
    /// Use small numbers, to check that the benchmark works. Not with `--service` or `--docker`.
    #[arg(long, conflicts_with_all = ["service", "docker"])]
    short: bool,
    /// With `--load`, `--start` or `--scale`: another server to compare with, e.g. <http://127.0.0.1:3001>. `BENCH_KEY`
    /// holds its key. If it is an agent-workspace, it must not limit requests: `http.requests_per_second = 0`.
    #[arg(long)]
    url: Option<String>,
    /// With `--start`: number of measurements of each kind of start.
    #[arg(long, requires = "start", conflicts_with = "short")]
    rounds: Option<usize>,
}

/// The benchmark; at most one.
#[derive(Debug, clap::Args)]
#[group(multiple = false)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "switches of the command line, one of which is on"
)]
struct BenchSelection {
    /// Start, memory, single requests, starts of conversations, 100,000 conversations; with `BENCH_REFERENCE_PYTHON`,
    /// beside the reference.
    #[arg(long)]
    service: bool,
    /// Requests a second and latencies of central routes; with `BENCH_REFERENCE_PYTHON`, beside the reference.
    #[arg(long)]
    load: bool,
    /// Time until a conversation is ready, with the real agent server that `cargo xtask prepare` installs: warm, cold,
    /// in a burst.
    #[arg(long)]
    start: bool,
    /// Up to a million conversations and a thousand live sandboxes.
    #[arg(long)]
    scale: bool,
    /// Requests to agent servers through the service, compared with direct ones and with nginx.
    #[arg(long)]
    gateway: bool,
    /// Polls of a thousand signed-in browsers.
    #[arg(long)]
    browsers: bool,
    /// Model calls through the service, compared with direct ones and with a bare proxy.
    #[arg(long)]
    broker: bool,
    /// Ten replicas on a simulated cluster with ten thousand sandboxes.
    #[arg(long)]
    cluster: bool,
    /// On a Postgres server of its own, with a million conversations, beside bare handlers.
    #[arg(long)]
    postgres: bool,
    /// Single steps of requests, each compared with its necessary part; without the service.
    #[arg(long)]
    micro: bool,
    /// Sandboxes as containers of an engine of its own; as root.
    #[arg(long)]
    docker: bool,
}

impl BenchSelection {
    fn program(&self) -> &'static str {
        match self {
            Self { load: true, .. } => "bench-load",
            Self { start: true, .. } => "bench-start",
            Self { scale: true, .. } => "bench-scale",
            Self { gateway: true, .. } => "bench-gateway",
            Self { postgres: true, .. } => "bench-postgres",
            Self { docker: true, .. } => "bench-docker",
            Self { cluster: true, .. } => "bench-cluster",
            Self { broker: true, .. } => "bench-broker",
            Self { browsers: true, .. } => "bench-browsers",
            _ => "bench-service",
        }
    }
}

/// Builds for speed and runs one of the programs that measure.
pub(crate) fn bench(args: &BenchArgs) -> anyhow::Result<()> {
    let name = args.which.program();
    ensure!(
        args.url.is_none() || ["bench-load", "bench-start", "bench-scale"].contains(&name),
        "--url goes with --load, --start or --scale"
    );
    if args.which.micro {
        debian::libraries()?;
        return micro_benchmarks::micro_benchmarks(args.short);
    }
    ensure!(
        !args.short || name != "bench-service",
        "--short needs another benchmark: that of the service alone has no short form"
    );
    debian::libraries()?;
    if args.which.postgres || args.which.cluster {
        debian::tools()?;
    }
    if args.which.docker {
        say("the engine, and the image of the stub agent server");
        engine::prepare()?;
        images::stub(&programs()?.stub)?;
    }
    say("the service and the benchmark, as packages have it");
    run(cargo().args(["build", "--profile", "dist", "-p", "server"]))?;
    let stub = ["-p", "acceptance", "--bin", "stub-agent-server"];
    run(cargo().args(["build", "--profile", "dist"]).args(stub))?;
    say(name);
    let mut command = bench_cargo();
    command.args(["run", "--profile", "dist", "--quiet", "--bin", name, "--"]);
    if args.short {
        command.arg("--short");
    }
    if let Some(url) = &args.url {
        command.args(["--url", url]);
    }
    if let Some(rounds) = args.rounds {
        command.args(["--rounds", &rounds.to_string()]);
    }
    run(&mut command)
}

/// Runs each benchmark with small numbers, in a debug build.
pub(crate) fn check() -> anyhow::Result<()> {
    programs()?;
    run(bench_cargo().args(["test", "--no-fail-fast"]))
}
