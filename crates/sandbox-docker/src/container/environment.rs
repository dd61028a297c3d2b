//! The environment of a sandbox: the image's variables, the template's, and then the service's own.
//!
//! Knows: the variables of the agent server (`OH_*`, releases 1.34 to 1.58).

use std::net::SocketAddr;

use domain::sandbox::SandboxLaunch;
use sandbox_provider::{
    SandboxVariables, add_container_variables, add_launch_variables, add_proxy_variables,
};

use crate::config::DockerSpec;
use crate::container::{HOST_NAME, certificates};

/// All variables that are set in addition to the image's own.
pub(crate) fn variables(
    spec: &DockerSpec,
    launch: &SandboxLaunch,
    proxy: Option<SocketAddr>,
) -> SandboxVariables {
    let mut all = SandboxVariables::new();
    if spec.read_only {
        // The image's own home is not writable.
        all.insert("HOME".to_owned(), spec.volume.clone().into());
    }
    let env = spec.env.iter();
    all.extend(env.map(|(name, value)| (name.clone(), value.clone().into())));
    all.extend(spec.secret_env.clone());
    // Configuration cannot replace any variable from here on.
    add_container_variables(&mut all, &spec.ports, &spec.working_dir, &spec.volume);
    if let Some(proxy) = proxy {
        let direct = match launch.webhook_url.host_str() {
            Some(host) if host != HOST_NAME => format!("{HOST_NAME},{host}"),
            _ => HOST_NAME.to_owned(),
        };
        let file = certificates::path(&spec.volume);
        add_proxy_variables(&mut all, proxy, &direct, &file);
    }
    add_launch_variables(&mut all, launch, &spec.volume);
    all
}

#[cfg(test)]
mod tests {
    use domain::agent::{WEBHOOK_BATCH, WEBHOOK_FLUSH_SECONDS};
    use domain::id::{OwnerId, SandboxId, SpecId};
    use domain::sandbox::AGENT_SERVER;
    use sandbox_provider::WEBHOOKS_PREFIX;
    use secrecy::{ExposeSecret, SecretString};
    use url::Url;

    use super::*;

    fn launch() -> SandboxLaunch {
        SandboxLaunch {
            id: SandboxId::parse("s1").unwrap(),
            owner: OwnerId::parse("alice").unwrap(),
            spec: SpecId::parse("spec").unwrap(),
            session_key: SecretString::from("session"),
            secret_key: SecretString::from("secret"),
            webhook_url: Url::parse("http://host.docker.internal:3000/api/v1/webhooks/").unwrap(),
            cors_origins: vec!["https://app.test".to_owned()],
            dormant: false,
            progress: domain::sandbox::PrepareProgress::silent(),
        }
    }

    #[test]
    fn a_dormant_agent_server_lacks_only_the_variables_of_the_init_request() {
        let spec = DockerSpec::new(SpecId::parse("spec").unwrap(), "image:1");
        let cold = variables(&spec, &launch(), None);
        let dormant = SandboxLaunch {
            dormant: true,
            ..launch()
        };
        let dormant = variables(&spec, &dormant, None);
        for (name, value) in &cold {
            let actual = dormant.get(name).map(ExposeSecret::expose_secret);
            let expected = match name.as_str() {
                "OH_DEFERRED_INIT" => Some("1"),
                name if name.starts_with(WEBHOOKS_PREFIX) => None,
                _ => Some(value.expose_secret()),
            };
            assert_eq!(actual, expected, "{name}");
        }
        let value = |name: &str| cold.get(name).map(ExposeSecret::expose_secret);
        assert_eq!(value("OH_DEFERRED_INIT"), Some("0"));
        let seconds = value("OH_WEBHOOKS_0_FLUSH_DELAY").map(str::to_owned);
        assert_eq!(seconds, Some(WEBHOOK_FLUSH_SECONDS.to_string()));
        let batch = value("OH_WEBHOOKS_0_EVENT_BUFFER_SIZE").map(str::to_owned);
        assert_eq!(batch, Some(WEBHOOK_BATCH.to_string()));
    }

    #[test]
    fn templates_cannot_override_variables_of_the_service() {
        let mut spec = DockerSpec::new(SpecId::parse("spec").unwrap(), "image:1");
        let overridden = [
            "OH_SESSION_API_KEYS_0",
            "OH_LEASE_TTL_SECONDS",
            "WORKER_1",
            "CUSTOM",
        ];
        for name in overridden {
            spec.env.insert(name.to_owned(), "plain".to_owned());
            spec.secret_env
                .insert(name.to_owned(), SecretString::from("hidden"));
        }
        let all = variables(&spec, &launch(), None);
        let value = |name: &str| all.get(name).map(ExposeSecret::expose_secret);
        assert_eq!(value("CUSTOM"), Some("hidden"));
        assert_eq!(value("OH_SESSION_API_KEYS_0"), Some("session"));
        assert_eq!(value("OH_LEASE_TTL_SECONDS"), Some("0"));
        assert_eq!(value("WORKER_1"), Some("8011"));
        assert_eq!(value("OH_ENABLE_VSCODE"), Some("1"));
        assert_eq!(value("OH_ALLOW_CORS_ORIGINS_0"), Some("https://app.test"));
        assert_eq!(
            value("OH_CONVERSATIONS_PATH"),
            Some("/workspace/conversations")
        );
        let webhooks = "http://host.docker.internal:3000/api/v1/webhooks";
        assert_eq!(value("OH_WEBHOOKS_0_BASE_URL"), Some(webhooks));
        spec.ports.retain(|port| port.name == AGENT_SERVER);
        let all = variables(&spec, &launch(), None);
        assert_eq!(
            all.get("OH_ENABLE_VSCODE").map(ExposeSecret::expose_secret),
            Some("0")
        );
    }

    #[test]
    fn programs_find_the_proxy_and_reach_the_service_without_it() {
        let mut spec = DockerSpec::new(SpecId::parse("spec").unwrap(), "image:1");
        // Those of a template stay.
        let options = ("JAVA_TOOL_OPTIONS".to_owned(), "-Xmx1g".to_owned());
        spec.env.extend([options]);
        let proxy = "172.20.0.1:13128".parse().unwrap();
        let of_another_host = SandboxLaunch {
            webhook_url: Url::parse("https://service.test/api/v1/webhooks").unwrap(),
            ..launch()
        };
        for (launch, direct) in [
            (launch(), "host.docker.internal"),
            (of_another_host, "host.docker.internal,service.test"),
        ] {
            let all = variables(&spec, &launch, Some(proxy));
            let value = |name: &str| all.get(name).map(ExposeSecret::expose_secret);
            assert_eq!(value("https_proxy"), Some("http://172.20.0.1:13128"));
            let expected = format!("localhost,127.0.0.1,{direct},::1,0.0.0.0");
            assert_eq!(value("NO_PROXY"), Some(expected.as_str()));
            assert_eq!(value("SSL_CERT_FILE"), Some("/workspace/.certificates.pem"));
            let of_java = value("JAVA_TOOL_OPTIONS").unwrap_or_default();
            assert!(
                of_java.starts_with("-Xmx1g -Dhttp.proxyHost=172.20.0.1 "),
                "{of_java}"
            );
        }
        let without = variables(&spec, &launch(), None);
        assert!(!without.contains_key("https_proxy") && !without.contains_key("SSL_CERT_FILE"));
    }
}
