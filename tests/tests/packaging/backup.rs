//! `docs/how-to/back-up-and-restore.md`, followed to the letter: what it says is saved while the service runs, everything is lost, and what it says
//! brings it back.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use acceptance::{Client, Postgres, Service, Stub};
use serde_json::json;

use crate::root;

/// Which is kept where the operator keeps it.
const MASTER_KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
/// In the workspace of a sandbox.
const FILE: &str = "kept.txt";

/// The commands of a chapter, block by block.
fn blocks(chapter: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join("docs/how-to/back-up-and-restore.md")).unwrap();
    let chapter = text.split(&format!("\n## {chapter}\n")).nth(1).unwrap();
    let chapter = chapter.split("\n## ").next().unwrap();
    let blocks = chapter.split("```sh\n").skip(1);
    let blocks = blocks.map(|it| it.split("```").next().unwrap().to_owned());
    blocks.collect()
}

/// With what an operator has elsewhere.
fn with(block: &str, places: &[(&str, &str)]) -> String {
    let mut block = block.to_owned();
    for (written, here) in places {
        assert!(block.contains(written), "{written} is not in {block}");
        block = block.replace(written, here);
    }
    block
}

/// The service of an operator, and where they keep what they save.
struct BackupInstallation {
    service: Service,
    kept: tempfile::TempDir,
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
            kept: tempfile::tempdir().unwrap(),
            _stub: stub,
        }
    }

    /// What the chapter for `SQLite` says at its beginning, and nobody else's has.
    fn places(&self) -> [(&'static str, String); 3] {
        let data = self.service.data().display().to_string();
        let kept = self.kept.path().display();
        [
            ("~/.local/share/agent-workspace", data),
            ("/backup/$(date +%F)", format!("{kept}/backup")),
            ("/elsewhere", format!("{kept}/keys")),
        ]
    }

    /// Commands in a shell of the operator, whose variables are set by the `first` ones.
    fn run(&self, first: &str, commands: &str) {
        let program = self.service.program(&[]);
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
        let script = format!("set -euo pipefail\n{first}\n{commands}");
        let output = shell.args(["-c", &script]).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(output.status.success(), "{script}\n{said}");
    }

    /// Everything but what is kept elsewhere.
    async fn lose_everything(&mut self) {
        self.service.stop().await;
        fs::remove_dir_all(self.service.data()).unwrap();
    }
}

/// What a user has, before and after.
struct BackupWork {
    user: Client,
    conversation: String,
    sandbox: String,
    events: usize,
}

impl BackupWork {
    async fn of_a_day(service: &Service) -> Self {
        let user = service.admin();
        user.use_model("openai/m", "http://127.0.0.1:9/v1", "sk-kept")
            .await;
        let secret = json!({"name": "TOKEN", "value": "kept", "description": "of the user"});
        let _ = user.post("/api/v1/secrets", &secret).await.ok();
        let it = user.converse("remember this").await;
        user.executed(&it.id, "finished").await;
        let file = workspace(service, &it.sandbox_id).join(FILE);
        fs::write(file, "kept").unwrap();
        // Paused: nothing of it changes any more.
        user.pause(&it.sandbox_id).await;
        Self {
            events: user.count_events(&it.id).await,
            conversation: it.id,
            sandbox: it.sandbox_id,
            user,
        }
    }

    /// What comes after the backup. Its run has ended: it writes where everything is about to be removed.
    async fn is_continued(&self) {
        let lost = self.user.converse("after the backup: lost").await;
        self.user.executed(&lost.id, "finished").await;
    }

    async fn is_there(&self, service: &Service) {
        let user = &self.user;
        assert_eq!(user.count_events(&self.conversation).await, self.events);
        let secrets = user.all("/api/v1/secrets/search").await;
        assert_eq!(secrets.len(), 1, "{secrets:?}");
        user.resume(&self.sandbox).await;
        let file = workspace(service, &self.sandbox).join(FILE);
        assert_eq!(fs::read_to_string(file).unwrap(), "kept");
        // Opens the settings, and what they are sealed with.
        user.converse("go on").await;
    }
}

fn workspace(service: &Service, sandbox: &str) -> PathBuf {
    service.data().join("sandboxes").join(sandbox)
}

#[tokio::test]
async fn with_sqlite_everything_comes_back() {
    let mut ours = BackupInstallation::new(&[]).await;
    let work = BackupWork::of_a_day(&ours.service).await;
    let blocks = blocks("SQLite");
    let [save, restore] = blocks.as_slice() else {
        panic!("{blocks:?}")
    };
    let places = ours.places();
    let places = places.each_ref().map(|(it, here)| (*it, here.as_str()));
    let save = with(save, &places);
    let variables = save.lines().next().unwrap();
    ours.run("", &save);
    work.is_continued().await;
    ours.lose_everything().await;
    ours.run(variables, restore);
    ours.service.restart().await;
    work.is_there(&ours.service).await;
    assert_eq!(work.user.conversations().await.len(), 2);
}

#[tokio::test]
async fn with_postgres_everything_comes_back() {
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
    let mut ours = BackupInstallation::new(&variables).await;
    let work = BackupWork::of_a_day(&ours.service).await;
    let blocks = blocks("Postgres");
    let [save, restore] = blocks.as_slice() else {
        panic!("{blocks:?}")
    };
    let save = with(save, &[("postgres://workspace@HOST/workspace", &url)]);
    let administration = ("postgres://postgres@HOST/postgres", postgres.url());
    let restore = with(restore, &[(administration.0, &administration.1)]);
    // "`host.id`, `backend` and the workspaces as above": the chapter before, without its database and key.
    let before = self::blocks("SQLite");
    let places = ours.places();
    let places = places.each_ref().map(|(it, here)| (*it, here.as_str()));
    let files = |block: &str| {
        let block = block.replace("\"$KEYS/master.key\" ", "");
        let lines = block
            .lines()
            .filter(|it| !it.contains(".db") && !it.contains("master.key"));
        lines.collect::<Vec<_>>().join("\n")
    };
    let files_saved = files(&with(&before[0], &places));
    let variables = files_saved.lines().next().unwrap();
    let files_restored = files(&before[1]).replace("agent-workspace doctor", "");
    ours.run("", &format!("{files_saved}\n{save}"));
    work.is_continued().await;
    ours.lose_everything().await;
    let url_set = save.lines().next().unwrap();
    let first = format!("{variables}\n{url_set}\nmkdir -p \"$DATA\"");
    ours.run(&first, &format!("{files_restored}\n{restore}"));
    ours.service.restart().await;
    work.is_there(&ours.service).await;
    assert_eq!(work.user.conversations().await.len(), 2);
}
