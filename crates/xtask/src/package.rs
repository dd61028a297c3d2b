//! Builds a Debian package, an archive and a container image of the service, in `target/package`.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;

use crate::run::{cargo, print, program, root, run, say};

/// A command of cargo that makes a part of the packages.
struct Tool {
    /// `cargo NAME --version` says whether it is installed.
    command: &'static str,
    package: &'static str,
    /// The tested version.
    version: &'static str,
    /// Further arguments of `cargo install`.
    arguments: &'static [&'static str],
}

const TOOLS: [Tool; 3] = [
    Tool {
        command: "deb",
        package: "cargo-deb",
        version: "3.8.0",
        arguments: &["--debug"],
    },
    Tool {
        command: "cyclonedx",
        package: "cargo-cyclonedx",
        version: "0.5.9",
        arguments: &["--debug"],
    },
    // It compares thousands of texts, so it is not built for debugging.
    Tool {
        command: "about",
        package: "cargo-about",
        version: "0.9.3",
        arguments: &["--features", "cli"],
    },
];

const DOCUMENTS: &str = "share/doc/agent-workspace";

/// What the archive contains beside the program: the file, and its directory in the archive.
const FILES: [(&str, &str); 11] = [
    ("config/systemd/agent-workspace.service", "systemd"),
    ("config/systemd/limits.conf", "systemd"),
    ("config/debian/environment", "etc"),
    ("config/debian/apparmor", "apparmor"),
    ("config/default.toml", DOCUMENTS),
    ("config/schema.json", DOCUMENTS),
    ("README.md", DOCUMENTS),
    ("CHANGELOG.md", DOCUMENTS),
    ("LICENSE", DOCUMENTS),
    ("target/package/licenses.txt", DOCUMENTS),
    ("target/package/sbom.cdx.json", DOCUMENTS),
];

/// The image that has only the program, for the stage `program` of the Dockerfile.
const PROGRAM_IMAGE: &str = "agent-workspace-program";

#[derive(Debug, clap::Args)]
pub(crate) struct PackageArgs {
    /// The profile of the program: `dist`, which takes some 15 minutes, or a quicker one to try a package out.
    #[arg(long, default_value = "dist")]
    profile: String,
}

impl PackageArgs {
    /// Packages to try out.
    pub(crate) fn quick() -> Self {
        Self {
            profile: "release".to_owned(),
        }
    }
}

pub(crate) fn build(args: &PackageArgs) -> anyhow::Result<()> {
    for tool in &TOOLS {
        install(tool)?;
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
    collect_licenses(&folder)?;
    web_app(&service, &folder)?;
    debian_package(&args.profile, &folder)?;
    let version = crate::run::output(program(&service).arg("--version"))?;
    let version = version.trim().rsplit(' ').next().unwrap_or_default();
    let name = format!("agent-workspace-{version}-{}", std::env::consts::ARCH);
    let staging = folder.join(&name);
    stage(&service, &folder, &staging)?;
    say("packing the archive");
    let file = format!("{name}.tar.gz");
    run(tar(&folder).args(["--gzip", "--create", "--file", &file, &name]))?;
    image(&folder, version, &name)?;
    fs::remove_dir_all(&staging)?;
    for entry in fs::read_dir(&folder)? {
        let path = entry?.path();
        if matches!(path.extension().and_then(OsStr::to_str), Some("deb" | "gz")) {
            print(&path.display().to_string());
        }
    }
    Ok(())
}

fn install(tool: &Tool) -> anyhow::Result<()> {
    let Tool {
        command,
        package,
        version,
        arguments,
    } = tool;
    let found = cargo().args([command, "--version"]).output();
    if found.is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    say(&format!(
        "{package} is missing: installing it takes some minutes, once"
    ));
    let exact = format!("{package}@{version}");
    let mut install = cargo();
    install.args(["install", "--locked", "--quiet", &exact]);
    run(install.args(*arguments))
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

/// Writes the licences of the crates in the program, and of the web application.
fn collect_licenses(folder: &Path) -> anyhow::Result<()> {
    say("collecting licences");
    let mut about = cargo();
    about.args(["about", "generate", "--locked", "--offline", "--fail"]);
    about.args(["--manifest-path", "crates/server/Cargo.toml"]);
    about.args(["--config", "config/licenses.toml", "--output-file"]);
    run(about
        .arg(folder.join("licenses.txt"))
        .arg("config/licenses.hbs"))
}

/// Installs the web application as the service does, so that an installed package downloads none.
fn web_app(service: &Path, folder: &Path) -> anyhow::Result<()> {
    let mut install = program(service);
    install.args(["web", "install"]);
    run(install.env("WORKSPACE_DATA_DIR", folder.join("share")))
        .context("the packages contain the web application, which needs an npm registry (WORKSPACE_WEB__REGISTRY)")?;
    fs::remove_file(folder.join("share/web-app/lock"))?;
    // The service keeps its own build to itself, and a package's is for every user.
    run(program("chmod")
        .args(["--recursive", "u=rwX,go=rX"])
        .arg(folder.join("share")))
}

fn debian_package(profile: &str, folder: &Path) -> anyhow::Result<()> {
    say("packing the Debian package");
    let mut package = cargo();
    package.args(["deb", "--no-build", "--package", "server"]);
    package.args(["--profile", profile, "--output"]);
    run(package.arg(folder))
}

/// Puts the files of the archive in their places.
fn stage(service: &Path, folder: &Path, staging: &Path) -> anyhow::Result<()> {
    copy(service, &staging.join("bin"))?;
    for (file, directory) in FILES {
        copy(&root().join(file), &staging.join(directory))?;
    }
    for directory in ["completions", "man"] {
        for entry in fs::read_dir(folder.join(directory))? {
            copy(&entry?.path(), &staging.join(directory))?;
        }
    }
    let share = staging.join("share/agent-workspace");
    fs::create_dir_all(&share)?;
    run(program("cp")
        .args(["--recursive", "--preserve=mode"])
        .arg(folder.join("share/web-app"))
        .arg(share))
}

/// Builds the image with the Dockerfile, from the program that is built already.
fn image(folder: &Path, version: &str, name: &str) -> anyhow::Result<()> {
    let found = program("docker").args(["buildx", "version"]).output();
    if !found.is_ok_and(|output| output.status.success()) {
        say("no container image: it needs a Docker engine and the plugin buildx");
        return Ok(());
    }
    say("building the container image");
    let archive = folder.join("program.tar");
    let mut pack = tar(&folder.join(name));
    pack.args(["--transform", "s,^,agent-workspace/,"]);
    pack.arg("--create").arg("--file").arg(&archive);
    run(pack.args(["bin", "share"]))?;
    run(program("docker")
        .arg("import")
        .arg(&archive)
        .arg(PROGRAM_IMAGE))?;
    fs::remove_file(&archive)?;
    let tag = format!("agent-workspace:{version}");
    let mut build = program("docker");
    build.args(["buildx", "build", "--load", "--tag", &tag]);
    build.args(["--build-arg", &format!("PROGRAM={PROGRAM_IMAGE}")]);
    let result = run(build.arg("."));
    run(program("docker").args(["image", "rm", PROGRAM_IMAGE]))?;
    result?;
    let file = folder.join(format!("{name}.image.tar"));
    run(program("docker")
        .args(["image", "save", "--output"])
        .arg(&file)
        .arg(&tag))?;
    run(program("gzip").arg("--force").arg(&file))
}

/// `tar` in a directory. The same files make the same archive, but for their times.
fn tar(directory: &Path) -> Command {
    let mut tar = program("tar");
    tar.current_dir(directory);
    tar.args(["--owner=0", "--group=0", "--sort=name"]);
    tar
}

fn copy(file: &Path, directory: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(directory)?;
    let name = file.file_name().unwrap_or_default();
    fs::copy(file, directory.join(name))
        .with_context(|| format!("cannot copy {}", file.display()))?;
    Ok(())
}
