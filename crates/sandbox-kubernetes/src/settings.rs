//! Section `kubernetes`: the cluster, and the templates for sandboxes.

use std::time::Duration;

use domain::id::HostId;
use sandbox_provider::container_settings::{
    capabilities, cpus, directory, egress_allow, exposed_ports, id_and_image, is_inside, memory,
    secret_env, templates,
};
use sandbox_provider::{EgressPolicy, EgressSlot, reachable_network, sends_secrets};
use settings::SettingReader;

use crate::config::{ClusterAccess, KubernetesConfig, KubernetesSpec, PodEngine};

/// Kubelets cannot start a container with less.
const MIN_MEMORY_MIB: u64 = 16;
/// The smallest quantity.
const MIN_CPUS: f64 = 0.001;
const DEFAULT_DISK_BYTES: u64 = 20 << 30;

impl KubernetesConfig {
    pub(crate) fn read(reader: &SettingReader<'_>, instance: HostId) -> Self {
        let file = reader.optional_path("kubernetes.kubeconfig");
        let proxy_port = Some(reader.number("kubernetes.proxy_port", 0..=65_535));
        let proxy_port = proxy_port.filter(|port| *port > 0);
        let policy = EgressPolicy::read(reader);
        let is_closed = reader.choice("kubernetes.network", &[("open", false), ("closed", true)]);
        let may_use_proxy = match policy {
            // The proxy would open a closed network.
            EgressPolicy::Open => !is_closed,
            EgressPolicy::AllowList => is_closed,
            EgressPolicy::None => false,
        };
        let egress = proxy_port.filter(|_| may_use_proxy);
        let egress = egress.map(|_| EgressSlot::default());
        Self {
            access: file.map_or(ClusterAccess::Inferred, ClusterAccess::File),
            instance,
            namespace: reader.parsed("kubernetes.namespace", "the name of a namespace", |text| {
                is_object_name(text).then(|| text.to_owned())
            }),
            engine: reader.choice(
                "kubernetes.engine",
                &[
                    ("auto", None),
                    ("agent_sandbox", Some(PodEngine::AgentSandbox)),
                    ("pods", Some(PodEngine::Pods)),
                ],
            ),
            storage_class: object_name(reader, "kubernetes.storage_class"),
            access_mode: reader.choice(
                "kubernetes.access_mode",
                &[
                    ("ReadWriteOnce", "ReadWriteOnce"),
                    ("ReadWriteOncePod", "ReadWriteOncePod"),
                ],
            ),
            pull_secrets: reader.parsed_list(
                "kubernetes.pull_secrets",
                "names of Secrets",
                |text| is_object_name(text).then(|| text.to_owned()),
            ),
            node_selector: reader.assignments("kubernetes.node_selector"),
            callback_url: reader
                .optional("sandbox.callback_url")
                .and_then(|text| text.parse().ok()),
            has_proxy: egress.is_some() && (is_closed || sends_secrets(reader)),
            egress,
            policy,
            enforces_egress: is_closed
                && (policy != EgressPolicy::AllowList || proxy_port.is_some()),
            proxy_port,
            reachable_networks: reader.parsed_list(
                "kubernetes.reachable_networks",
                "IPv4 networks or addresses, e.g. 10.20.0.0/16, outside 127.0.0.0/8",
                |text| reachable_network(text, &[]),
            ),
            specs: templates(reader, "kubernetes", KubernetesSpec::read, |spec| &spec.id),
            grace: reader.duration("sandbox.stop_grace"),
            call_limit: Duration::from_secs(30),
            start_limit: Duration::from_secs(10 * 60),
        }
    }
}

impl KubernetesSpec {
    /// Reads the section's keys; the reader may put an additional template over them.
    fn read(reader: &SettingReader<'_>) -> Self {
        let (id, image) = id_and_image(reader, "kubernetes");
        let words = |key| reader.words(key, "words, quoted as for a shell");
        let template = Self {
            id,
            image,
            entrypoint: words("kubernetes.entrypoint"),
            command: words("kubernetes.command"),
            env: reader.assignments("kubernetes.env"),
            secret_env: secret_env(reader, "kubernetes.secret_env"),
            working_dir: directory(reader, "kubernetes.working_dir"),
            volume: directory(reader, "kubernetes.volume"),
            user: account(reader, "kubernetes.user"),
            group: account(reader, "kubernetes.group"),
            memory: memory(reader, "kubernetes.memory", MIN_MEMORY_MIB),
            cpus: cpus(reader, "kubernetes.cpus", MIN_CPUS),
            reserved_cpus: cpus(reader, "kubernetes.reserved_cpus", MIN_CPUS),
            disk: disk(reader),
            capabilities: capabilities(reader, "kubernetes.capabilities"),
            runtime_class: object_name(reader, "kubernetes.runtime_class"),
            idle_stop: reader.limit("sandbox.idle_stop"),
            lifetime: reader.limit("sandbox.lifetime"),
            conversation_budget: sandbox_provider::budget(reader, "sandbox.conversation_budget"),
            ports: exposed_ports(reader, "kubernetes.ports"),
            egress: egress_allow(reader, "kubernetes.egress_allow"),
        };
        if !is_inside(&template.working_dir, &template.volume) {
            reader.problem(
                "kubernetes.working_dir",
                "must be in `volume`: other directories do not outlive the pod",
            );
        }
        if template.reserved_cpus > template.cpus.or(Some(f64::INFINITY)) {
            reader.problem("kubernetes.reserved_cpus", "must not exceed `cpus`");
        }
        template
    }
}

/// A name as most objects have it (a DNS label).
fn is_object_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    let ends = bytes.first().zip(bytes.last());
    ends.is_some_and(|(first, last)| is_plain(*first) && is_plain(*last))
        && text.len() <= 63
        && bytes.iter().all(|byte| is_plain(*byte) || *byte == b'-')
}

fn object_name(reader: &SettingReader<'_>, key: &str) -> Option<String> {
    reader.optional_parsed(key, "the name of an object", |text| {
        is_object_name(text).then(|| text.to_owned())
    })
}

fn account(reader: &SettingReader<'_>, key: &str) -> Option<i64> {
    reader.optional_parsed(key, "a number", |text| {
        text.parse()
            .ok()
            .filter(|id| (0..=i64::from(u32::MAX)).contains(id))
    })
}

fn disk(reader: &SettingReader<'_>) -> u64 {
    reader.size_limit("kubernetes.disk").unwrap_or_else(|| {
        reader.problem("kubernetes.disk", "must be the size of a claim, e.g. 20GiB");
        DEFAULT_DISK_BYTES
    })
}

#[cfg(test)]
mod tests {
    use settings::SettingLayers;

    use super::*;
    use crate::section::SECTION;

    #[test]
    fn the_policy_and_the_network_decide_about_the_proxy() {
        // The policy, the network, the port and `broker.secrets`; whether the proxy listens, new pods use it, and the policy holds.
        for (policy, network, port, secrets, expected) in [
            ("open", "open", "0", "true", [false, false, false]),
            ("open", "open", "3128", "true", [true, true, false]),
            // For pods from before.
            ("open", "open", "3128", "false", [true, false, false]),
            ("open", "closed", "3128", "true", [false, false, true]),
            ("allow_list", "open", "3128", "true", [false, false, false]),
            ("allow_list", "closed", "0", "true", [false, false, false]),
            ("allow_list", "closed", "3128", "false", [true, true, true]),
            ("none", "closed", "0", "true", [false, false, true]),
            ("none", "open", "3128", "true", [false, false, false]),
        ] {
            let variables = [
                ("WORKSPACE_EGRESS__POLICY", policy),
                ("WORKSPACE_KUBERNETES__NETWORK", network),
                ("WORKSPACE_KUBERNETES__PROXY_PORT", port),
                ("WORKSPACE_BROKER__SECRETS", secrets),
            ];
            let variables = variables.map(|(name, value)| (name.into(), value.into()));
            let layers = SettingLayers::load(vec![SECTION], None, &variables);
            let reader = SettingReader::new(&layers, &variables);
            let config = KubernetesConfig::read(&reader, HostId::parse("host").unwrap());
            let found = [
                config.egress.is_some(),
                config.has_proxy,
                config.enforces_egress,
            ];
            assert_eq!(found, expected, "{policy} {network} {port} {secrets}");
        }
    }
}
