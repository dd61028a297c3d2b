//! The complete environment of a sandbox, without the service's own variables.
//!
//! Knows: the variables of the agent server (`OH_*`, releases 1.34 to 1.58).

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use domain::sandbox::SandboxLaunch;
use sandbox_provider::{SandboxVariables, add_launch_variables, add_proxy_variables};
use secrecy::ExposeSecret;
use serde_json::{Value, json};

use crate::config::ProcessConfig;
use crate::confinement::plan::{CALLBACK_ADDRESS, NetworkPolicy, PROXY_PORT};
use crate::files::layout::SandboxPaths;
use crate::processes::marker::{self, Marker};

/// The agent server's settings as one JSON document, which it merges with its single variables (1.34, 1.58). For each of
/// its variables it spawns a process when an agent gets its terminal, so settings that nothing else reads are in this
/// document. It contains no keys: the agent server removes keys from its agent's environment by the names of their
/// variables.
const SETTINGS_VARIABLE: &str = "OH";
/// Single variables of these settings, which would override the document.
const SETTINGS_MEMBERS: [&str; 5] = [
    "OH_LEASE_TTL_SECONDS",
    "OH_ENABLE_VSCODE",
    "OH_PRELOAD_TOOLS",
    "OH_WORKSPACE_PATH",
    "OH_BASH_EVENTS_DIR",
];

/// Settings of all sandboxes by member, as JSON.
pub(crate) const FIXED_SETTINGS: [(&str, &str); 3] = [
    // A directory has one owner: a lease would only lock a restarted server out of its own conversations.
    ("lease_ttl_seconds", "0"),
    ("enable_vscode", "false"),
    // Preloading costs processor time and memory at each start and saves little at the first conversation.
    ("preload_tools", "false"),
];

/// All variables of the agent server. `program` is the first word of its command.
pub(crate) fn variables(
    config: &ProcessConfig,
    paths: &SandboxPaths,
    marker: &Marker,
    launch: &SandboxLaunch,
    program: &OsStr,
) -> SandboxVariables {
    let mut all = SandboxVariables::new();
    let mut set = |name: &str, value: String| all.insert(name.to_owned(), value.into());
    set("LANG", "C.UTF-8".into());
    set("TZ", "UTC".into());
    set("PATH", search_path(program, &config.path));
    for (name, value) in &config.extra_env {
        set(name, value.expose_secret().to_owned());
    }
    // Configuration cannot replace any variable from here on.
    set(SETTINGS_VARIABLE, settings(config, paths));
    let text = |path: &Path| path.to_string_lossy().into_owned();
    set(marker::VARIABLE, marker.value().to_owned());
    set("HOME", text(&paths.home()));
    // A confined sandbox has a `/tmp` of its own.
    let (sockets, tmp) = match config.confinement {
        Some(_) => ("/tmp".into(), "/tmp".into()),
        None => (paths.short.clone(), paths.tmp()),
    };
    set("TMUX_TMPDIR", text(&sockets));
    set("TMPDIR", text(&tmp));
    if let Some(confinement) = &config.confinement {
        let network = confinement.network;
        all.insert(NetworkPolicy::VARIABLE.to_owned(), network.name().into());
        if confinement.egress.is_some() {
            let proxy = SocketAddr::from((CALLBACK_ADDRESS, PROXY_PORT));
            let (direct, file) = (CALLBACK_ADDRESS.to_string(), text(&paths.certificates()));
            add_proxy_variables(&mut all, proxy, &direct, &file);
        }
    }
    add_launch_variables(&mut all, launch, &text(&paths.root));
    all.retain(|name, _| {
        !SETTINGS_MEMBERS
            .iter()
            .any(|member| name.starts_with(member))
    });
    all
}

/// The value of [`SETTINGS_VARIABLE`]: the operator's document with the fixed settings.
fn settings(config: &ProcessConfig, paths: &SandboxPaths) -> String {
    let mut all = config.extra_env.get(SETTINGS_VARIABLE).map_or_else(
        BTreeMap::new,
        // The configuration was validated before (`settings_are_readable`).
        |text| serde_json::from_str(text.expose_secret()).unwrap_or_default(),
    );
    for (name, value) in FIXED_SETTINGS {
        let value = serde_json::from_str(value).unwrap_or_default();
        all.insert(name.to_owned(), value);
    }
    let path = |path: &Path| Value::from(path.to_string_lossy());
    all.insert("workspace_path".to_owned(), path(&paths.workspace()));
    all.insert("bash_events_dir".to_owned(), path(&paths.bash_events()));
    json!(all).to_string()
}

/// Whether `OH`, if the operator sets it, holds a JSON object.
pub(crate) fn settings_are_readable<'a>(
    variables: impl IntoIterator<Item = (&'a String, &'a String)>,
) -> bool {
    let mut all = variables.into_iter();
    all.all(|(name, value)| {
        name != SETTINGS_VARIABLE || serde_json::from_str::<BTreeMap<String, Value>>(value).is_ok()
    })
}

/// The folder of an absolute program comes first, because it contains the program's helpers.
pub(crate) fn search_path(program: &OsStr, path: &str) -> String {
    let dir = Path::new(program).parent().filter(|dir| dir.is_absolute());
    dir.and_then(Path::to_str)
        .map_or_else(|| path.to_owned(), |dir| format!("{dir}:{path}"))
}

/// Appends the folder of the Python on which an agent server's virtual environment is based: tools that make further environments
/// in the sandbox look for it on `PATH`. Blocks.
pub(crate) fn add_base_python(variables: &mut SandboxVariables, program: &OsStr) {
    let Ok(base) = fs::canonicalize(program) else {
        return;
    };
    let dir = base.parent().and_then(Path::to_str);
    if let (Some(dir), Some(path)) = (dir, variables.get_mut("PATH"))
        && !path.expose_secret().split(':').any(|known| known == dir)
    {
        *path = format!("{}:{dir}", path.expose_secret()).into();
    }
}

#[cfg(test)]
mod tests {
    use domain::agent::{WEBHOOK_BATCH, WEBHOOK_FLUSH_SECONDS};
    use domain::id::{HostId, OwnerId, SandboxId, SpecId};
    use sandbox_provider::WEBHOOKS_PREFIX;
    use secrecy::SecretString;

    use super::*;
    use crate::config::AgentServerSource;
    use crate::files::layout::DataLayout;

    fn test_variables(dormant: bool) -> SandboxVariables {
        let instance = HostId::parse("host").unwrap();
        let source = AgentServerSource::Command(vec!["/bin/agent".into()]);
        let mut config = ProcessConfig::new("/data", instance.clone(), source);
        let custom = SecretString::from("custom");
        config.extra_env = BTreeMap::from([
            ("OH_DEFERRED_INIT".to_owned(), custom.clone()),
            ("OH_LEASE_TTL_SECONDS".to_owned(), custom.clone()),
            ("OH_WORKSPACE_PATH_IS_NONE".to_owned(), custom.clone()),
            (
                "OH".to_owned(),
                r#"{"max_concurrent_runs": 3, "enable_vscode": true}"#.into(),
            ),
            ("CUSTOM".to_owned(), custom),
        ]);
        let launch = SandboxLaunch {
            id: SandboxId::parse("s1").unwrap(),
            owner: OwnerId::parse("alice").unwrap(),
            spec: SpecId::parse("spec").unwrap(),
            session_key: SecretString::from("session"),
            secret_key: SecretString::from("secret"),
            webhook_url: "http://127.0.0.1:3000/api/v1/webhooks/".parse().unwrap(),
            cors_origins: vec!["https://app.test".to_owned()],
            dormant,
            progress: domain::sandbox::PrepareProgress::silent(),
        };
        let layout =
            DataLayout::new(Path::new("/data"), Path::new("/run"), instance.clone()).unwrap();
        let marker = Marker::new(&instance, &launch.id);
        let paths = layout.paths(&launch.id);
        variables(&config, &paths, &marker, &launch, OsStr::new("/bin/agent"))
    }

    #[test]
    fn the_python_of_a_virtual_environment_is_found_last() {
        let dir = tempfile::tempdir().unwrap();
        let (base, link) = (dir.path().join("base/python"), dir.path().join("python"));
        fs::create_dir(dir.path().join("base")).unwrap();
        fs::write(&base, "").unwrap();
        std::os::unix::fs::symlink(&base, &link).unwrap();
        let mut all = SandboxVariables::from([("PATH".to_owned(), "/bin".into())]);
        for _ in 0..2 {
            add_base_python(&mut all, link.as_os_str());
            let expected = format!("/bin:{}", base.parent().unwrap().display());
            assert_eq!(all["PATH"].expose_secret(), expected);
        }
    }

    #[test]
    fn a_dormant_agent_server_lacks_only_the_variables_of_the_init_request() {
        let (cold, dormant) = (test_variables(false), test_variables(true));
        let value = |name: &str| dormant.get(name).map(ExposeSecret::expose_secret);
        assert_eq!(value("OH_DEFERRED_INIT"), Some("1"));
        assert_eq!(value("OH_SECRET_KEY"), Some("secret"));
        let mut missing: Vec<_> = cold.keys().filter(|name| value(name).is_none()).collect();
        missing.sort();
        assert_eq!(
            missing,
            [
                "OH_WEBHOOKS_0_BASE_URL",
                "OH_WEBHOOKS_0_EVENT_BUFFER_SIZE",
                "OH_WEBHOOKS_0_FLUSH_DELAY",
            ]
        );
        for (name, value) in &cold {
            let actual = dormant.get(name).map(ExposeSecret::expose_secret);
            let expected = match name.as_str() {
                "OH_DEFERRED_INIT" => Some("1"),
                name if name.starts_with(WEBHOOKS_PREFIX) => None,
                _ => Some(value.expose_secret()),
            };
            assert_eq!(actual, expected, "{name}");
        }
    }

    #[test]
    fn settings_of_the_operator_must_be_a_json_object() {
        let is_valid = |name: &str, value: &str| {
            settings_are_readable(&BTreeMap::from([(name.to_owned(), value.to_owned())]))
        };
        assert!(is_valid("OH", "{}") && is_valid("OH", r#"{"max_concurrent_runs": 3}"#));
        assert!(
            !is_valid("OH", "")
                && !is_valid("OH", "1")
                && !is_valid("OH", "[]")
                && !is_valid("OH", "{")
        );
        assert!(is_valid("OTHER", "{"));
    }

    #[test]
    fn settings_are_one_document_without_keys() {
        for all in [test_variables(false), test_variables(true)] {
            let settings = all["OH"].expose_secret();
            let document: Value = serde_json::from_str(settings).unwrap();
            let root = all["HOME"].expose_secret().trim_end_matches("/home");
            let expected = json!({
                "max_concurrent_runs": 3,
                "lease_ttl_seconds": 0,
                "enable_vscode": false,
                "preload_tools": false,
                "workspace_path": format!("{root}/workspace"),
                "bash_events_dir": format!("{root}/bash_events"),
            });
            assert_eq!(document, expected);
            let is_single = |name: &&String| {
                SETTINGS_MEMBERS
                    .iter()
                    .any(|member| name.starts_with(member))
            };
            assert_eq!(
                all.keys().find(is_single),
                None,
                "it would override the document"
            );
        }
    }

    #[test]
    fn a_cold_agent_server_does_not_wait_and_uses_the_same_webhook_settings() {
        let cold = test_variables(false);
        let value = |name: &str| cold.get(name).map(ExposeSecret::expose_secret);
        assert_eq!(value("OH_DEFERRED_INIT"), Some("0"));
        assert_eq!(value("CUSTOM"), Some("custom"));
        let seconds = value("OH_WEBHOOKS_0_FLUSH_DELAY").map(str::to_owned);
        assert_eq!(seconds, Some(WEBHOOK_FLUSH_SECONDS.to_string()));
        let batch = value("OH_WEBHOOKS_0_EVENT_BUFFER_SIZE").map(str::to_owned);
        assert_eq!(batch, Some(WEBHOOK_BATCH.to_string()));
    }
}
