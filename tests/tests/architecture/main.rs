//! Rules about the source code: dependencies between crates, owners of drivers, and tidiness. A new crate is added to `MAY_USE`; a
//! new edge there is a decision for review.

mod circles;
mod manifests;
mod names;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use manifests::{Edge, edges, metadata};

/// Crates of this workspace that each crate may depend on.
const MAY_USE: &[(&str, &[&str])] = &[
    ("domain", &[]),
    ("application", &["domain"]),
    ("port-conformance", &["domain"]),
    ("store-memory", &["domain"]),
    ("store-sql", &["domain"]),
    // Sockets of this machine, and connections to them.
    ("endpoint-guard", &[]),
    // Files with secrets.
    ("settings", &["keyring"]),
    (
        "sandbox-provider",
        &["domain", "endpoint-guard", "settings"],
    ),
    (
        "sandbox-process",
        &["domain", "endpoint-guard", "sandbox-provider", "settings"],
    ),
    (
        "sandbox-docker",
        &["domain", "endpoint-guard", "sandbox-provider", "settings"],
    ),
    (
        "sandbox-kubernetes",
        &["domain", "endpoint-guard", "sandbox-provider", "settings"],
    ),
    // A cluster for tests, which knows Kubernetes alone.
    ("fake-kubernetes", &[]),
    // For tests, and for readers of the tutorial.
    (
        "sandbox-example",
        &["domain", "endpoint-guard", "sandbox-provider", "settings"],
    ),
    (
        "agent-client",
        &["domain", "endpoint-guard", "outbound-http"],
    ),
    ("git-hosting", &["domain", "outbound-http"]),
    ("oidc", &["domain", "outbound-http"]),
    ("smtp", &["domain"]),
    // Requests to other machines, without knowledge of their APIs.
    ("outbound-http", &[]),
    ("keyring", &["domain"]),
    ("broker", &["domain", "outbound-http"]),
    // Forwards HTTP without knowledge of its meaning.
    ("gateway", &["endpoint-guard"]),
    ("skill-library", &["domain"]),
    // Files for browsers, without a server.
    ("web-console", &[]),
    ("web-app", &["outbound-http"]),
    // Knows the service only by HTTP.
    ("client", &["outbound-http"]),
    ("telemetry", &["outbound-http"]),
    // It knows the syntax of Rust.
    ("http-api-derive", &[]),
    (
        "http-api",
        &[
            "domain",
            "application",
            "broker",
            "endpoint-guard",
            "gateway",
            "http-api-derive",
            "web-app",
            "web-console",
        ],
    ),
    (
        "server",
        &[
            "domain",
            "endpoint-guard",
            "application",
            "http-api",
            "store-sql",
            "sandbox-process",
            "sandbox-docker",
            "sandbox-kubernetes",
            "sandbox-provider",
            "settings",
            "agent-client",
            "broker",
            "git-hosting",
            "oidc",
            "smtp",
            "keyring",
            "skill-library",
            "client",
            "telemetry",
            "web-app",
        ],
    ),
    ("xtask", &[]),
    // Black-box tests: know the service only as a binary and by HTTP.
    ("acceptance", &["client", "fake-kubernetes"]),
];

/// The same for tests and benchmarks of the crate, in addition.
const MAY_USE_IN_TESTS: &[(&str, &[&str])] = &[
    ("application", &["store-memory"]),
    ("store-memory", &["port-conformance"]),
    ("store-sql", &["port-conformance", "keyring"]),
    ("sandbox-process", &["port-conformance", "keyring"]),
    ("sandbox-docker", &["port-conformance", "keyring"]),
    (
        "sandbox-kubernetes",
        &["port-conformance", "fake-kubernetes"],
    ),
    ("sandbox-example", &["port-conformance"]),
    ("server", &["sandbox-example"]),
    ("agent-client", &["port-conformance", "keyring"]),
    ("http-api", &["store-memory", "keyring"]),
];

/// External crates that only these crates may depend on. `PURE` limits the others.
const OWNED: &[(&str, &[&str])] = &[
    // The suites read the service's database as an operator does.
    ("diesel", &["store-sql", "acceptance"]),
    ("diesel_migrations", &["store-sql"]),
    ("libsqlite3-sys", &["store-sql"]),
    ("pq-sys", &["store-sql"]),
    ("r2d2", &["store-sql"]),
    ("bollard", &["sandbox-docker"]),
    ("kube", &["sandbox-kubernetes"]),
    ("k8s-openapi", &["sandbox-kubernetes", "fake-kubernetes"]),
    ("reqwest", &["acceptance"]),
    (
        "hyper",
        &[
            "agent-client",
            "broker",
            "client",
            "endpoint-guard",
            // A server, as the API server is one.
            "fake-kubernetes",
            "gateway",
            "git-hosting",
            "oidc",
            "outbound-http",
            "telemetry",
            "web-app",
        ],
    ),
    ("hyper-rustls", &["outbound-http"]),
    ("lettre", &["smtp"]),
    (
        "hyper-util",
        &[
            "agent-client",
            // The forward proxy is a server on sockets of its own.
            "broker",
            "endpoint-guard",
            "fake-kubernetes",
            "gateway",
            "outbound-http",
            // The tests connect as the service does.
            "sandbox-process",
        ],
    ),
    // The tests of the forward proxy send what TLS clients send.
    ("rustls", &["outbound-http", "broker"]),
    ("ring", &["oidc", "sandbox-provider"]),
    ("rustls-pki-types", &["sandbox-provider"]),
    ("rustls-native-certs", &["outbound-http"]),
    ("opentelemetry", &["telemetry"]),
    ("opentelemetry_sdk", &["telemetry"]),
    // The test of exported traces decodes them as a collector does.
    ("opentelemetry-proto", &["telemetry", "acceptance"]),
    ("prost", &["telemetry", "acceptance"]),
    ("tracing-opentelemetry", &["telemetry"]),
    (
        "actix-web",
        &["http-api", "gateway", "server", "acceptance"],
    ),
    ("utoipa", &["http-api"]),
    ("utoipa-actix-web", &["http-api"]),
    ("utoipa-swagger-ui", &["http-api"]),
    ("flate2", &["http-api", "web-app"]),
    ("tar", &["sandbox-docker", "web-app"]),
    ("crc32fast", &["http-api"]),
    ("zip", &["http-api"]),
    ("aes-gcm", &["keyring"]),
    ("hmac", &["keyring"]),
    ("rand", &["keyring"]),
    ("zeroize", &["keyring"]),
    ("saphyr-parser", &["skill-library"]),
    ("serde_with", &["client"]),
    ("clap", &["server", "xtask"]),
    ("toml", &["server", "settings", "acceptance"]),
    // The tests of the Docker backend search the log for secrets; those of all backends look at spans.
    (
        "tracing-subscriber",
        &["server", "sandbox-docker", "sandbox-provider", "telemetry"],
    ),
    // Providers of backends are a part of the composition.
    (
        "anyhow",
        &[
            "server",
            "sandbox-provider",
            "sandbox-process",
            "sandbox-docker",
            "sandbox-kubernetes",
            "sandbox-example",
            "xtask",
            "acceptance",
        ],
    ),
];

const VOCABULARY: &[&str] = &[
    "async-trait",
    "base64",
    "chrono",
    "futures",
    "secrecy",
    "serde",
    "serde_json",
    "thiserror",
    "url",
    "uuid",
];

/// External crates, in addition to `VOCABULARY`, that crates without a technology may depend on.
const PURE: &[(&str, &[&str])] = &[
    ("domain", &["sha2", "smol_str"]),
    ("application", &["moka", "tokio", "tokio-util", "tracing"]),
    ("port-conformance", &["tokio"]),
];

/// Longest source file.
const MAX_LINES: usize = 500;

fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests
        .parent()
        .expect("the suites are in a folder of the root")
        .to_owned()
}

fn allows(table: &[(&str, &[&str])], from: &str, to: &str) -> bool {
    let mut rows = table.iter();
    rows.any(|(name, allowed)| *name == from && allowed.contains(&to))
}

/// The edges that break the rules.
fn violations(edges: &[Edge]) -> Vec<String> {
    let is_violation = |edge: &&Edge| {
        let (from, to) = (edge.from.as_str(), edge.to.as_str());
        if edge.is_internal {
            let in_tests = edge.is_for_tests && allows(MAY_USE_IN_TESTS, from, to);
            return !allows(MAY_USE, from, to) && !in_tests;
        }
        let owner = OWNED.iter().find(|(name, _)| *name == to);
        let is_foreign = owner.is_some_and(|(_, owners)| !owners.contains(&from));
        let pure = PURE.iter().find(|(name, _)| *name == from);
        let is_impure = pure.is_some_and(|(_, allowed)| {
            !edge.is_for_tests && !VOCABULARY.contains(&to) && !allowed.contains(&to)
        });
        is_foreign || is_impure
    };
    edges
        .iter()
        .filter(is_violation)
        .map(|edge| format!("{} -> {}", edge.from, edge.to))
        .collect()
}

#[test]
fn crates_have_only_allowed_dependencies() {
    let metadata = metadata();
    let known: BTreeSet<&str> = MAY_USE.iter().map(|(name, _)| *name).collect();
    let present: BTreeSet<&str> = metadata.packages.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(
        present, known,
        "`MAY_USE` lists exactly the crates of the workspace"
    );
    assert_eq!(violations(&edges(&metadata)), [""; 0]);
}

#[test]
fn forbidden_edges_are_found() {
    let edge = |from: &str, to: &str, is_internal, is_for_tests| Edge {
        from: from.into(),
        to: to.into(),
        is_internal,
        is_for_tests,
    };
    let allowed = [
        edge("http-api", "application", true, false),
        edge("application", "store-memory", true, true),
        edge("store-sql", "diesel", false, false),
        edge("domain", "proptest", false, true),
    ];
    assert_eq!(violations(&allowed), [""; 0]);
    let forbidden = [
        edge("http-api", "store-sql", true, false),
        edge("application", "store-memory", true, false),
        edge("unlisted", "domain", true, false),
        edge("http-api", "diesel", false, true),
        edge("domain", "tokio", false, false),
    ];
    assert_eq!(violations(&forbidden).len(), forbidden.len());
}

#[test]
fn every_crate_inherits_the_lints_and_every_dependency_from_the_workspace() {
    let mut wrong = Vec::new();
    for package in &metadata().packages {
        let manifest: toml::Table = fs::read_to_string(&package.manifest_path)
            .expect("a manifest is readable")
            .parse()
            .expect("a manifest is TOML");
        let inherits = |value: &toml::Value| {
            value.get("workspace").and_then(toml::Value::as_bool) == Some(true)
        };
        if !manifest.get("lints").is_some_and(inherits) {
            wrong.push(format!(
                "{}: [lints] workspace = true is missing",
                package.name
            ));
        }
        for kind in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let table = manifest.get(kind).and_then(toml::Value::as_table);
            for (name, value) in table.into_iter().flatten() {
                if !inherits(value) {
                    wrong.push(format!("{}: {name} is not inherited", package.name));
                }
            }
        }
        if manifest.contains_key("target") {
            wrong.push(format!(
                "{}: dependencies of one platform are not checked",
                package.name
            ));
        }
    }
    assert_eq!(wrong, [""; 0]);
}

#[test]
fn every_target_starts_with_a_module_comment() {
    let mut wrong = Vec::new();
    for package in &metadata().packages {
        for target in &package.targets {
            let text = fs::read_to_string(&target.src_path).expect("a target has a source file");
            if !text.starts_with("//!") {
                wrong.push(target.src_path.to_string());
            }
        }
    }
    assert_eq!(wrong, [""; 0], "these start without `//!`");
}

#[test]
fn only_the_composition_root_names_adapters() {
    let mut wrong = Vec::new();
    for (path, text) in sources("crates/server/src") {
        if path.ends_with("compose.rs")
            || path
                .parent()
                .is_some_and(|parent| parent.ends_with("compose"))
        {
            continue;
        }
        for adapter in [
            "store_sql",
            "sandbox_process",
            "sandbox_docker",
            "sandbox_kubernetes",
            "sandbox_example",
            "agent_client",
            "git_hosting",
            "oidc",
            "smtp",
            "web_app",
        ] {
            if text.contains(&format!("{adapter}::")) {
                wrong.push(format!("{} names {adapter}", path.display()));
            }
        }
    }
    assert_eq!(wrong, [""; 0]);
}

#[test]
fn the_tree_is_tidy() {
    // In two parts, so that this file does not contain them.
    let words = [
        ("TO", "DO"),
        ("FIX", "ME"),
        ("unimpl", "emented!"),
        ("to", "do!("),
        ("dbg", "!("),
    ];
    let machine_paths = [("/work", "/main"), ("/work", "/shared"), ("/ro", "ot/")];
    let whole = |parts: &[(&str, &str)]| -> Vec<String> {
        parts.iter().map(|(a, b)| format!("{a}{b}")).collect()
    };
    let forbidden = [whole(&words), whole(&machine_paths)].concat();
    let mut wrong = BTreeMap::new();
    for (path, text) in ["crates", "tests", "config", "docs", ".ci", ".cargo"]
        .into_iter()
        .flat_map(sources)
    {
        let is_source = path.extension().is_some_and(|extension| extension == "rs");
        if is_source && text.lines().count() > MAX_LINES {
            wrong.insert(path.clone(), format!("longer than {MAX_LINES} lines"));
        }
        if let Some(word) = forbidden.iter().find(|word| text.contains(word.as_str())) {
            wrong.insert(path.clone(), format!("contains {word}"));
        }
        if is_source && text.lines().any(|line| line.ends_with([' ', '\t'])) {
            wrong.insert(
                path.clone(),
                "has white space at the end of a line".to_owned(),
            );
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The field `error` of a log line contains all causes (docs/reference/log.md), so it is written by `domain::error::chain`.
#[test]
fn an_error_in_the_log_has_its_causes() {
    // These crates do not depend on `domain` and print all causes themselves.
    let strangers =
        ["crates/gateway/", "crates/telemetry/", "crates/xtask/"].map(|folder| root().join(folder));
    // In two parts, so that this file does not contain them.
    let alone =
        [("%", "error,"), ("?", "error,"), ("error = ", "?")].map(|(a, b)| format!("{a}{b}"));
    let shown = format!("error = {}", "%");
    let mut wrong = Vec::new();
    for (path, text) in sources("crates") {
        if strangers.iter().any(|it| path.starts_with(it)) {
            continue;
        }
        for (number, line) in (1..).zip(text.lines()) {
            let is_alone = alone.iter().any(|it| line.contains(it.as_str()));
            let mut rest = line.split(shown.as_str()).skip(1);
            if is_alone || rest.any(|value| !value.starts_with("chain(")) {
                wrong.push(format!("{}:{number}", path.display()));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "use `error = {}chain(&error)`: {wrong:#?}",
        "%"
    );
}

/// Text files below a folder of the repository (which may not exist).
fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else {
            continue;
        };
        for entry in entries {
            let entry = entry.expect("a folder's entry is readable");
            let path = entry.path();
            let kind = entry.file_type().expect("an entry has a type");
            if kind.is_dir() {
                if entry.file_name() != "target" {
                    folders.push(path);
                }
            } else if let Ok(text) = fs::read_to_string(&path) {
                found.push((path, text));
            }
        }
    }
    found
}

#[test]
fn sources_are_found() {
    assert!(
        sources("tests")
            .iter()
            .any(|(path, _)| path.ends_with("architecture/main.rs"))
    );
}
