//! The configured templates.

use domain::clock::Timestamp;
use domain::sandbox::SandboxSpec;
use sandbox_provider::{SpecList, shown_variables};

use crate::config::{DockerConfig, DockerSpec};

/// The templates in configured order, the default first. `now` becomes their creation time in the API.
pub(crate) fn specs(config: &DockerConfig, now: Timestamp) -> SpecList {
    let specs = config.specs.iter();
    SpecList(specs.map(|spec| api_spec(spec, now)).collect())
}

/// The API's view, without secret values.
fn api_spec(spec: &DockerSpec, now: Timestamp) -> SandboxSpec {
    SandboxSpec {
        id: spec.id.clone(),
        command: spec.command.clone(),
        created_at: now,
        initial_env: shown_variables(&spec.env, &spec.secret_env),
        working_dir: spec.working_dir.clone(),
        idle_stop: spec.idle_stop,
        lifetime: spec.lifetime,
        egress: spec.egress.clone(),
        conversation_budget: spec.conversation_budget,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use chrono::{TimeZone, Utc};
    use domain::id::{HostId, SpecId};
    use domain::sandbox::SandboxSpecCatalog as _;
    use secrecy::SecretString;

    use super::*;

    #[tokio::test]
    async fn templates_are_listed_in_order_and_without_secret_values() {
        let spec = |id: &str| DockerSpec::new(SpecId::parse(id).expect("an id"), "image:1");
        let mut first = spec("first");
        for (name, value) in [("PLAIN", "1"), ("BOTH", "2"), ("LOG_JSON", "false")] {
            first.env.insert(name.to_owned(), value.to_owned());
        }
        for name in ["BOTH", "TOKEN", "LOG_JSON"] {
            let value = SecretString::from("canary-7151");
            first.secret_env.insert(name.to_owned(), value);
        }
        first.lifetime = Some(Duration::from_secs(60));
        let instance = HostId::parse("host-1").expect("an id");
        let config = DockerConfig::new(instance, vec![first, spec("second")]);
        let now = Utc
            .timestamp_opt(1_700_000_000, 0)
            .single()
            .expect("a time");
        let now = Timestamp::new(now);

        let specs = specs(&config, now).list().await.expect("a list");

        let ids: Vec<_> = specs.iter().map(|spec| spec.id.as_str()).collect();
        assert_eq!(ids, ["first", "second"]);
        let first = &specs[0];
        assert!(!format!("{first:?}").contains("canary-7151"));
        let value = |name: &str| first.initial_env.get(name).map(String::as_str);
        assert_eq!(value("PLAIN"), Some("1"));
        assert_eq!(value("BOTH"), None);
        assert_eq!(value("TOKEN"), None);
        // Fixed variables cannot be replaced.
        assert_eq!(value("LOG_JSON"), Some("true"));
        assert_eq!(value("OH_SESSION_API_KEYS_0"), None);
        assert_eq!(first.command, config.specs[0].command);
        assert_eq!(first.working_dir, "/workspace/project");
        assert_eq!(first.created_at, now);
        assert_eq!(first.lifetime, Some(Duration::from_secs(60)));
        assert_eq!(first.idle_stop, config.specs[0].idle_stop);
    }
}
