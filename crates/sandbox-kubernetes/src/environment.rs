//! The environment of a sandbox: the template's variables, and then the service's own.
//!
//! Knows: the variables of the agent server (`OH_*`, releases 1.34 to 1.58).

use domain::sandbox::{AGENT_SERVER, SandboxLaunch};
use sandbox_provider::{FIXED_VARIABLES, SandboxVariables, add_launch_variables};
use secrecy::ExposeSecret as _;

use crate::config::KubernetesSpec;

/// The port of the VS Code server. Without the port, the server would only waste memory.
const VSCODE: &str = "VSCODE";

/// Of pods only; see [`FIXED_VARIABLES`] for the others.
const POD_VARIABLES: [(&str, &str); 3] = [
    // A claim has one owner: a lease would only lock a restarted server out of its own conversations.
    ("OH_LEASE_TTL_SECONDS", "0"),
    ("OH_ENABLE_VNC", "0"),
    // Preloading costs processor time and memory at each start and saves little at the first conversation.
    ("OH_PRELOAD_TOOLS", "0"),
];

/// Not secret, and equal in all sandboxes.
pub(crate) fn fixed_variables() -> impl Iterator<Item = (&'static str, &'static str)> {
    FIXED_VARIABLES.into_iter().chain(POD_VARIABLES)
}

/// All variables that are set in addition to the image's own.
pub(crate) fn variables(spec: &KubernetesSpec, launch: &SandboxLaunch) -> SandboxVariables {
    let mut all = SandboxVariables::new();
    let mut set = |name: &str, value: String| all.insert(name.to_owned(), value.into());
    for (name, value) in &spec.env {
        set(name, value.clone());
    }
    for (name, value) in &spec.secret_env {
        set(name, value.expose_secret().to_owned());
    }
    // Configuration cannot replace any variable from here on.
    for (name, value) in POD_VARIABLES {
        set(name, value.to_owned());
    }
    set("OH_WORKSPACE_PATH", spec.working_dir.clone());
    set("OH_BASH_EVENTS_DIR", format!("{}/bash_events", spec.volume));
    let vscode = spec.ports.iter().find(|port| port.name == VSCODE);
    let is_enabled = if vscode.is_some() { "1" } else { "0" };
    set("OH_ENABLE_VSCODE", is_enabled.to_owned());
    for port in &spec.ports {
        match port.name.as_str() {
            AGENT_SERVER => continue,
            VSCODE => set("OH_VSCODE_PORT", port.port.to_string()),
            name => set(name, port.port.to_string()),
        };
    }
    add_launch_variables(&mut all, launch, &spec.volume);
    all
}
