//! Runs commands of a tutorial.

use std::process::Command;

use anyhow::bail;

/// Pauses the sandboxes that a script started, also when one of its commands fails, so that no process is left.
pub(crate) const PAUSE_SANDBOXES_AT_EXIT: &str = r#"pause_sandboxes() {
  for id in $(agent-workspace sandboxes list --json | grep --only-matching '"id":"[0-9A-Za-z]*"' | cut -d '"' -f 4); do
    agent-workspace sandboxes pause "$id"
  done
}
trap 'pause_sandboxes > /dev/null 2>&1 || true' EXIT
"#;

/// Runs a script, which ends at the first command that fails.
pub(crate) fn run_script(mut bash: Command, script: &str) -> anyhow::Result<()> {
    let script = format!("set -euo pipefail\n{script}");
    let status = bash.args(["-c", &script]).status()?;
    if !status.success() {
        bail!("a command failed ({status}):\n{script}");
    }
    Ok(())
}
