//! The tutorial of a team server, run without an engine: Postgres, the service and nginx stand in for the containers that
//! Compose would start, with the tutorial's own `.env`, certificate and `nginx.conf`.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::docs::read;
use crate::docs::script::{PAUSE_SANDBOXES_AT_EXIT, run_script};
use crate::docs::service::{DocsHome, RunningProgram, free_address, succeeds};
use crate::run::{Programs, output, program, run};

/// The command that starts everything.
const START_COMMAND: &str = "docker compose --profile proxy up ";
/// The host name in the tutorial. Here it is `localhost`.
const DOCUMENTED_HOST: &str = "agents.your-domain.org";
/// In place of the program `docker`: what Compose would start runs here.
const DOCKER_STAND_IN: &str = r#"#!/bin/bash
set -euo pipefail
if [[ "$*" == "compose --profile proxy up "* ]]; then
  exit 0
elif [[ "$*" == "compose exec -T agent-workspace "* ]]; then
  . ~/service.env
  exec "${@:5}"
elif [[ "$*" == "compose exec agent-workspace "* ]]; then
  . ~/service.env
  exec "${@:4}"
fi
echo "docs_team_server.rs has no stand-in for: docker $*" >&2
exit 1
"#;
/// Runs the blocks of the page.
pub(crate) fn follow(programs: &Programs, blocks: &[&str]) -> anyhow::Result<()> {
    let server = TeamServer::new()?;
    let start = blocks.iter().position(|it| it.contains(START_COMMAND));
    let (before, after) = blocks
        .split_at(start.context("no block of docs/tutorials/team-server.md starts the server")?);
    server.run(programs, &before.concat())?;
    let _postgres = TutorialPostgres::start(&server)?;
    let _service = server.service(programs)?;
    let _proxy = server.proxy(programs)?;
    let after = [&[PAUSE_SANDBOXES_AT_EXIT], after].concat();
    server.run(programs, &after.concat())
}

/// The machine of the tutorial.
struct TeamServer {
    home: DocsHome,
    service: String,
    postgres: String,
    proxy: String,
}

impl TeamServer {
    fn new() -> anyhow::Result<Self> {
        let home = DocsHome::new("team-server")?;
        for name in ["docker-compose.yml", "config/proxies/nginx.conf"] {
            home.write(name, &read(name)?)?;
        }
        let docker = home.write("bin/docker", DOCKER_STAND_IN)?;
        fs::set_permissions(docker, fs::Permissions::from_mode(0o755))?;
        home.write("docker.sock", "")?;
        let chain = home.write("letsencrypt/live/localhost/fullchain.pem", "")?;
        run(program("openssl")
            .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes"])
            .args([
                "-subj",
                "/CN=localhost",
                "-addext",
                "subjectAltName=DNS:localhost",
            ])
            .args(["-addext", "basicConstraints=critical,CA:FALSE"])
            .arg("-out")
            .arg(&chain)
            .arg("-keyout")
            .arg(chain.with_file_name("privkey.pem"))
            .stderr(fs::File::create(home.file("openssl.log"))?))?;
        Ok(Self {
            home,
            service: free_address()?,
            postgres: free_address()?,
            proxy: free_address()?,
        })
    }

    /// Runs commands of the tutorial, with the addresses and files of this machine in place of the documented ones.
    fn run(&self, programs: &Programs, script: &str) -> anyhow::Result<()> {
        let home = self.home.path().display();
        let script = script
            .replace(
                &format!("https://{DOCUMENTED_HOST}"),
                &format!("https://localhost:{}", port(&self.proxy)),
            )
            .replace(DOCUMENTED_HOST, "localhost")
            .replace("/etc/letsencrypt", &format!("{home}/letsencrypt"))
            .replace("/var/run/docker.sock", &format!("{home}/docker.sock"));
        let mut bash = self.home.command(Path::new("bash"), programs);
        bash.env("SSL_CERT_FILE", self.home.file("agent-workspace.crt"));
        run_script(bash, &script)
    }

    /// The service, with the environment that the Compose file gives it. As with Compose, it does not see `.env` itself.
    fn service(&self, programs: &Programs) -> anyhow::Result<RunningProgram> {
        let compose = read("docker-compose.yml")?;
        let given = compose.lines().filter_map(|line| {
            let (name, value) = line.trim().split_once(": ")?;
            let is_ours = name.starts_with("WORKSPACE_");
            is_ours.then(|| (name, value.to_owned()))
        });
        // What differs from the containers comes last and wins.
        let stub = self.home.stub_sandboxes(programs)?;
        let exports = given
            .chain(stub)
            .map(|(name, value)| format!("export {name}=\"{value}\"\n"));
        let environment = format!(
            ". ~/.env\nAGENT_WORKSPACE_BIND={}\nPOSTGRES_PORT={}\n{}\
             export WORKSPACE_DATA_DIR=~/data\n",
            self.service,
            port(&self.postgres),
            exports.collect::<String>()
        );
        self.home.write("service.env", &environment)?;
        let command = |word| {
            let mut bash = self.home.command(Path::new("bash"), programs);
            bash.args(["-c", ". ~/service.env; exec agent-workspace \"$0\"", word]);
            bash
        };
        RunningProgram::start(command("serve"), self.home.file("service.log"), || {
            succeeds(command("healthcheck"))
        })
    }

    /// nginx with the tutorial's site.
    fn proxy(&self, programs: &Programs) -> anyhow::Result<RunningProgram> {
        let home = self.home.path().display();
        let mut site = fs::read_to_string(self.home.file("config/proxies/nginx.conf"))?;
        for (from, to) in [
            ("127.0.0.1:3000", self.service.clone()),
            ("listen 443", format!("listen {}", self.proxy)),
            ("/etc/ssl", home.to_string()),
        ] {
            if !site.contains(from) {
                bail!("nginx.conf has no {from}");
            }
            site = site.replace(from, &to);
        }
        let site = self.home.write("site.conf", &site)?;
        let places = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let places = places.map(|it| format!("{it}_temp_path {home}/{it};\n"));
        let main = format!(
            "daemon off;\nmaster_process off;\npid {home}/nginx.pid;\nerror_log stderr;\nevents {{}}\n\
             http {{\naccess_log off;\n{}include {};\n}}\n",
            places.concat(),
            site.display()
        );
        let main = self.home.write("main.conf", &main)?;
        let mut nginx = self.home.command(Path::new("nginx"), programs);
        nginx
            .env("PATH", "/usr/local/sbin:/usr/sbin:/usr/bin:/bin")
            .arg("-p")
            .arg(self.home.path())
            .arg("-c")
            .arg(main);
        RunningProgram::start(nginx, self.home.file("nginx.log"), || {
            TcpStream::connect(&self.proxy).is_ok()
        })
    }

    /// A value that the tutorial wrote into `.env`.
    fn variable(&self, name: &str) -> anyhow::Result<String> {
        let text = fs::read_to_string(self.home.file(".env"))?;
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        Ok(value
            .with_context(|| format!(".env has no {name}"))?
            .to_owned())
    }
}

fn port(address: &str) -> &str {
    address.rsplit(':').next().unwrap_or(address)
}

/// A throw-away server with the user, password and database of the Compose file.
struct TutorialPostgres {
    programs: PathBuf,
    /// Its parent belongs to the server's user, which may not see the repository.
    data: PathBuf,
    /// The server refuses to run as root.
    user: Option<(u32, u32)>,
}

impl TutorialPostgres {
    fn start(server: &TeamServer) -> anyhow::Result<Self> {
        let is_root = fs::metadata("/proc/self")?.uid() == 0;
        let user = is_root.then(server_user).transpose()?;
        let folder = std::env::temp_dir().join(format!("aw-docs-postgres-{}", std::process::id()));
        fs::create_dir(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        if let Some((uid, gid)) = user {
            chown(&folder, Some(uid), Some(gid))?;
        }
        let postgres = Self {
            programs: server_programs()?,
            data: folder.join("data"),
            user,
        };
        let password = server.variable("POSTGRES_PASSWORD")?;
        postgres.initialize(&password, &server.home.file("initdb.log"))?;
        let port = port(&server.postgres);
        let options = format!(
            "-c listen_addresses=127.0.0.1 -c port={port} -c unix_socket_directories= -c max_connections=60"
        );
        run(postgres
            .tool("pg_ctl")
            .args(["start", "-w", "-s", "-o", &options, "-l"])
            .arg(folder.join("server.log")))?;
        run(program(postgres.programs.join("createdb"))
            .args(["-h", "127.0.0.1", "-p", port])
            .args(["-U", "workspace", "workspace"])
            .env("PGPASSWORD", password))?;
        Ok(postgres)
    }

    /// Makes the files of an empty server.
    fn initialize(&self, password: &str, log: &Path) -> anyhow::Result<()> {
        let password_file = self.data.with_file_name("password");
        fs::write(&password_file, password)?;
        if let Some((uid, gid)) = self.user {
            chown(&password_file, Some(uid), Some(gid))?;
        }
        run(self
            .tool("initdb")
            .args(["-U", "workspace", "-A", "scram-sha-256"])
            .args(["-E", "UTF8", "--locale=C", "-N", "--pwfile"])
            .arg(password_file)
            .stdout(fs::File::create(log)?))
    }

    fn tool(&self, name: &str) -> Command {
        let mut command = program(self.programs.join(name));
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        command.arg("-D").arg(&self.data).current_dir("/");
        command
    }
}

impl Drop for TutorialPostgres {
    fn drop(&mut self) {
        // It may not have started.
        succeeds({
            let mut stop = self.tool("pg_ctl");
            stop.args(["stop", "-s", "-w", "-m", "immediate"]);
            stop
        });
        if let Some(folder) = self.data.parent() {
            let _ = fs::remove_dir_all(folder);
        }
    }
}

fn server_user() -> anyhow::Result<(u32, u32)> {
    let id = |flag: &str| {
        let text = output(program("id").args([flag, "postgres"]))?;
        text.trim().parse().context("`id` printed no number")
    };
    Ok((id("-u")?, id("-g")?))
}

/// The programs of the newest installed server, which Debian keeps off the `PATH`.
fn server_programs() -> anyhow::Result<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let newest = versions
        .flatten()
        .filter_map(|entry| {
            Some((
                entry.file_name().to_str()?.parse::<u32>().ok()?,
                entry.path(),
            ))
        })
        .filter(|(_, path)| path.join("bin/initdb").exists())
        .max();
    let (_, path) = newest.context("no Postgres server is installed below /usr/lib/postgresql")?;
    Ok(path.join("bin"))
}
