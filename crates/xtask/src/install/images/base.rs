//! Builds an archive of a small Debian (or Ubuntu) of this machine's release, without documentation.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use super::{folder, hash};
use crate::install::debian;
use crate::run::{output, program, run, say};

/// Change this with the recipe.
const RECIPE: &str = "1";
/// Programs that agents use, and libraries that wheels expect.
const PACKAGES: [&str; 7] = [
    "ca-certificates",
    "curl",
    "git",
    "libstdc++6",
    "procps",
    "tmux",
    "zlib1g",
];
/// The user of agents, who owns the workspace, as in the published images. (The Python may be in root's home.)
const USER: &str = "chmod 0755 \"$1/root\" && chroot \"$1\" useradd --create-home --uid 10001 --shell /bin/bash agent \
     && mkdir -p \"$1/workspace/project\" && chroot \"$1\" chown -R agent:agent /workspace";

/// An existing archive.
pub(super) struct Base {
    pub(super) archive: PathBuf,
}

/// The content of the base; its hash names the archive.
pub(super) struct Recipe {
    release: String,
    packages: Vec<String>,
    pub(super) hash: String,
}

impl Recipe {
    /// The usual packages and these.
    pub(super) fn with(packages: Vec<String>) -> anyhow::Result<Self> {
        let mut packages = [PACKAGES.map(str::to_owned).to_vec(), packages].concat();
        packages.sort();
        packages.dedup();
        let release = release()?;
        let list = packages.join(",");
        let hash = hash([RECIPE, USER, &release, &list].map(str::as_bytes));
        Ok(Self {
            release,
            packages,
            hash,
        })
    }

    /// Builds the archive unless it exists.
    pub(super) fn make(&self) -> anyhow::Result<Base> {
        let archive = folder()?.join(format!("base-{}-{}.tar", self.release, self.hash));
        if archive.exists() {
            return Ok(Base { archive });
        }
        if !debian::has_program("mmdebstrap") {
            debian::install("mmdebstrap", &["mmdebstrap"])?;
        }
        say(&format!(
            "making a small {} for images: {}",
            self.release,
            self.packages.join(" ")
        ));
        let sources = folder()?.join("base-sources.list");
        fs::write(&sources, self::sources()?)?;
        let unfinished = folder()?.join("base-unfinished.tar");
        let mut command = program("mmdebstrap");
        command.args(["--quiet", "--variant=minbase", "--dpkgopt=force-unsafe-io"]);
        for nobody_reads in ["doc", "man", "info", "locale"] {
            command.arg(format!(
                "--dpkgopt=path-exclude=/usr/share/{nobody_reads}/*"
            ));
        }
        command
            .arg("--aptopt=Apt::Install-Recommends \"false\"")
            .arg(format!("--include={}", self.packages.join(",")))
            .arg(format!("--customize-hook={USER}"))
            .arg(&self.release)
            .arg(&unfinished)
            .arg(&sources);
        // Remove archives of earlier recipes first, because an unfinished new one has a similar name.
        for earlier in fs::read_dir(folder()?)?.flatten() {
            let name = earlier.file_name();
            let name = name.to_string_lossy();
            if name.starts_with("base-") && name.ends_with(".tar") {
                fs::remove_file(earlier.path())?;
            }
        }
        run(&mut command)?;
        fs::rename(&unfinished, &archive)?;
        Ok(Base { archive })
    }
}

fn release() -> anyhow::Result<String> {
    let text = fs::read_to_string("/etc/os-release")
        .context("cannot read /etc/os-release; images need Debian or Ubuntu")?;
    let name = text
        .lines()
        .find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let name = name.map(|name| name.trim_matches('"').to_owned());
    name.context(
        "/etc/os-release names no VERSION_CODENAME: images are made on Debian or Ubuntu only",
    )
}

/// The mirrors of this machine, without comments, which confuse mmdebstrap.
fn sources() -> anyhow::Result<String> {
    let keyring = ["debian", "ubuntu"]
        .map(|name| format!("/usr/share/keyrings/{name}-archive-keyring.gpg"))
        .into_iter()
        .find(|file| Path::new(file).exists())
        .map(|file| format!("[signed-by={file}] "))
        .unwrap_or_default();
    let format = format!("deb {keyring}$(REPO_URI) $(RELEASE) $(COMPONENT)");
    let mut command = program("apt-get");
    command.args(["indextargets", "--format", &format, "Created-By: Packages"]);
    let known = output(&mut command)?;
    let mut lines: Vec<&str> = known.lines().collect();
    lines.sort_unstable();
    lines.dedup();
    let is_distribution_line = |line: &&str| line.contains("debian") || line.contains("ubuntu");
    lines.retain(is_distribution_line);
    if lines.is_empty() {
        bail!("apt has no package lists: run apt-get update");
    }
    Ok(lines.join("\n") + "\n")
}
