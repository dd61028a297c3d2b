//! Runs the commands of `docs/how-to/back-up-and-restore.md`: saves while the service runs, loses everything, and restores.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use acceptance::{Client, Postgres, Service, Stub};
use serde_json::json;

use crate::root;

/// The operator keeps it outside of the backup.
const MASTER_KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
/// A file in the workspace of a sandbox.
const WORKSPACE_FILE: &str = "kept.txt";

/// The blocks of shell commands of a chapter.
fn shell_blocks(chapter: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join("docs/how-to/back-up-and-restore.md")).unwrap();
    let chapter = text.split(&format!("\n## {chapter}\n")).nth(1).unwrap();
    let chapter = chapter.split("\n## ").next().unwrap();
    let blocks = chapter.split("```sh\n").skip(1);
    let blocks = blocks.map(|it| it.split("```").next().unwrap().to_owned());
    blocks.collect()
}

/// Replaces the paths and URLs of the documentation with those of this test.
fn substitute(block: &str, substitutions: &[(&str, &str)]) -> String {
    let mut block = block.to_owned();
    for (placeholder, value) in substitutions {
        assert!(
            block.contains(placeholder),
            "{placeholder} is not in {block}"
        );
        block = block.replace(placeholder, value);
    }
    block
}

/// An operator's service, and the directory for its backup.
struct BackupInstallation {
    service: Service,
    backup_dir: tempfile::TempDir,
    _stub: Stub,
}

impl BackupInstallation {
    async fn new(variables: &[(&str, &str)]) -> Self {
        let stub = Stub::new();
        let mut builder = Service::builder().stub(&stub);
        for (name, value) in variables {
            builder = builder.env(name, value);
        }
        Self {
            service: builder.start().await,
            backup_dir: tempfile::tempdir().unwrap(),
            _stub: stub,
        }
    }

    /// The paths in the chapter about `SQLite`, and those of this test.
    fn substitutions(&self) -> [(&'static str, String); 3] {
        let data = self.service.data_dir().display().to_string();
        let backup_dir = self.backup_dir.path().display();
        [
            ("~/.local/share/agent-workspace", data),
            ("/backup/$(date +%F)", format!("{backup_dir}/backup")),
            ("/elsewhere", format!("{backup_dir}/keys")),
        ]
    }

    /// Runs commands in the operator's shell, after the lines of `setup`.
    fn run(&self, setup: &str, commands: &str) {
        let program = self.service.cli_command(&[]);
        let place = Path::new(program.get_program()).parent().unwrap();
        let mut path = std::ffi::OsString::from(place);
        for more in [Postgres::programs(), PathBuf::from("/usr/bin:/bin")] {
            path.push(":");
            path.push(more);
        }
        let mut shell = Command::new("bash");
        let set = program
            .get_envs()
            .filter_map(|(name, to)| Some((name, to?)));
        shell.env_clear().envs(set).env("PATH", path);
        let script = format!("set -euo pipefail\n{setup}\n{commands}");
        let output = shell.args(["-c", &script]).output().unwrap();
        let output_text = [output.stdout, output.stderr].concat();
        let output_text = String::from_utf8_lossy(&output_text);
        assert!(output.status.success(), "{script}\n{output_text}");
    }

    /// Stops the service and removes its data directory.
    async fn lose_everything(&mut self) {
        self.service.stop().await;
        fs::remove_dir_all(self.service.data_dir()).unwrap();
    }
}

/// A user's work, which the backup must restore.
struct BackupWork {
    user: Client,
    conversation: String,
    sandbox: String,
    events: usize,
}

impl BackupWork {
    async fn create(service: &Service) -> Self {
        let user = service.admin();
        user.use_model("openai/m", "http://127.0.0.1:9/v1", "sk-kept")
            .await;
        let secret = json!({"name": "TOKEN", "value": "kept", "description": "of the user"});
        let _ = user.post("/api/v1/secrets", &secret).await.ok();
        let it = user.converse("remember this").await;
        user.wait_for_execution_status(&it.id, "finished").await;
        let file = sandbox_dir(service, &it.sandbox_id).join(WORKSPACE_FILE);
        fs::write(file, "kept").unwrap();
        // A paused sandbox changes no more.
        user.pause(&it.sandbox_id).await;
        Self {
            events: user.count_events(&it.id).await,
            conversation: it.id,
            sandbox: it.sandbox_id,
            user,
        }
    }

    /// Starts a conversation after the backup. Waits for its end, because its sandbox's files are about to be removed.
    async fn continue_after_backup(&self) {
        let lost = self.user.converse("after the backup: lost").await;
        self.user
            .wait_for_execution_status(&lost.id, "finished")
            .await;
    }

    async fn assert_restored(&self, service: &Service) {
        let user = &self.user;
        assert_eq!(user.count_events(&self.conversation).await, self.events);
        let secrets = user.get_all_pages("/api/v1/secrets/search").await;
        assert_eq!(secrets.len(), 1, "{secrets:?}");
        user.resume(&self.sandbox).await;
        let file = sandbox_dir(service, &self.sandbox).join(WORKSPACE_FILE);
        assert_eq!(fs::read_to_string(file).unwrap(), "kept");
        // A start decrypts the settings.
        user.converse("go on").await;
    }
}

fn sandbox_dir(service: &Service, sandbox: &str) -> PathBuf {
    service.data_dir().join("sandboxes").join(sandbox)
}

#[tokio::test]
async fn sqlite_backup_restores_everything() {
    let mut installation = BackupInstallation::new(&[]).await;
    let work = BackupWork::create(&installation.service).await;
    let blocks = shell_blocks("SQLite");
    let [save, restore] = blocks.as_slice() else {
        panic!("{blocks:?}")
    };
    let substitutions = installation.substitutions();
    let substitutions = substitutions
        .each_ref()
        .map(|(it, value)| (*it, value.as_str()));
    let save = substitute(save, &substitutions);
    let variables = save.lines().next().unwrap();
    installation.run("", &save);
    work.continue_after_backup().await;
    installation.lose_everything().await;
    installation.run(variables, restore);
    installation.service.restart().await;
    work.assert_restored(&installation.service).await;
    assert_eq!(work.user.conversations().await.len(), 2);
}

#[tokio::test]
async fn postgres_backup_restores_everything() {
    let postgres = Postgres::start();
    for sql in [
        "CREATE ROLE workspace LOGIN",
        "CREATE DATABASE workspace OWNER workspace",
    ] {
        let _ = postgres.query(sql);
    }
    let url = postgres.url().replace("//postgres@", "//workspace@");
    let url = url.replace("/postgres", "/workspace");
    let variables = [
        ("WORKSPACE_STORAGE__URL", url.as_str()),
        ("WORKSPACE_SECRETS__MASTER_KEY", MASTER_KEY),
    ];
    let mut installation = BackupInstallation::new(&variables).await;
    let work = BackupWork::create(&installation.service).await;
    let blocks = shell_blocks("Postgres");
    let [save, restore] = blocks.as_slice() else {
        panic!("{blocks:?}")
    };
    let save = substitute(save, &[("postgres://workspace@HOST/workspace", &url)]);
    let administration = ("postgres://postgres@HOST/postgres", postgres.url());
    let restore = substitute(restore, &[(administration.0, &administration.1)]);
    // "`host.id`, `backend` and the workspaces as above": the commands of the SQLite chapter without its database and key.
    let before = self::shell_blocks("SQLite");
    let substitutions = installation.substitutions();
    let substitutions = substitutions
        .each_ref()
        .map(|(it, value)| (*it, value.as_str()));
    let files = |block: &str| {
        let block = block.replace("\"$KEYS/master.key\" ", "");
        let lines = block
            .lines()
            .filter(|it| !it.contains(".db") && !it.contains("master.key"));
        lines.collect::<Vec<_>>().join("\n")
    };
    let files_saved = files(&substitute(&before[0], &substitutions));
    let variables = files_saved.lines().next().unwrap();
    let files_restored = files(&before[1]).replace("agent-workspace doctor", "");
    installation.run("", &format!("{files_saved}\n{save}"));
    work.continue_after_backup().await;
    installation.lose_everything().await;
    let url_set = save.lines().next().unwrap();
    let setup = format!("{variables}\n{url_set}\nmkdir -p \"$DATA\"");
    installation.run(&setup, &format!("{files_restored}\n{restore}"));
    installation.service.restart().await;
    work.assert_restored(&installation.service).await;
    assert_eq!(work.user.conversations().await.len(), 2);
}
