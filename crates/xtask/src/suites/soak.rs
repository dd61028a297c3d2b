//! Long versions of short tests: hostile requests, and sandboxes of services that are killed repeatedly.

use crate::install::{debian, engine, images};
use crate::run::{cargo, programs, run, say};

/// The suite, its length and the build.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct SoakArgs {
    /// Number of hostile requests. Default: 100,000, or as many as `--minutes` allows. The tests send 10,000.
    #[arg(long, conflicts_with = "sandboxes")]
    requests: Option<u64>,
    /// Maximum minutes of hostile requests.
    #[arg(long, conflicts_with = "sandboxes")]
    minutes: Option<u64>,
    /// Number of sandboxes that users start, pause, resume and delete while services are killed: as containers of one
    /// service, then as pods of a simulated cluster with three services on one Postgres. About 40 exist at once.
    #[arg(long)]
    sandboxes: Option<u64>,
    /// Number of kills of the service, with `--sandboxes`.
    #[arg(long, default_value_t = 20, requires = "sandboxes")]
    kills: u64,
    /// Minutes of two services on one Postgres, one of which is killed every five seconds.
    #[arg(long, conflicts_with_all = ["sandboxes", "requests", "minutes"])]
    replicas_minutes: Option<u64>,
    /// Kill the service at every commit and every call that changes something, with processes and with containers, on
    /// `SQLite` and on Postgres. The tests take a sample.
    #[arg(long, conflicts_with_all = ["sandboxes", "requests", "minutes", "replicas_minutes", "release"])]
    crash_points: bool,
    /// Slow clients: 10,000 idle connections, and deadlines of minutes. The tests have fewer and shorter ones.
    #[arg(long, conflicts_with_all = ["sandboxes", "requests", "minutes", "replicas_minutes", "crash_points"])]
    slow: bool,
    /// Size in MiB of a file that is sent there and back through nginx and `HAProxy`. The tests use 1,024.
    #[arg(long, conflicts_with_all = ["sandboxes", "requests", "minutes", "replicas_minutes", "crash_points", "slow"])]
    transfer_mib: Option<u64>,
    /// Selects the requests or their order.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Use a release build.
    #[arg(long)]
    release: bool,
}

/// Runs the chosen suite.
pub(crate) fn soak(args: SoakArgs) -> anyhow::Result<()> {
    let SoakArgs { seed, release, .. } = args;
    if args.crash_points {
        return crash_points(seed);
    }
    if args.slow {
        return slow(release);
    }
    if let Some(mib) = args.transfer_mib {
        return transfer(mib, release);
    }
    if let Some(count) = args.sandboxes {
        return sandboxes(count, args.kills, seed, release);
    }
    if let Some(minutes) = args.replicas_minutes {
        return replicas(minutes, seed, release);
    }
    hostile(args.requests, args.minutes, seed, release)
}

pub(crate) fn profile(release: bool) -> Option<&'static str> {
    release.then_some("--release")
}

/// Builds the service and its helper programs.
pub(crate) fn build(profile: Option<&str>) -> anyhow::Result<()> {
    debian::libraries()?;
    run(cargo()
        .args(["build", "-p", "server", "-p", "acceptance", "--bins"])
        .args(profile))
}

/// Starts, pauses, resumes and deletes containers and pods while services are killed. A failure prints the seed and the
/// sandbox's operations.
pub(crate) fn sandboxes(
    sandboxes: u64,
    kills: u64,
    seed: u64,
    release: bool,
) -> anyhow::Result<()> {
    say("the engine, a Postgres server, and the image of the stub agent server");
    debian::libraries()?;
    engine::prepare()?;
    debian::tools()?;
    images::stub(&programs()?.stub)?;
    let profile = profile(release);
    if release {
        build(profile)?;
    }
    say("sandboxes of services that are killed");
    run(cargo()
        .args(["test", "-p", "acceptance", "--test", "soak"])
        .args(profile)
        .args(["--", "--nocapture", "--test-threads=1"])
        .env("SOAK_SANDBOXES", sandboxes.to_string())
        .env("SOAK_KILLS", kills.to_string())
        .env("SOAK_SEED", seed.to_string()))
}

/// Two services on one Postgres: one is killed every five seconds, and Postgres restarts twice.
pub(crate) fn replicas(minutes: u64, seed: u64, release: bool) -> anyhow::Result<()> {
    say("the engine, a Postgres server, and the image of the stub agent server");
    debian::libraries()?;
    engine::prepare()?;
    debian::tools()?;
    images::stub(&programs()?.stub)?;
    let profile = profile(release);
    if release {
        build(profile)?;
    }
    say("two services that are killed");
    run(cargo()
        .args(["test", "-p", "acceptance", "--test", "replicas"])
        .args(profile)
        .args(["nothing_is_lost", "--", "--nocapture", "--test-threads=1"])
        .env("REPLICAS_SECONDS", (minutes * 60).to_string())
        .env("REPLICAS_SEED", seed.to_string()))
}

/// Kills the service at every crash point that it reaches, and again during recovery. Needs a debug build, because
/// others have no crash points.
pub(crate) fn crash_points(seed: u64) -> anyhow::Result<()> {
    say("the engine, a Postgres server, and the image of the stub agent server");
    debian::libraries()?;
    engine::prepare()?;
    debian::tools()?;
    images::stub(&programs()?.stub)?;
    say("a service that is killed at each point");
    run(cargo()
        .args(["test", "-p", "acceptance", "--test", "crash_points"])
        .args(["--", "--nocapture", "--test-threads=2"])
        .env("CRASH_POINTS_ALL", "1")
        .env("CRASH_POINTS_SEED", seed.to_string()))
}

/// Sends hostile requests; a failure prints the seed and the request.
pub(crate) fn hostile(
    requests: Option<u64>,
    minutes: Option<u64>,
    seed: u64,
    release: bool,
) -> anyhow::Result<()> {
    say("the service");
    let profile = profile(release);
    build(profile)?;
    say("hostile requests");
    let mut command = cargo();
    command
        .args(["test", "-p", "acceptance", "--test", "hostile"])
        .args(profile)
        .args(["--", "--nocapture"])
        .env("HOSTILE_SEED", seed.to_string());
    let requests = requests.or(if minutes.is_none() {
        Some(100_000)
    } else {
        None
    });
    for (name, value) in [("HOSTILE_REQUESTS", requests), ("HOSTILE_MINUTES", minutes)] {
        match value {
            Some(value) => command.env(name, value.to_string()),
            None => command.env_remove(name),
        };
    }
    run(&mut command)
}

/// Thousands of slow clients: 10,000 if `ulimit -Hn` is 20,000 or more, otherwise as many as the limit allows.
pub(crate) fn slow(release: bool) -> anyhow::Result<()> {
    say("the service");
    let profile = profile(release);
    build(profile)?;
    say("slow clients");
    run(cargo()
        .args(["test", "-p", "acceptance", "--test", "slow"])
        .args(profile)
        .args(["--", "--nocapture", "--test-threads=1"])
        .env("SLOW_FULL", "1"))
}

/// Transfers a large file through each proxy in both directions and watches the service's memory.
pub(crate) fn transfer(mib: u64, release: bool) -> anyhow::Result<()> {
    say("the service, and the proxies");
    debian::libraries()?;
    debian::tools()?;
    programs()?;
    let profile = profile(release);
    if release {
        build(profile)?;
    }
    say("a large file");
    run(cargo()
        .args(["test", "-p", "acceptance", "--test", "proxies"])
        .args(profile)
        .args(["files_of_any_size", "--", "--nocapture", "--test-threads=1"])
        .env("TRANSFER_MIB", mib.to_string()))
}
