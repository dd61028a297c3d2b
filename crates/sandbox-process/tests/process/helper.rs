//! The processes of a sandbox apart from the agent server, as the service's binary has them: the tests start it.

use std::process::ExitCode;

use sandbox_process::ProcessProvider;
use sandbox_provider::SandboxProvider as _;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    match ProcessProvider.run_helper(&arguments) {
        Some(error) => {
            let _ = std::io::Write::write_fmt(
                &mut std::io::stderr(),
                format_args!("cannot start the sandbox: {error}\n"),
            );
            ExitCode::FAILURE
        }
        None => ExitCode::from(64),
    }
}
