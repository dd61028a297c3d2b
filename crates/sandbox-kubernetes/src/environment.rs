//! The environment of a sandbox: the template's variables, and then the service's own.
//!
//! Knows: the variables of the agent server (`OH_*`, releases 1.34 to 1.58).

use domain::sandbox::SandboxLaunch;
use sandbox_provider::{
    SandboxVariables, add_container_variables, add_launch_variables, add_proxy_variables,
};

use crate::certificates;
use crate::config::KubernetesSpec;

/// All variables that are set in addition to the image's own.
pub(crate) fn variables(
    spec: &KubernetesSpec,
    launch: &SandboxLaunch,
    proxy: Option<&str>,
) -> SandboxVariables {
    let mut all = SandboxVariables::new();
    let env = spec.env.iter();
    all.extend(env.map(|(name, value)| (name.clone(), value.clone().into())));
    all.extend(spec.secret_env.clone());
    // Configuration cannot replace any variable from here on.
    add_container_variables(&mut all, &spec.ports, &spec.working_dir, &spec.volume);
    if let Some(proxy) = proxy {
        let direct = launch.webhook_url.host_str().unwrap_or_default();
        add_proxy_variables(&mut all, proxy, direct, &certificates::path(&spec.volume));
    }
    add_launch_variables(&mut all, launch, &spec.volume);
    all
}
