//! Runs the attempts to get out of a process sandbox.

use crate::install::debian;
use crate::run::{cargo, programs, run, say};
use crate::suites;

/// The isolation and the choice of attempts.
#[derive(Debug, clap::Args)]
pub(crate) struct EscapeArgs {
    /// With walls each attempt must be refused. Without walls each must reach its aim, so that it can fail.
    #[arg(long, value_enum, default_value_t = EscapeIsolation::Confined)]
    isolation: EscapeIsolation,
    /// The name of one attempt, or several with commas.
    #[arg(long)]
    only: Option<String>,
    /// Real agent servers instead of the stub. Confined ones are forked. Takes a minute more.
    #[arg(long)]
    real_agent_server: bool,
}

/// The isolation of the sandboxes.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum EscapeIsolation {
    Confined,
    None,
}

/// Prints a table of attempts, and fails when one has the wrong result.
pub(crate) fn escape(args: &EscapeArgs) -> anyhow::Result<()> {
    debian::libraries()?;
    debian::tools()?;
    say("the service");
    programs()?;
    if args.real_agent_server {
        suites::sandboxes(true)?;
    }
    say("attempts to get out of a sandbox");
    let test = match args.isolation {
        EscapeIsolation::Confined => "attempts_are_refused_when_confined",
        EscapeIsolation::None => "attempts_succeed_without_walls",
    };
    let mut command = cargo();
    command
        .args(["test", "-p", "acceptance", "--test", "escape"])
        .args(["--", test, "--exact", "--nocapture"]);
    if let Some(only) = &args.only {
        command.env("ESCAPE_ONLY", only);
    }
    if args.real_agent_server {
        command.env("ESCAPE_REAL_AGENT_SERVER", "yes");
    }
    run(&mut command)
}
