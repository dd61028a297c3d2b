//! Builds an image with the real agent server: a small system, this machine's Python, and the installation of the
//! process suites at `/opt/agent-server`, started by its `boot.py`. `python3` and `uv` are on the path.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use super::base::Recipe;
use super::{ImageChanges, folder, hand_over, hash, import, is_there, libraries, lock, tar};
use crate::run::{output, program, run, say};

/// Change this with the recipe.
const RECIPE: &str = "6";
const REPOSITORY: &str = "agent-workspace-test/agent-server";
/// The installation's path in the image.
const INSTALL_DIR: &str = "opt/agent-server";
/// The start script in the installation.
const BOOT: &str = "boot.py";
/// Packages that are never imported, or that the system's own packages provide.
const EXCLUDED_PACKAGES: [&str; 10] = [
    "test",
    "idlelib",
    "ensurepip",
    "turtledemo",
    "tkinter",
    "config-*",
    "site-packages",
    "dist-packages",
    "*.a",
    "_tkinter.*",
];

/// Prints the paths of a Python, one per line.
const INTERPRETER_PROBE: &str = "import os, sys, sysconfig
print(sys.base_prefix, os.path.realpath(sys.executable), '%d.%d' % sys.version_info[:2], sysconfig.get_path('stdlib'), sep='\\n')";

/// Builds the image of a version, unless it exists. The first word of `command` is its Python.
pub(crate) fn prepare(version: &str, command: &str) -> anyhow::Result<()> {
    let _lock = lock()?;
    let python = PythonInstallation::of(command)?;
    let base = Recipe::with(python.packages()?)?;
    let made = fs::read(python.environment.join(".complete")).with_context(|| {
        format!(
            "{} is not installed completely",
            python.environment.display()
        )
    })?;
    let boot = python.boot();
    let script = fs::read(&boot).with_context(|| format!("cannot read {}", boot.display()))?;
    // The folder's name contains a hash of its requirements and Python.
    let name = python.environment.file_name().unwrap_or_default();
    let hash = hash([
        RECIPE.as_bytes(),
        base.hash.as_bytes(),
        name.as_encoded_bytes(),
        &made,
        &script,
    ]);
    let tag = format!("{REPOSITORY}:{version}");
    if !is_there(&tag, &hash) {
        let base = base.make()?;
        say(&format!("making the image of agent server {version}"));
        let archive = folder()?.join("image-unfinished.tar");
        fs::copy(&base.archive, &archive)?;
        python.append_to(&archive)?;
        let changes = ImageChanges::of(&hash)
            .with("ENV PATH=/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8 LITELLM_LOCAL_MODEL_COST_MAP=True")
            .with("USER agent")
            .with("WORKDIR /")
            .with(format!(
                r#"ENTRYPOINT ["/{INSTALL_DIR}/bin/python", "-P", "/{INSTALL_DIR}/{BOOT}", "--host", "0.0.0.0"]"#
            ))
            .with(r#"CMD ["--port", "8000"]"#);
        import(&archive, &tag, &changes)?;
        fs::remove_file(&archive)?;
        remove_untagged_images();
    }
    hand_over(&format!("agent-server-{version}"), &tag)
}

/// Removes earlier images of the tag that are not in use.
fn remove_untagged_images() {
    let label = format!("label={}", super::LABEL);
    // A failure only costs disk space.
    let _ = super::docker()
        .args(["image", "prune", "--force", "--filter", &label])
        .output();
}

/// The Python of an installation.
struct PythonInstallation {
    /// The virtual environment.
    environment: PathBuf,
    /// The prefix of its base interpreter.
    prefix: PathBuf,
    program: PathBuf,
    version: String,
    library: PathBuf,
}

impl PythonInstallation {
    fn of(command: &str) -> anyhow::Result<Self> {
        let (python, _) = command
            .split_once(" -")
            .context("the command has no arguments")?;
        let python = Path::new(python.trim_matches('\''));
        let environment = python
            .ancestors()
            .nth(2)
            .context("the Python is not in a virtual environment")?;
        let known = output(program(python).args(["-I", "-c", INTERPRETER_PROBE]))?;
        let [prefix, program, version, library] = known.lines().collect::<Vec<_>>()[..] else {
            bail!(
                "{} printed unexpected facts about itself: {known}",
                python.display()
            );
        };
        Ok(Self {
            environment: environment.to_owned(),
            prefix: prefix.into(),
            program: program.into(),
            version: version.to_owned(),
            library: library.into(),
        })
    }

    /// The start script of the installation.
    fn boot(&self) -> PathBuf {
        self.environment.join(BOOT)
    }

    fn is_system_python(&self) -> bool {
        self.prefix == Path::new("/usr")
    }

    /// The Debian packages that it needs. The image's system is of the same release, so the names are equal.
    fn packages(&self) -> anyhow::Result<Vec<String>> {
        if self.is_system_python() {
            return Ok(vec![format!("python{}", self.version)]);
        }
        let modules = fs::read_dir(self.library.join("lib-dynload"))
            .into_iter()
            .flatten()
            .flatten();
        let modules = modules
            .map(|entry| entry.path())
            .filter(|path| !path.to_string_lossy().contains("_tkinter"));
        let libraries = libraries(modules.chain([self.program.clone()]))?;
        // The same file by its names before and after /lib became a link to /usr/lib.
        let names = libraries
            .iter()
            .filter(|path| !path.starts_with(&self.prefix))
            .flat_map(|path| {
                let path = path.to_string_lossy();
                let other = path
                    .strip_prefix("/usr")
                    .map_or_else(|| format!("/usr{path}"), str::to_owned);
                [path.into_owned(), other]
            });
        // dpkg knows only one of the names and fails for the other.
        let known = program("dpkg-query").arg("--search").args(names).output()?;
        let known = String::from_utf8_lossy(&known.stdout).into_owned();
        let owners = known
            .lines()
            .filter_map(|line| line.split([':', ',']).next());
        Ok(owners
            .filter(|owner| !owner.contains(' '))
            .map(str::to_owned)
            .collect())
    }

    /// Adds the interpreter and the installation to an archive. An engine accepts each path once.
    fn append_to(&self, archive: &Path) -> anyhow::Result<()> {
        if !self.is_system_python() {
            self.append_interpreter(archive)?;
        }
        // Keep links; most are relative.
        let inside = format!("--transform=s,^lib,{INSTALL_DIR}/lib,S");
        run(append(archive)
            .args([inside.as_str(), "--hard-dereference", "-C"])
            .arg(&self.environment)
            .arg("lib"))?;
        let place = folder()?.join("image-skeleton");
        let _ = fs::remove_dir_all(&place);
        let root = place.join(INSTALL_DIR);
        fs::create_dir_all(root.join("bin"))?;
        symlink(&self.program, root.join("bin/python"))?;
        let home = self.program.parent().context("the Python has no folder")?;
        let settings = format!(
            "home = {}\ninclude-system-site-packages = false\n",
            home.display()
        );
        fs::write(root.join("pyvenv.cfg"), settings)?;
        fs::copy(self.boot(), root.join(BOOT))?;
        // Published images have Python on the path: MCP servers and agents of users are started by such names.
        let on_path = "usr/local/bin/python3";
        let bin = place.join(on_path);
        fs::create_dir_all(bin.parent().context("the program has no parent folder")?)?;
        symlink(&self.program, bin)?;
        // And `uv`, which agents and scripts of automations use.
        let uv = "usr/local/bin/uv";
        fs::copy(self.environment.join("bin/uv"), place.join(uv))?;
        run(append(archive)
            .arg("-C")
            .arg(&place)
            .args([INSTALL_DIR, on_path, uv]))?;
        fs::remove_dir_all(&place)?;
        Ok(())
    }

    /// At the same path as here, which is compiled into it.
    fn append_interpreter(&self, archive: &Path) -> anyhow::Result<()> {
        let mut parts = vec![self.program.clone(), self.library.clone()];
        let libraries = fs::read_dir(self.prefix.join("lib"))?.flatten();
        let is_its_own = |path: &PathBuf| path.to_string_lossy().contains("/libpython");
        parts.extend(libraries.map(|entry| entry.path()).filter(is_its_own));
        // It may be in a home directory, which the image's user must be able to enter.
        let known = output(program("tar").arg("-tf").arg(archive))?;
        let known: BTreeSet<&Path> = known.lines().map(inside).collect();
        let parents = parts.iter().flat_map(|part| part.ancestors().skip(1));
        let parents: BTreeSet<&Path> = parents
            .filter_map(|parent| parent.strip_prefix("/").ok())
            .filter(|parent| *parent != Path::new("") && !known.contains(parent))
            .collect();
        run(append(archive)
            .args(["--no-recursion", "--mode=0755", "-C", "/"])
            .args(parents))?;
        let left_out = EXCLUDED_PACKAGES
            .iter()
            .map(|name| format!("--exclude={name}"));
        let parts = parts.iter().filter_map(|part| part.strip_prefix("/").ok());
        run(append(archive).args(left_out).args(["-C", "/"]).args(parts))
    }
}

fn append(archive: &Path) -> Command {
    let mut command = tar();
    // The service makes its files private, and the image has a user of its own.
    command.arg("--mode=a+rX").arg("-rf").arg(archive);
    command
}

/// The canonical path of an archive member.
fn inside(member: &str) -> &Path {
    Path::new(member.trim_start_matches("./").trim_end_matches('/'))
}
