//! Installs the real agent servers of the suites with the service itself, as a user does.

use std::fs;
use std::path::Path;

use anyhow::Context as _;

use crate::run::{output, print, program, root};

/// The newest tested version, and that of deployed front ends.
pub(crate) const VERSIONS: [&str; 2] = ["1.58.0", "1.34.0"];

/// Installs a version below `target/acceptance` (quick when it is there) and writes its command, as
/// `WORKSPACE_SANDBOX__AGENT_SERVER_COMMAND` takes it, to `agent-server-<version>.command` in that folder. Returns it.
pub(crate) fn prepare(service: &Path, version: &str) -> anyhow::Result<String> {
    let folder = root().join("target").join("acceptance");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let mut command = program(service);
    command
        .arg("prepare")
        .env("WORKSPACE_DATA_DIR", folder.join("data"))
        .env("WORKSPACE_SANDBOX__AGENT_SERVER_VERSION", version)
        .env_remove("WORKSPACE_SANDBOX__AGENT_SERVER_COMMAND");
    let line = output(&mut command).with_context(|| {
        format!(
            "agent server {version} could not be installed. It needs Python 3.12 or newer (or an older one, which downloads it from GitHub) and a package index \
             (or wheels, see WORKSPACE_SANDBOX__WHEEL_DIR); `cargo xtask test --no-agent-servers` skips the suites that need it"
        )
    })?;
    let file = folder.join(format!("agent-server-{version}.command"));
    fs::write(&file, &line).with_context(|| format!("cannot write {}", file.display()))?;
    print(&format!("agent server {version}: {}", line.trim()));
    Ok(line.trim().to_owned())
}
