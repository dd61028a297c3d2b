//! The suite of hostile requests, for longer than the tests do it.

use crate::run::{cargo, run, say};

/// Runs it to its end; a failure tells the seed and the request.
pub(crate) fn soak(
    requests: Option<u64>,
    minutes: Option<u64>,
    seed: u64,
    release: bool,
) -> anyhow::Result<()> {
    say("the service");
    let profile = release.then_some("--release");
    run(cargo()
        .args(["build", "-p", "server", "-p", "acceptance", "--bins"])
        .args(profile))?;
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
