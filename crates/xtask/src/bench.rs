//! Benchmarks. Their figures are no tests: what they print goes into `docs/benchmarks.md`.

use crate::debian;
use crate::run::{cargo, run, say};

/// Builds for speed and runs one of the programs that measure.
pub(crate) fn bench(postgres: bool, short: bool) -> anyhow::Result<()> {
    debian::libraries()?;
    let program = if postgres {
        debian::tools()?;
        "bench-postgres"
    } else {
        "bench-service"
    };
    say("release builds of the service and of what measures it");
    let build = ["build", "--release", "-p", "server", "-p", "acceptance"];
    run(cargo().args(build).arg("--bins"))?;
    say(program);
    let mut command = cargo();
    command.args([
        "run",
        "--release",
        "--quiet",
        "-p",
        "acceptance",
        "--bin",
        program,
    ]);
    if short {
        command.args(["--", "--short"]);
    }
    run(&mut command)
}
