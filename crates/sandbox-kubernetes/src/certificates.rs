//! The certificates that programs of a pod with a proxy trust: those of its image, and that of the sandbox's authority, with which
//! the service stands for hosts that get secrets. A container of the same image writes them before the agent server starts.

use std::collections::BTreeSet;

use sandbox_provider::{CERTIFICATE_VARIABLES, SYSTEM_CERTIFICATES};
use serde_json::{Value, json};

use crate::config::KubernetesSpec;

const PROGRAM: &str = include_str!("certificates.sh");
/// In the volume, which all users of the pod may write.
const NAME: &str = ".certificates.pem";

/// Longest time until a pod reaches the proxy. A service that is moved with its sandboxes is back by then.
const PROXY_TIMEOUT_SECONDS: u8 = 60;

/// The file in a pod with this volume.
pub(crate) fn path(volume: &str) -> String {
    format!("{volume}/{NAME}")
}

/// What the container of the agent server does not have in common with the one that writes the file. `authority` is a certificate,
/// which is no secret. A Secret of this name has the variables of the pod.
pub(crate) fn writer(spec: &KubernetesSpec, authority: &str, secret: &str) -> Value {
    let named: BTreeSet<&String> = CERTIFICATE_VARIABLES
        .iter()
        .filter_map(|name| spec.env.get(*name))
        .collect();
    let replaces_system = spec.env.contains_key(CERTIFICATE_VARIABLES[0]);
    let of_system = SYSTEM_CERTIFICATES.iter().filter(|_| !replaces_system);
    let arguments = named.into_iter().map(String::as_str).chain(["--"]);
    let arguments: Vec<&str> = arguments.chain(of_system.copied()).collect();
    json!({
        "name": "certificates",
        "command": ["sh", "-c", PROGRAM, path(&spec.volume)],
        "args": arguments,
        "env": [
            {"name": "AUTHORITY", "value": authority},
            {"name": "PROXY_TIMEOUT", "value": PROXY_TIMEOUT_SECONDS.to_string()},
            // The pods of a `Sandbox` stay as they are when the service has no proxy any more.
            {"name": "PROXY", "valueFrom": {"secretKeyRef": {"name": secret, "key": "https_proxy", "optional": true}}},
        ],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::{Command, Output};

    use super::*;
    use crate::config::KubernetesConfig;

    fn spec(env: &[(&str, &str)]) -> KubernetesSpec {
        let instance = domain::id::HostId::parse("host").unwrap();
        let mut spec = KubernetesConfig::new(instance).specs.remove(0);
        let env = env
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()));
        spec.env = env.collect();
        spec
    }

    /// Runs the program with these files.
    fn run(target: &str, files: &[&str]) -> Output {
        run_with_proxy(target, files, "")
    }

    fn run_with_proxy(target: &str, files: &[&str], proxy: &str) -> Output {
        let mut command = Command::new("sh");
        command
            .args(["-c", PROGRAM, target])
            .args(files)
            .env("AUTHORITY", "authority")
            .env("PROXY", proxy)
            .env("PROXY_TIMEOUT", "0");
        command.output().unwrap()
    }

    #[test]
    fn files_of_the_templates_variables_come_before_the_systems() {
        let arguments = |env: &[(&str, &str)]| writer(&spec(env), "a", "b")["args"].clone();
        let system = json!(SYSTEM_CERTIFICATES);
        let with_system = |named: &[&str]| {
            let mut all: Vec<Value> = named.iter().map(|it| json!(it)).collect();
            all.push(json!("--"));
            all.extend(system.as_array().unwrap().iter().cloned());
            json!(all)
        };
        assert_eq!(arguments(&[]), with_system(&[]));
        let named = [
            ("PIP_CERT", "/b.pem"),
            ("CURL_CA_BUNDLE", "/a.pem"),
            ("OTHER", "/c.pem"),
        ];
        assert_eq!(arguments(&named), with_system(&["/a.pem", "/b.pem"]));
        let replaced = [("PIP_CERT", "/b.pem"), ("SSL_CERT_FILE", "/b.pem")];
        assert_eq!(arguments(&replaced), json!(["/b.pem", "--"]));
    }

    #[test]
    fn the_program_collects_what_is_there() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        let (own, system, target) = (path("own"), path("system"), path("target"));
        fs::write(&own, "own").unwrap();
        fs::write(&system, "system\n").unwrap();
        // An agent's directory is in the way.
        fs::create_dir_all(path("target/x")).unwrap();
        let absent = path("absent");
        for (files, expected) in [
            (
                vec![&*own, "--", &absent, &system, &own],
                Some("own\nsystem\n\nauthority\n"),
            ),
            (vec![&absent, "--", &system], Some("system\n\nauthority\n")),
            (vec![&own, "--"], Some("own\nauthority\n")),
            (vec!["--", &absent], None),
        ] {
            let output = run(&target, &files);
            let error = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.success(), expected.is_some(), "{error}");
            match expected {
                Some(expected) => assert_eq!(fs::read_to_string(&target).unwrap(), expected),
                None => assert!(error.contains("install ca-certificates"), "{error}"),
            }
        }
        let output = run(&path("absent/target"), &["--", &system]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains("its volume cannot be written"), "{error}");
    }

    #[test]
    fn the_program_writes_for_java_what_the_service_writes() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        let (own, target) = (path("own"), path("target.pem"));
        let certificate = |text: &str| {
            format!("# {text}\n-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
        };
        for text in [
            String::new(),
            [certificate("AQID"), certificate("BAU=")].concat(),
        ] {
            fs::write(&own, &text).unwrap();
            let output = run(&target, &[&own, "--"]);
            assert!(output.status.success(), "{output:?}");
            let written = fs::read(path("target.jks")).unwrap();
            assert_eq!(written, sandbox_provider::java_trust_store(text.as_bytes()));
        }
    }

    #[test]
    fn the_program_fails_where_the_proxy_is_not_reached() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("target");
        let files = [target.to_str().unwrap(), "--"];
        let (target, arguments) = (files[0], &files[1..]);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = format!("http://{}", listener.local_addr().unwrap());
        let reached = run_with_proxy(target, arguments, &proxy);
        assert!(reached.status.success(), "{reached:?}");
        drop(listener);
        let refused = run_with_proxy(target, arguments, &proxy);
        let error = String::from_utf8(refused.stderr).unwrap();
        assert!(
            !refused.status.success() && error.contains(&proxy),
            "{error}"
        );
    }
}
