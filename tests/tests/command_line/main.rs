//! The commands that ask a running service: `conversations`, `sandboxes`, `specs`.

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use acceptance::service::TRUSTED;
use acceptance::world::RECONCILE_TIMEOUT;
use acceptance::{Service, World};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout};

const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the command prints UTF-8")
}

/// What it printed; it must have succeeded.
#[track_caller]
fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).to_owned()
}

#[track_caller]
fn document(output: &Output) -> Value {
    serde_json::from_str(&printed(output)).expect("it prints one JSON document")
}

/// What it said; it must have failed.
#[track_caller]
fn complaint(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    text(&output.stderr).to_owned()
}

async fn with_input(command: Command, input: &str) -> Output {
    let mut command = tokio::process::Command::from(command);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command
        .kill_on_drop(true)
        .spawn()
        .expect("the binary can be run");
    let mut stdin = child.stdin.take().expect("it is a pipe");
    stdin.write_all(input.as_bytes()).await.expect("it reads");
    drop(stdin);
    let output = tokio::time::timeout(WAIT_TIMEOUT, child.wait_with_output()).await;
    output.expect("it ends").expect("its output can be read")
}

#[tokio::test]
async fn a_conversation_is_started_listed_paused_and_resumed() {
    let world = World::with("").await;
    let service = &world.service;
    let start = [
        "conversations",
        "start",
        "--message",
        "-",
        "--title",
        "By hand",
        "--wait",
    ];
    let started = with_input(service.program(&start), "hello\n").await;
    let (shown, output) = (printed(&started), text(&started.stderr));
    assert!(
        output.lines().count() > 2 && output.contains("  READY"),
        "{output}"
    );
    let named = |name: &str| {
        let line = shown.lines().find_map(|line| line.strip_prefix(name));
        line.expect("it says it").trim().to_owned()
    };
    let (id, sandbox) = (named("conversation"), named("sandbox"));
    assert_eq!(
        world.user.conversation(&id).await.title.as_deref(),
        Some("By hand")
    );

    let table = printed(&service.run(&["conversations", "list"]));
    assert!(
        table
            .lines()
            .nth(1)
            .is_some_and(|row| row.contains(&id) && row.ends_with("By hand")),
        "{table}"
    );
    let listed = document(&service.run(&["conversations", "list", "--json"]));
    assert_eq!(listed["items"][0]["id"], *id);
    let all = printed(&service.run(&["conversations", "list", "--all", "--json"]));
    assert_eq!(all.lines().count(), 1, "one document a line: {all}");
    its_sandbox_is_shown_paused_and_resumed(&world, &sandbox).await;
    let specs = document(&service.run(&["specs", "list", "--json"]));
    assert!(specs["items"][0]["id"].is_string(), "{specs}");
}

async fn its_sandbox_is_shown_paused_and_resumed(world: &World, sandbox: &str) {
    let service = &world.service;
    let sandboxes = service.run(&["sandboxes", "list", "--json"]);
    let key = world
        .user
        .sandbox(sandbox)
        .await
        .expect("it is there")
        .session_api_key;
    let key = key.expect("a running sandbox has a key");
    assert!(
        !printed(&sandboxes).contains(&key),
        "it prints the sandbox's key"
    );
    assert_eq!(document(&sandboxes)["items"][0]["id"], *sandbox);
    let _ = printed(&service.run(&["sandboxes", "pause", sandbox]));
    world
        .user
        .sandbox_becomes(sandbox, "PAUSED", RECONCILE_TIMEOUT)
        .await;
    let table = printed(&service.run(&["sandboxes", "list"]));
    assert!(
        table.contains(sandbox) && table.contains("PAUSED"),
        "{table}"
    );
    its_log_is_read(service, sandbox);
    let resumed = document(&service.run(&["sandboxes", "resume", sandbox, "--json"]));
    assert_eq!(resumed["id"], *sandbox);
    let output = complaint(&service.run(&["sandboxes", "pause", "no-such-one"]));
    assert!(
        output.contains("there is no sandbox no-such-one"),
        "{output}"
    );
}

/// Also while it is paused; then following it ends at once.
fn its_log_is_read(service: &Service, sandbox: &str) {
    let whole = printed(&service.run(&["sandboxes", "logs", sandbox]));
    assert!(whole.lines().count() > 1, "{whole}");
    let last = printed(&service.run(&["sandboxes", "logs", sandbox, "--tail", "1", "--follow"]));
    assert_eq!(
        last.lines().collect::<Vec<_>>(),
        whole.lines().last().into_iter().collect::<Vec<_>>()
    );
    let output = printed(&service.run(&["sandboxes", "logs", sandbox, "--tail", "1", "--json"]));
    let output: Value = serde_json::from_str(&output).expect("a document a line");
    assert_eq!(output["line"].as_str(), whole.lines().last());
    let none = printed(&service.run(&["sandboxes", "logs", sandbox, "--tail", "0"]));
    assert_eq!(none, "");
    let output = complaint(&service.run(&["sandboxes", "logs", "no-such-one"]));
    assert!(
        output.contains("there is no sandbox no-such-one"),
        "{output}"
    );
}

/// A command that goes on.
struct Running {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Running {
    fn new(service: &Service, arguments: &[&str]) -> Self {
        let mut command = tokio::process::Command::from(service.program(arguments));
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command
            .kill_on_drop(true)
            .spawn()
            .expect("the binary can be run");
        let stdout = child.stdout.take().expect("it is a pipe");
        let lines = BufReader::new(stdout).lines();
        Self { child, lines }
    }

    async fn line(&mut self) -> Option<String> {
        let line = tokio::time::timeout(WAIT_TIMEOUT, self.lines.next_line()).await;
        line.expect("a line comes").expect("the output can be read")
    }

    /// Events until one says this.
    async fn until(&mut self, word: &str) -> Vec<Value> {
        let mut events = Vec::new();
        while let Some(line) = self.line().await {
            let event: Value = serde_json::from_str(&line).expect("each line is a document");
            events.push(event);
            if says(&events[events.len() - 1..], word) {
                return events;
            }
        }
        panic!("it ended before {word} was said: {events:?}");
    }

    /// Nobody reads it any longer.
    fn close(self) -> Child {
        self.child
    }
}

async fn code(mut child: Child) -> Option<i32> {
    let ended = tokio::time::timeout(WAIT_TIMEOUT, child.wait()).await;
    ended.expect("it ends").expect("it is a child").code()
}

fn says(events: &[Value], word: &str) -> bool {
    events
        .iter()
        .any(|event| event["kind"] == "MessageEvent" && event.to_string().contains(word))
}

#[tokio::test]
async fn events_are_followed_as_they_arrive_over_a_restart_until_the_conversation_is_deleted() {
    let mut world = World::with("").await;
    let start = [
        "conversations",
        "start",
        "--message",
        "first",
        "--follow",
        "--json",
    ];
    let mut whole = Running::new(&world.service, &start);
    let task = whole.line().await.expect("the start is output first");
    let task: Value = serde_json::from_str(&task).expect("it is a document");
    assert_eq!(task["status"], "READY");
    let id = task["app_conversation_id"]
        .as_str()
        .expect("it is known")
        .to_owned();
    let mut seen = whole.until("first").await;

    let follow = ["conversations", "follow", &id, "--from-now", "--json"];
    let mut later = Running::new(&world.service, &follow);
    let mut gone = Running::new(&world.service, &follow[..3]);
    assert!(gone.line().await.is_some());
    let gone = gone.close();
    // When it has connected nobody can see from outside, but for what it prints.
    let mut late = None;
    for _ in 0..30 {
        world.user.say(&id, "again").await;
        late = tokio::time::timeout(Duration::from_secs(2), later.lines.next_line())
            .await
            .ok();
        if late.is_some() {
            break;
        }
    }
    let late = late
        .expect("it prints what arrives")
        .expect("it can be read");
    assert!(!late.expect("it goes on").contains("first"));

    world.service.restart().await;
    world.user.executed(&id, "finished").await;
    world.user.say(&id, "last").await;
    seen.extend(whole.until("last").await);
    let ids: std::collections::BTreeSet<_> =
        seen.iter().map(|event| event["id"].as_str()).collect();
    assert_eq!(ids.len(), seen.len(), "an event came twice");
    assert!(!says(&later.until("last").await, "first"));
    assert_eq!(
        code(gone).await,
        Some(0),
        "a reader who goes away is no failure"
    );

    world.user.delete_conversation(&id).await;
    while whole.line().await.is_some() {}
    while later.line().await.is_some() {}
    assert_eq!(code(whole.close()).await, Some(0));
    assert_eq!(code(later.close()).await, Some(0));
    let output = complaint(&world.service.run(&["conversations", "follow", &id]));
    assert!(output.contains("conversations list"), "{output}");
}

#[tokio::test]
async fn what_goes_wrong_is_said_with_what_to_do() {
    let mut world = World::with("exit-at-start").await;
    let start = ["conversations", "start", "--message", "hello", "--wait"];
    let output = complaint(&world.service.run(&start));
    assert!(
        output.contains("ERROR") && output.contains("did not start: "),
        "{output}"
    );

    let mut wrong = world.service.program(&["conversations", "list"]);
    wrong.env("AGENT_WORKSPACE_KEY", "aw_canary-of-this-test");
    let output = complaint(&wrong.output().expect("the binary can be run"));
    assert!(
        output.contains("AGENT_WORKSPACE_KEY") && output.contains("keys create"),
        "{output}"
    );
    assert!(!output.contains("canary"), "{output}");

    // Another machine: no configuration and no data directory, but a URL and a file.
    let file = world.service.root().join("key");
    std::fs::write(&file, world.user.key()).expect("the directory is writable");
    let url = world.service.url();
    let mut elsewhere = world
        .service
        .program(&["specs", "list", "--json", "--url", &url]);
    elsewhere.env_clear().env("AGENT_WORKSPACE_KEY_FILE", &file);
    elsewhere.envs(world.service.trusted().map(|file| (TRUSTED, file)));
    let _ = document(&elsewhere.output().expect("the binary can be run"));

    world.service.kill9();
    // Not through a proxy, which would be there.
    let url = format!("http://{}", world.service.address());
    let mut direct = world.service.program(&["sandboxes", "list"]);
    direct.env("WORKSPACE_HTTP__PUBLIC_URL", "");
    let output = complaint(&direct.output().expect("the binary can be run"));
    assert!(
        output.contains(&url) && output.contains("agent-workspace serve"),
        "{output}"
    );
    world.service.restart().await;
}
