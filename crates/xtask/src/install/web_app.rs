//! Installs the web application of the suites with the service itself, as a user does.

use std::fs;
use std::path::Path;

use anyhow::Context as _;

use crate::run::{output, print, program, root};

/// Installs the build below `target/acceptance` (quick when it is there) and writes its directory to `web-app.directory` in
/// that folder.
pub(crate) fn prepare(service: &Path) -> anyhow::Result<()> {
    let folder = root().join("target").join("acceptance");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let mut command = program(service);
    command
        .args(["web", "install"])
        .env("WORKSPACE_DATA_DIR", folder.join("data"));
    let directory = output(&mut command).context(
        "the web application could not be installed. It needs an npm registry (WORKSPACE_WEB__REGISTRY); \
         `cargo xtask test --no-agent-servers` skips the suite that needs it",
    )?;
    let file = folder.join("web-app.directory");
    fs::write(&file, &directory).with_context(|| format!("cannot write {}", file.display()))?;
    print(&format!("web application: {}", directory.trim()));
    Ok(())
}
