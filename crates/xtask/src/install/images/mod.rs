//! Builds the images of the suites' sandboxes without a registry. Each image has a label with a hash of its inputs, and is
//! rebuilt when that changes. Its tag is written to `target/acceptance/*.image`.

mod agent_server;
mod base;
mod stub;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use sha2::{Digest as _, Sha256};

use crate::run::{output, print, program, root};

pub(crate) use agent_server::prepare as agent_server;
pub(crate) use stub::prepare as stub;

/// The label with the hash.
const LABEL: &str = "agent-workspace.test-image";

/// `target/acceptance`, which holds all results.
fn folder() -> anyhow::Result<PathBuf> {
    let folder = root().join("target").join("acceptance");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder)
}

/// Locks the builds of images, so that two commands build each image once. The kernel releases the lock with the process.
fn lock() -> anyhow::Result<File> {
    let file = File::create(folder()?.join("images.lock"))?;
    file.lock()?;
    Ok(file)
}

/// Writes the tag for the suites.
fn hand_over(name: &str, tag: &str) -> anyhow::Result<()> {
    let file = folder()?.join(format!("{name}.image"));
    fs::write(&file, tag).with_context(|| format!("cannot write {}", file.display()))?;
    print(&format!("image of {name}: {tag}"));
    Ok(())
}

/// A hash of several parts, short enough for a tag.
fn hash<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part.len().to_le_bytes());
        hasher.update(part);
    }
    let digest = format!("{:x}", hasher.finalize());
    digest[..16].to_owned()
}

/// Whether the engine has an image with this tag and hash.
fn is_there(tag: &str, hash: &str) -> bool {
    let format = format!("{{{{index .Config.Labels {LABEL:?}}}}}");
    let known = docker()
        .args(["image", "inspect", "--format", &format, tag])
        .output();
    known.is_ok_and(|known| {
        known.status.success() && String::from_utf8_lossy(&known.stdout).trim() == hash
    })
}

/// The settings of an image, for `docker import --change`.
#[derive(Debug, Default)]
struct ImageChanges(Vec<String>);

impl ImageChanges {
    fn of(hash: &str) -> Self {
        Self(vec![format!("LABEL {LABEL}={hash}")])
    }

    fn with(mut self, change: impl Into<String>) -> Self {
        self.0.push(change.into());
        self
    }
}

/// Creates an image of a file system.
fn import(archive: &Path, tag: &str, changes: &ImageChanges) -> anyhow::Result<()> {
    let mut command = docker();
    command.arg("import");
    for change in &changes.0 {
        command.arg("--change").arg(change);
    }
    output(command.arg(archive).arg(tag))?;
    Ok(())
}

fn docker() -> Command {
    program("docker")
}

/// GNU tar with root as owner of all files.
fn tar() -> Command {
    let mut command = program("tar");
    command.args(["--numeric-owner", "--owner=0", "--group=0"]);
    command
}

/// The shared libraries of programs and libraries, including the loader.
fn libraries<P: AsRef<OsStr>>(files: impl IntoIterator<Item = P>) -> anyhow::Result<Vec<PathBuf>> {
    let mut command = program("ldd");
    command.args(files);
    // `ldd` fails for files that are not dynamic programs.
    let known = command.output().context("cannot run ldd")?;
    let said = String::from_utf8_lossy(&known.stdout);
    let mut found: Vec<PathBuf> = said.lines().filter_map(library).collect();
    if found.is_empty() {
        bail!(
            "ldd finds no libraries: {}",
            String::from_utf8_lossy(&known.stderr)
        );
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// `libm.so.6 => /lib/libm.so.6 (0x…)`, or `/lib64/ld-linux-x86-64.so.2 (0x…)`
fn library(line: &str) -> Option<PathBuf> {
    let line = line.split_once("=>").map_or(line, |(_, path)| path).trim();
    let (path, _) = line.split_once(" (0x")?;
    path.starts_with('/').then(|| path.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_have_paths() {
        let lines = [
            (
                "\tlibc.so.6 => /lib/x/libc.so.6 (0x00007f2f)",
                Some("/lib/x/libc.so.6"),
            ),
            (
                "\t/lib64/ld-linux-x86-64.so.2 (0x00007f2f)",
                Some("/lib64/ld-linux-x86-64.so.2"),
            ),
            ("\tlinux-vdso.so.1 (0x00007f2f)", None),
            ("/usr/bin/true:", None),
        ];
        for (line, path) in lines {
            assert_eq!(library(line), path.map(PathBuf::from), "{line}");
        }
    }

    #[test]
    fn parts_are_distinguished() {
        let ab: [&[u8]; 2] = [b"a", b"b"];
        assert_ne!(hash(ab), hash([b"ab".as_slice()]));
        assert_eq!(hash(ab), hash(ab));
    }
}
