//! Images in place of those from registries, built from the stub's image and this machine's programs.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use acceptance::agent_server::built_program;
use acceptance::engine::stub_image;
use acceptance::{Engine, Postgres};

/// Creates the database and serves it, as the official image does for these variables.
const POSTGRES_ENTRYPOINT: &str = r#"data=/var/lib/postgresql/data
if [ ! -s $data/PG_VERSION ]; then
  printf %s "$POSTGRES_PASSWORD" > /tmp/password
  initdb --pgdata $data --username "$POSTGRES_USER" --pwfile /tmp/password --auth scram-sha-256 --no-locale \
    --encoding UTF8 --no-sync
  echo "CREATE DATABASE $POSTGRES_DB" | postgres --single -D $data postgres
  echo "host all all all scram-sha-256" >> $data/pg_hba.conf
fi
exec postgres -D $data -c listen_addresses='*' -c fsync=off"#;

/// The label of every image that this suite builds.
const LABEL: &str = "agent-workspace.packaging";

/// Images of one test. Dropping this removes them.
pub(crate) struct Images {
    pub(crate) engine: Engine,
    prefix: String,
    names: Vec<String>,
}

impl Images {
    /// Image names begin with `prefix`.
    pub(crate) fn new(prefix: &str) -> Self {
        Self {
            engine: Engine::shared(),
            prefix: prefix.to_owned(),
            names: Vec::new(),
        }
    }

    /// The name of an image that another program builds; it is removed, too.
    pub(crate) fn name(&mut self, name: &str) -> String {
        let name = format!("{}/{name}", self.prefix);
        self.names.push(name.clone());
        name
    }

    /// The build image. Its `cargo` copies the program that was built beside this test.
    pub(crate) fn build(&mut self) -> String {
        let program = built_program("agent-workspace");
        let cargo = format!(
            "test -f Cargo.lock && test \"$1\" = build && mkdir -p target/dist\n\
             cp {} target/dist/agent-workspace",
            program.display()
        );
        self.build_image("build", &[("cargo", &cargo), NO_PACKAGES], &[program], "")
    }

    /// The runtime image.
    pub(crate) fn runtime(&mut self) -> String {
        let libraries = libraries(&[built_program("agent-workspace")]);
        self.build_image("runtime", &[NO_PACKAGES], &libraries, "")
    }

    /// A Postgres image with this machine's server.
    pub(crate) fn postgres(&mut self) -> String {
        let (home, share) = postgres_paths();
        let bin = home.join("bin");
        let programs: Vec<PathBuf> = ["initdb", "postgres", "pg_isready"]
            .map(|name| bin.join(name))
            .into();
        let modules = ["dict_snowball.so", "plpgsql.so"].map(|name| home.join("lib").join(name));
        let libraries = libraries(&programs);
        let zone = PathBuf::from("/usr/share/zoneinfo/UTC");
        let files = [programs, modules.into(), vec![share, zone], libraries].concat();
        let dockerfile = format!(
            "ENV PATH={}:/usr/bin:/bin\n\
             RUN mkdir -p /var/lib/postgresql/data /var/run/postgresql \
              && chown -R 10001 /var/lib/postgresql /var/run/postgresql\n\
             USER 10001\nENTRYPOINT [\"/usr/bin/serve\"]\n",
            bin.display()
        );
        self.build_image(
            "postgres",
            &[("serve", POSTGRES_ENTRYPOINT)],
            &files,
            &dockerfile,
        )
    }

    /// Builds an image from the stub's image with further scripts and files. The classic builder needs no other program.
    fn build_image(
        &mut self,
        name: &str,
        scripts: &[(&str, &str)],
        files: &[PathBuf],
        dockerfile: &str,
    ) -> String {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("files");
        let programs = root.join("usr/bin");
        fs::create_dir_all(&programs).unwrap();
        for (name, script) in scripts {
            let file = programs.join(name);
            fs::write(&file, format!("#!/bin/sh\nset -e\n{script}\n")).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let mut copy = Command::new("cp");
        copy.args(["--recursive", "--dereference", "--parents"])
            .args(files);
        assert!(copy.arg(&root).status().unwrap().success(), "{files:?}");
        let dockerfile = format!(
            "FROM {}\nLABEL {LABEL}={}\nENTRYPOINT []\nENV PATH=/usr/local/bin:/usr/bin:/bin\nCOPY files /\n{dockerfile}",
            stub_image(),
            self.prefix
        );
        fs::write(dir.path().join("Dockerfile"), dockerfile).unwrap();
        let name = self.name(name);
        let output = self
            .engine
            .command(&["build", "--quiet", "--tag", &name])
            .arg(dir.path())
            .env("DOCKER_BUILDKIT", "0")
            .output();
        let output = output.expect("cannot run docker");
        let output_text = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "docker build of {name}: {output_text}"
        );
        name
    }
}

/// A package manager that installs nothing, because everything is in the image.
const NO_PACKAGES: (&str, &str) = ("apt-get", "exit 0");

impl Drop for Images {
    fn drop(&mut self) {
        let remove = |image: &str| self.engine.try_docker(&["rmi", "--force", image]);
        for image in self.names.iter().rev() {
            let _ = remove(image);
        }
        // The build stage has no name, but inherits the label of its base image.
        let label = format!("label={LABEL}={}", self.prefix);
        let list = [
            "images",
            "--quiet",
            "--filter",
            "dangling=true",
            "--filter",
            &label,
        ];
        let unnamed = self.engine.try_docker(&list).stdout;
        for image in String::from_utf8_lossy(&unnamed).lines() {
            let _ = remove(image);
        }
    }
}

/// The shared libraries of these programs, and the loader.
fn libraries(programs: &[PathBuf]) -> Vec<PathBuf> {
    let output = Command::new("ldd").args(programs).output().unwrap();
    let output_text = String::from_utf8_lossy(&output.stdout).into_owned();
    let paths = output_text.lines().filter_map(|line| {
        let path = line.split_once("=>").map_or(line, |(_, path)| path);
        let (path, _) = path.trim().split_once(" (0x")?;
        path.starts_with('/').then(|| PathBuf::from(path))
    });
    let mut found: Vec<PathBuf> = paths.collect();
    found.sort();
    found.dedup();
    assert!(!found.is_empty(), "ldd finds no libraries: {output_text}");
    found
}

/// Debian's directories of the newest Postgres server and of its shared files.
fn postgres_paths() -> (PathBuf, PathBuf) {
    let home = Postgres::programs().parent().unwrap().to_owned();
    let share = Path::new("/usr/share/postgresql").join(home.file_name().unwrap());
    (home, share)
}
