//! The objects of a sandbox.
//!
//! Knows: `restartPolicy: Never` keeps a pod whose process ended, so that its end is a fact in the cluster. Keys are in the
//! Secret alone: more people can read pods than Secrets.

use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use domain::sandbox::SandboxLaunch;
use sandbox_provider::EgressPolicy;
use secrecy::ExposeSecret as _;
use serde_json::{Map, Value, json};
use url::Url;

use crate::certificates;
use crate::config::{KubernetesConfig, KubernetesSpec, PodEngine};
use crate::environment;
use crate::names::{self, Names, Texts};

/// The container in a pod.
pub(crate) const CONTAINER: &str = "agent-server";
/// The values of `spec.operatingMode`.
pub(crate) const RUNNING: &str = "Running";
pub(crate) const SUSPENDED: &str = "Suspended";
/// The values of [`names::DESIRED`].
pub(crate) const DESIRED_RUNNING: &str = "running";
pub(crate) const DESIRED_STOPPED: &str = "stopped";

/// A cold start: what its objects contain.
pub(crate) struct SandboxManifest<'a> {
    pub(crate) config: &'a KubernetesConfig,
    pub(crate) names: &'a Names,
    pub(crate) spec: &'a KubernetesSpec,
    pub(crate) launch: &'a SandboxLaunch,
    /// The `apiVersion` of `Sandbox` resources.
    pub(crate) api_version: &'a str,
    /// The uid of the claim, which owns the other objects: the cluster deletes what comes too late.
    pub(crate) claim: &'a str,
    /// The forward proxy that the pod uses, as HOST:PORT.
    pub(crate) proxy: Option<String>,
    /// The addresses of the host of its callbacks, if pods look up no names.
    pub(crate) host_addresses: Vec<IpAddr>,
    /// The certificate of the sandbox's authority, which the proxy uses.
    pub(crate) authority: String,
}

impl SandboxManifest<'_> {
    fn name(&self) -> String {
        self.names.of(&self.launch.id)
    }

    fn meta(&self, annotations: &Texts) -> Value {
        let name = self.name();
        json!({
            "name": name,
            "namespace": self.config.namespace,
            "labels": self.names.labels(&name),
            "annotations": annotations,
        })
    }

    /// Of everything but the claim.
    fn owned_meta(&self) -> Value {
        let mut meta = self.meta(&self.identity());
        meta["ownerReferences"] = json!([{
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "name": self.name(),
            "uid": self.claim,
        }]);
        meta
    }

    fn identity(&self) -> Texts {
        names::texts([(names::SANDBOX, self.launch.id.as_str())])
    }

    /// The claim, which also holds what the service must know of a sandbox without its template.
    pub(crate) fn claim(&self) -> Value {
        let KubernetesConfig {
            storage_class,
            access_mode,
            ..
        } = self.config;
        let mut spec = json!({
            "accessModes": [access_mode],
            "resources": {"requests": {"storage": self.spec.disk.to_string()}},
        });
        set_optional(&mut spec, "storageClassName", storage_class.as_ref());
        let mut annotations = self.identity();
        annotations.extend(self.annotations());
        json!({
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": self.meta(&annotations),
            "spec": spec,
        })
    }

    /// What a new pod changes of an existing claim.
    pub(crate) fn annotations(&self) -> Texts {
        let ports = self.spec.ports.iter();
        let ports: Vec<_> = ports
            .map(|port| format!("{}={}", port.name, port.port))
            .collect();
        names::texts([
            (names::OWNER, self.launch.owner.as_str()),
            (names::SPEC, self.spec.id.as_str()),
            (names::CALLBACK, &address(&self.launch.webhook_url)),
            (names::PORTS, &ports.join(",")),
            (names::WORKSPACE, &self.spec.working_dir),
            (names::DESIRED, DESIRED_RUNNING),
            (names::PROXY, self.proxy.as_deref().unwrap_or_default()),
        ])
    }

    pub(crate) fn secret(&self) -> Value {
        let variables = environment::variables(self.spec, self.launch, self.proxy.as_deref());
        let data: Map<String, Value> = variables
            .iter()
            .map(|(name, value)| (name.clone(), json!(STANDARD.encode(value.expose_secret()))))
            .collect();
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": self.owned_meta(),
            "type": "Opaque",
            // `stringData` would keep variables that are no longer set.
            "data": data,
        })
    }

    pub(crate) fn sandbox(&self) -> Value {
        let pod = self.meta(&self.identity());
        json!({
            "apiVersion": self.api_version,
            "kind": "Sandbox",
            "metadata": self.owned_meta(),
            "spec": {
                "operatingMode": RUNNING,
                // Nothing uses a Service: names lag behind addresses.
                "service": false,
                "podTemplate": {
                    "metadata": {"labels": pod["labels"], "annotations": pod["annotations"]},
                    "spec": self.pod_spec(),
                },
            },
        })
    }

    pub(crate) fn pod(&self) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": self.owned_meta(),
            "spec": self.pod_spec(),
        })
    }

    fn pod_spec(&self) -> Value {
        let KubernetesSpec {
            user,
            group,
            runtime_class,
            ..
        } = self.spec;
        let mut security = json!({"seccompProfile": {"type": "RuntimeDefault"}});
        set_optional(&mut security, "runAsUser", user.as_ref());
        set_optional(&mut security, "runAsGroup", user.and(group.as_ref()));
        set_optional(&mut security, "fsGroup", group.as_ref());
        if self.spec.capabilities.is_empty() {
            // The restricted Pod Security Standard asks for it.
            security["runAsNonRoot"] = json!(true);
        }
        if group.is_some() {
            // A large workspace is walked once.
            security["fsGroupChangePolicy"] = json!("OnRootMismatch");
        }
        let mut spec = json!({
            "restartPolicy": "Never",
            "automountServiceAccountToken": false,
            // Services of the namespace would become variables.
            "enableServiceLinks": false,
            // Its first process reaps orphans, and forwards signals that a program would ignore as process 1.
            "shareProcessNamespace": true,
            "terminationGracePeriodSeconds": self.config.grace.as_secs(),
            "securityContext": security,
            "containers": [self.container()],
            "volumes": [{
                "name": "workspace",
                "persistentVolumeClaim": {"claimName": self.name()},
            }],
        });
        if self.config.policy != EgressPolicy::Open {
            self.take_names(&mut spec);
        }
        if self.proxy.is_some() {
            spec["initContainers"] = json!([self.certificate_writer()]);
        }
        set_optional(&mut spec, "runtimeClassName", runtime_class.as_ref());
        if !self.config.node_selector.is_empty() {
            spec["nodeSelector"] = json!(self.config.node_selector);
        }
        if !self.config.pull_secrets.is_empty() {
            let names = self.config.pull_secrets.iter();
            spec["imagePullSecrets"] = names.map(|name| json!({"name": name})).collect();
        }
        spec
    }

    /// Lets a pod look up no names, which could carry data, and know the host of its callbacks all the same.
    fn take_names(&self, spec: &mut Value) {
        spec["hostAliases"] = host_aliases(&self.launch.webhook_url, &self.host_addresses);
        spec["dnsPolicy"] = json!("None");
        // Nothing answers there, so programs do not wait.
        spec["dnsConfig"] = json!({"nameservers": ["127.0.0.1"]});
    }

    fn container(&self) -> Value {
        let spec = self.spec;
        let ports = spec.ports.iter();
        let ports: Vec<_> = ports
            .map(|port| json!({"name": port_name(&port.name), "containerPort": port.port, "protocol": "TCP"}))
            .collect();
        let mut container = self.container_basis();
        container["name"] = json!(CONTAINER);
        container["envFrom"] = json!([{"secretRef": {"name": self.name()}}]);
        container["ports"] = json!(ports);
        set_optional(&mut container, "command", spec.entrypoint.as_ref());
        set_optional(&mut container, "args", spec.command.as_ref());
        container
    }

    /// Writes the file of trusted certificates, and ends.
    fn certificate_writer(&self) -> Value {
        let mut container = self.container_basis();
        let own = certificates::writer(self.spec, &self.authority, &self.name());
        for (key, value) in own.as_object().into_iter().flatten() {
            container[key] = value.clone();
        }
        container
    }

    /// What both containers have in common.
    fn container_basis(&self) -> Value {
        let spec = self.spec;
        json!({
            "image": spec.image,
            "imagePullPolicy": "IfNotPresent",
            "workingDir": spec.volume,
            "resources": self.resources(),
            "securityContext": {
                "allowPrivilegeEscalation": false,
                "capabilities": {"drop": ["ALL"], "add": spec.capabilities},
                "privileged": false,
            },
            "volumeMounts": [{"name": "workspace", "mountPath": spec.volume}],
        })
    }

    /// What the pod may use, and what the scheduler reserves for it.
    fn resources(&self) -> Value {
        let spec = self.spec;
        let mut limits = json!({"ephemeral-storage": spec.disk.to_string()});
        let mut requests = json!({});
        let memory = spec.memory.map(|bytes| bytes.to_string());
        set_optional(&mut limits, "memory", memory.as_ref());
        set_optional(&mut requests, "memory", memory.as_ref());
        set_optional(&mut limits, "cpu", spec.cpus.map(quantity).as_ref());
        // Without a request, the limit would be reserved.
        let reserved = spec.reserved_cpus.map_or_else(|| "0".to_owned(), quantity);
        requests["cpu"] = json!(reserved);
        requests["ephemeral-storage"] = json!("0");
        json!({"limits": limits, "requests": requests})
    }
}

/// A fingerprint of everything that a cold start from a template uses. `launch` stands for any.
pub(crate) fn fingerprint(manifest: &SandboxManifest<'_>, engine: PodEngine) -> String {
    let mut parts = vec![manifest.claim(), manifest.secret(), manifest.pod()];
    for part in &mut parts {
        part.sort_all_objects();
    }
    let text = json!([format!("{engine:?}"), parts]).to_string();
    sandbox_provider::short_digest(&[text.as_bytes()])
}

/// The addresses of a URL's host, as pods know them without a look-up.
pub(crate) fn host_aliases(url: &Url, addresses: &[IpAddr]) -> Value {
    let host = url.host_str();
    let aliases = addresses.iter();
    let aliases = aliases.map(|address| json!({"ip": address, "hostnames": [host]}));
    aliases.collect()
}

fn set_optional<T: serde::Serialize + ?Sized>(object: &mut Value, key: &str, value: Option<&T>) {
    if let Some(value) = value {
        object[key] = json!(value);
    }
}

/// Thousandths of a core.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a number of processors, checked to be positive and small"
)]
fn quantity(cpus: f64) -> String {
    format!("{}m", (cpus * 1_000.0).round() as i64)
}

/// Names of ports are at most 15 lower-case characters.
fn port_name(name: &str) -> String {
    let name = name.to_ascii_lowercase().replace('_', "-");
    name.chars().take(15).collect()
}

/// A URL without secret parts.
pub(crate) fn address(url: &Url) -> String {
    let mut url = url.clone();
    // Remove the credentials and keep the rest.
    let _ = (url.set_username(""), url.set_password(None));
    url.set_query(None);
    url.set_fragment(None);
    url.to_string()
}
