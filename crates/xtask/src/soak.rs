//! What the tests do for a minute, for longer: hostile requests, and sandboxes of a service that is killed.

use std::process::Command;

use crate::run::{cargo, programs, run, say};
use crate::{debian, engine, images};

/// `cargo` for programs whose speed and size nobody asks for here: a release build of each of them, linked as one unit, would
/// take half an hour.
pub(crate) fn builder() -> Command {
    let mut cargo = cargo();
    cargo.env("CARGO_PROFILE_RELEASE_LTO", "off");
    cargo
}

pub(crate) fn profile(release: bool) -> Option<&'static str> {
    release.then_some("--release")
}

/// The service, and what tests start beside it.
pub(crate) fn build(profile: Option<&str>) -> anyhow::Result<()> {
    debian::libraries()?;
    run(builder()
        .args(["build", "-p", "server", "-p", "acceptance", "--bins"])
        .args(profile))
}

/// Starts, pauses, resumes and deletes so many containers while the service is killed so often. A failure tells the seed and
/// what was done to the sandbox.
pub(crate) fn sandboxes(
    sandboxes: u64,
    kills: u64,
    seed: u64,
    release: bool,
) -> anyhow::Result<()> {
    say("the engine, and the image of the stub agent server");
    debian::libraries()?;
    engine::prepare()?;
    images::stub(&programs()?.stub)?;
    let profile = profile(release);
    if release {
        build(profile)?;
    }
    say("sandboxes of a service that is killed");
    run(builder()
        .args(["test", "-p", "acceptance", "--test", "soak"])
        .args(profile)
        .args(["--", "--nocapture"])
        .env("SOAK_SANDBOXES", sandboxes.to_string())
        .env("SOAK_KILLS", kills.to_string())
        .env("SOAK_SEED", seed.to_string()))
}

/// Two services on one Postgres, one of which is killed every five seconds, while Postgres is restarted twice.
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
    run(builder()
        .args(["test", "-p", "acceptance", "--test", "replicas"])
        .args(profile)
        .args(["nothing_is_lost", "--", "--nocapture", "--test-threads=1"])
        .env("REPLICAS_SECONDS", (minutes * 60).to_string())
        .env("REPLICAS_SEED", seed.to_string()))
}

/// Kills the service at every point that it comes by, and again while it recovers. Takes a debug build: others have no such
/// points.
pub(crate) fn crash_points(seed: u64) -> anyhow::Result<()> {
    say("the engine, a Postgres server, and the image of the stub agent server");
    debian::libraries()?;
    engine::prepare()?;
    debian::tools()?;
    images::stub(&programs()?.stub)?;
    say("a service that is killed at each point");
    run(builder()
        .args(["test", "-p", "acceptance", "--test", "crash_points"])
        .args(["--", "--nocapture", "--test-threads=2"])
        .env("CRASH_POINTS_ALL", "1")
        .env("CRASH_POINTS_SEED", seed.to_string()))
}

/// Sends hostile requests; a failure tells the seed and the request.
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
    let mut command = builder();
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

/// Slow clients by the thousand: 10,000 where `ulimit -Hn` is 20,000 or more, with less as many as the service has files for.
pub(crate) fn slow(release: bool) -> anyhow::Result<()> {
    say("the service");
    let profile = profile(release);
    build(profile)?;
    say("slow clients");
    run(builder()
        .args(["test", "-p", "acceptance", "--test", "slow"])
        .args(profile)
        .args(["--", "--nocapture", "--test-threads=1"])
        .env("SLOW_FULL", "1"))
}

/// One large file, there and back through each proxy, while the service's memory is watched.
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
    run(builder()
        .args(["test", "-p", "acceptance", "--test", "proxies"])
        .args(profile)
        .args(["files_of_any_size", "--", "--nocapture", "--test-threads=1"])
        .env("TRANSFER_MIB", mib.to_string()))
}
