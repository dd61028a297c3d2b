//! Images that stand in for those of registries, made of the stub's image and of what this machine has.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use acceptance::Engine;
use acceptance::agent_server::built;
use acceptance::engine::stub_image;

/// Makes the database and serves it, as the official image does for these variables.
const POSTGRES: &str = r#"data=/var/lib/postgresql/data
if [ ! -s $data/PG_VERSION ]; then
  printf %s "$POSTGRES_PASSWORD" > /tmp/password
  initdb --pgdata $data --username "$POSTGRES_USER" --pwfile /tmp/password --auth scram-sha-256 --no-locale \
    --encoding UTF8 --no-sync
  echo "CREATE DATABASE $POSTGRES_DB" | postgres --single -D $data postgres
  echo "host all all all scram-sha-256" >> $data/pg_hba.conf
fi
exec postgres -D $data -c listen_addresses='*' -c fsync=off"#;

/// By which everything that is made of an image here can be told.
const LABEL: &str = "agent-workspace.packaging";

/// Images of one test; removed at its end.
pub(crate) struct Images {
    pub(crate) engine: Engine,
    prefix: String,
    made: Vec<String>,
}

impl Images {
    /// With names that begin so.
    pub(crate) fn new(prefix: &str) -> Self {
        Self {
            engine: Engine::shared(),
            prefix: prefix.to_owned(),
            made: Vec::new(),
        }
    }

    /// The name of an image that something else makes; it is removed, too.
    pub(crate) fn name(&mut self, what: &str) -> String {
        let name = format!("{}/{what}", self.prefix);
        self.made.push(name.clone());
        name
    }

    /// What the service is built in: its `cargo` hands over the program that was built beside this test.
    pub(crate) fn build(&mut self) -> String {
        let program = built("agent-workspace");
        let cargo = format!(
            "test -f Cargo.lock && test \"$1\" = build && mkdir -p target/release\n\
             cp {} target/release/agent-workspace",
            program.display()
        );
        self.make("build", &[("cargo", &cargo), NO_PACKAGES], &[program], "")
    }

    /// What the service runs in.
    pub(crate) fn runtime(&mut self) -> String {
        let libraries = libraries(&[built("agent-workspace")]);
        self.make("runtime", &[NO_PACKAGES], &libraries, "")
    }

    /// A Postgres server, from this machine's.
    pub(crate) fn postgres(&mut self) -> String {
        let (home, share) = postgres();
        let bin = home.join("bin");
        let programs: Vec<PathBuf> = ["initdb", "postgres", "pg_isready"]
            .map(|name| bin.join(name))
            .into();
        let modules = ["dict_snowball.so", "plpgsql.so"].map(|name| home.join("lib").join(name));
        let libraries = libraries(&programs);
        let zone = PathBuf::from("/usr/share/zoneinfo/UTC");
        let files = [programs, modules.into(), vec![share, zone], libraries].concat();
        let recipe = format!(
            "ENV PATH={}:/usr/bin:/bin\n\
             RUN mkdir -p /var/lib/postgresql/data /var/run/postgresql \
              && chown -R 10001 /var/lib/postgresql /var/run/postgresql\n\
             USER 10001\nENTRYPOINT [\"/usr/bin/serve\"]\n",
            bin.display()
        );
        self.make("postgres", &[("serve", POSTGRES)], &files, &recipe)
    }

    /// An image of the stub's with further scripts and files, by the classic builder: nothing else is needed.
    fn make(
        &mut self,
        what: &str,
        scripts: &[(&str, &str)],
        files: &[PathBuf],
        recipe: &str,
    ) -> String {
        let dir = tempfile::tempdir().unwrap();
        let inside = dir.path().join("files");
        let programs = inside.join("usr/bin");
        fs::create_dir_all(&programs).unwrap();
        for (name, script) in scripts {
            let file = programs.join(name);
            fs::write(&file, format!("#!/bin/sh\nset -e\n{script}\n")).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let mut copy = Command::new("cp");
        copy.args(["--recursive", "--dereference", "--parents"])
            .args(files);
        assert!(copy.arg(&inside).status().unwrap().success(), "{files:?}");
        let recipe = format!(
            "FROM {}\nLABEL {LABEL}={}\nENTRYPOINT []\nENV PATH=/usr/local/bin:/usr/bin:/bin\nCOPY files /\n{recipe}",
            stub_image(),
            self.prefix
        );
        fs::write(dir.path().join("Dockerfile"), recipe).unwrap();
        let name = self.name(what);
        let output = self
            .engine
            .command(&["build", "--quiet", "--tag", &name])
            .arg(dir.path())
            .env("DOCKER_BUILDKIT", "0")
            .output();
        let output = output.expect("docker can be run");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "docker build of {what}: {said}");
        name
    }
}

/// Debian's package manager, with everything installed already.
const NO_PACKAGES: (&str, &str) = ("apt-get", "exit 0");

impl Drop for Images {
    fn drop(&mut self) {
        let remove = |image: &str| self.engine.try_docker(&["rmi", "--force", image]);
        for image in self.made.iter().rev() {
            let _ = remove(image);
        }
        // The stage that the service was built in has no name. It has the label of what it was made from.
        let label = format!("label={LABEL}={}", self.prefix);
        let list = [
            "images",
            "--quiet",
            "--filter",
            "dangling=true",
            "--filter",
            &label,
        ];
        let nameless = self.engine.try_docker(&list).stdout;
        for image in String::from_utf8_lossy(&nameless).lines() {
            let _ = remove(image);
        }
    }
}

/// What this machine loads with these programs, the loader included.
fn libraries(programs: &[PathBuf]) -> Vec<PathBuf> {
    let output = Command::new("ldd").args(programs).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let paths = said.lines().filter_map(|line| {
        let path = line.split_once("=>").map_or(line, |(_, path)| path);
        let (path, _) = path.trim().split_once(" (0x")?;
        path.starts_with('/').then(|| PathBuf::from(path))
    });
    let mut found: Vec<PathBuf> = paths.collect();
    found.sort();
    found.dedup();
    assert!(!found.is_empty(), "ldd finds no libraries: {said}");
    found
}

/// Where Debian has the newest server, and its shared files.
fn postgres() -> (PathBuf, PathBuf) {
    let homes = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let homes = homes.flatten().map(|entry| entry.path());
    let newest = homes
        .filter(|home| home.join("bin/initdb").is_file())
        .max()
        .expect("a Postgres server is installed: `cargo xtask prepare` does so on Debian");
    let share = Path::new("/usr/share/postgresql").join(newest.file_name().unwrap());
    (newest, share)
}
