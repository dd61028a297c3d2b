//! Runs the test in which three hostile users attack while three normal users work.

use crate::run::{cargo, run, say};
use crate::suites::soak::{build, profile};

/// Length and choice of the attacks.
#[derive(Debug, clap::Args)]
pub(crate) struct AttackArgs {
    /// Minutes of attacks. The preparation and the measurement of memory at the end take up to six more.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(2..=600))]
    minutes: u64,
    /// Selects the requests, and the attacks during which the service is killed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Use a debug build, which compiles faster. Its figures mean nothing.
    #[arg(long)]
    debug: bool,
}

impl AttackArgs {
    /// A run against a release build.
    pub(crate) fn new(minutes: u64, seed: u64) -> Self {
        Self {
            minutes,
            seed,
            debug: false,
        }
    }
}

/// Prints a table of what the normal users notice, and fails when a bound is broken.
pub(crate) fn attack(args: &AttackArgs) -> anyhow::Result<()> {
    say("the service");
    let profile = profile(!args.debug);
    build(profile)?;
    say("hostile users beside normal ones");
    run(cargo()
        .args(["test", "-p", "acceptance", "--test", "attack"])
        .args(profile)
        .args(["normal_users", "--", "--nocapture"])
        .env("ATTACK_MINUTES", args.minutes.to_string())
        .env("ATTACK_SEED", args.seed.to_string()))
}
