//! Builds a Debian package and an archive of the service, in `target/package`.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use anyhow::Context as _;

use crate::run::{cargo, print, program, root, run, say};

/// The tools, in tested versions: `cargo NAME --version` says whether one is installed.
const TOOLS: [(&str, &str, &str); 2] = [
    ("deb", "cargo-deb", "3.8.0"),
    ("cyclonedx", "cargo-cyclonedx", "0.5.9"),
];

/// What the archive contains beside the program: the file, and its directory in the archive.
const FILES: [(&str, &str); 9] = [
    ("config/systemd/agent-workspace.service", "systemd"),
    ("config/systemd/limits.conf", "systemd"),
    ("config/debian/environment", "etc"),
    ("config/debian/apparmor", "apparmor"),
    ("config/default.toml", "doc"),
    ("config/schema.json", "doc"),
    ("README.md", "doc"),
    ("CHANGELOG.md", "doc"),
    ("LICENSE", "."),
];

#[derive(Debug, clap::Args)]
pub(crate) struct PackageArgs {
    /// The profile of the program: `dist`, which takes some 15 minutes, or a quicker one to try a package out.
    #[arg(long, default_value = "dist")]
    profile: String,
}

pub(crate) fn build(args: &PackageArgs) -> anyhow::Result<()> {
    for (command, package, version) in TOOLS {
        install(command, package, version)?;
    }
    let folder = root().join("target/package");
    // Files of an earlier version must not get into the package.
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    say("building the service");
    let mut build = cargo();
    build.args(["build", "--locked", "--package", "server", "--profile"]);
    run(build.arg(&args.profile))?;
    let directory = match args.profile.as_str() {
        "dev" => "debug",
        other => other,
    };
    let service = root()
        .join("target")
        .join(directory)
        .join("agent-workspace");
    run(program(&service).arg("manual").arg(&folder))?;
    describe_dependencies(&folder)?;
    debian_package(&args.profile, &folder)?;
    archive(&service, &folder)
}

fn install(command: &str, package: &str, version: &str) -> anyhow::Result<()> {
    let found = cargo().args([command, "--version"]).output();
    if found.is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    say(&format!(
        "{package} is missing: installing it takes some minutes, once"
    ));
    let package = format!("{package}@{version}");
    run(cargo().args(["install", "--locked", "--debug", "--quiet", &package]))
        .with_context(|| format!("{package} could not be installed: it needs the crates registry"))
}

/// Writes the bill of materials: every crate in the program, with its version and licence.
fn describe_dependencies(folder: &Path) -> anyhow::Result<()> {
    let mut describe = cargo();
    describe.args(["cyclonedx", "--format", "json", "--quiet"]);
    describe.args(["--manifest-path", "crates/server/Cargo.toml"]);
    describe.args(["--override-filename", "sbom.cdx"]);
    run(&mut describe)?;
    // The tool writes one file beside the manifest of each crate of the workspace.
    let mut documents = Vec::new();
    for entry in fs::read_dir(root().join("crates"))? {
        documents.push(entry?.path().join("sbom.cdx.json"));
    }
    let own = root().join("crates/server/sbom.cdx.json");
    fs::copy(&own, folder.join("sbom.cdx.json"))
        .with_context(|| format!("cargo-cyclonedx wrote no {}", own.display()))?;
    documents.push(root().join("tests/sbom.cdx.json"));
    for document in documents.iter().filter(|file| file.exists()) {
        fs::remove_file(document)?;
    }
    Ok(())
}

fn debian_package(profile: &str, folder: &Path) -> anyhow::Result<()> {
    let mut package = cargo();
    package.args([
        "deb",
        "--no-build",
        "--package",
        "server",
        "--profile",
        profile,
    ]);
    run(package.arg("--output").arg(folder))
}

fn archive(service: &Path, folder: &Path) -> anyhow::Result<()> {
    let version = crate::run::output(program(service).arg("--version"))?;
    let version = version.trim().rsplit(' ').next().unwrap_or_default();
    let name = format!("agent-workspace-{version}-{}", std::env::consts::ARCH);
    let staging = folder.join(&name);
    copy(service, &staging.join("bin"))?;
    for (file, directory) in FILES {
        copy(&root().join(file), &staging.join(directory))?;
    }
    copy(&folder.join("sbom.cdx.json"), &staging.join("doc"))?;
    for directory in ["completions", "man"] {
        for entry in fs::read_dir(folder.join(directory))? {
            copy(&entry?.path(), &staging.join(directory))?;
        }
    }
    let file = format!("{name}.tar.gz");
    let mut tar = program("tar");
    tar.current_dir(folder);
    tar.args([
        "--owner=0",
        "--group=0",
        "--sort=name",
        "--create",
        "--gzip",
    ]);
    run(tar.args(["--file", &file, &name]))?;
    fs::remove_dir_all(&staging)?;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if matches!(path.extension().and_then(OsStr::to_str), Some("deb" | "gz")) {
            print(&path.display().to_string());
        }
    }
    Ok(())
}

fn copy(file: &Path, directory: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(directory)?;
    let name = file.file_name().unwrap_or_default();
    fs::copy(file, directory.join(name))
        .with_context(|| format!("cannot copy {}", file.display()))?;
    Ok(())
}
