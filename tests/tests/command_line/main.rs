//! The commands that call a running service: `conversations`, `sandboxes`, `specs`, `organizations`.

mod organizations;

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use acceptance::service::CERTIFICATES_VARIABLE;
use acceptance::world::RECONCILE_TIMEOUT;
use acceptance::{Service, World};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout};

const WAIT_TIMEOUT: Duration = Duration::from_secs(180);

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the output is not UTF-8")
}

/// Standard output of a command that must succeed.
#[track_caller]
fn stdout_of(output: &Output) -> String {
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).to_owned()
}

#[track_caller]
fn json_of(output: &Output) -> Value {
    serde_json::from_str(&stdout_of(output)).expect("the output is not one JSON document")
}

/// Standard error of a command that must fail.
#[track_caller]
fn stderr_of(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    text(&output.stderr).to_owned()
}

async fn run_with_input(command: Command, input: &str) -> Output {
    let mut command = tokio::process::Command::from(command);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command
        .kill_on_drop(true)
        .spawn()
        .expect("cannot run the agent-workspace binary");
    let mut stdin = child.stdin.take().expect("the child has no pipe");
    stdin
        .write_all(input.as_bytes())
        .await
        .expect("cannot write to standard input");
    drop(stdin);
    let output = tokio::time::timeout(WAIT_TIMEOUT, child.wait_with_output()).await;
    output
        .expect("the command does not end")
        .expect("cannot read the output")
}

#[tokio::test]
async fn commands_start_list_pause_and_resume_a_conversation() {
    let world = World::with_faults("").await;
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
    let started = run_with_input(service.cli_command(&start), "hello\n").await;
    let (shown, output) = (stdout_of(&started), text(&started.stderr));
    assert!(
        output.lines().count() > 2 && output.contains("  READY"),
        "{output}"
    );
    let named = |name: &str| {
        let line = shown.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no line begins with {name}: {shown}"))
            .trim()
            .to_owned()
    };
    let (id, sandbox) = (named("conversation"), named("sandbox"));
    assert_eq!(
        world.user.conversation(&id).await.title.as_deref(),
        Some("By hand")
    );

    let table = stdout_of(&service.run(&["conversations", "list"]));
    assert!(
        table
            .lines()
            .nth(1)
            .is_some_and(|row| row.contains(&id) && row.ends_with("By hand")),
        "{table}"
    );
    let listed = json_of(&service.run(&["conversations", "list", "--json"]));
    assert_eq!(listed["items"][0]["id"], *id);
    let all = stdout_of(&service.run(&["conversations", "list", "--all", "--json"]));
    assert_eq!(
        all.lines().count(),
        1,
        "--all --json prints one document a line: {all}"
    );
    assert_sandbox_commands(&world, &sandbox).await;
    let specs = json_of(&service.run(&["specs", "list", "--json"]));
    assert!(specs["items"][0]["id"].is_string(), "{specs}");
}

async fn assert_sandbox_commands(world: &World, sandbox: &str) {
    let service = &world.service;
    let sandboxes = service.run(&["sandboxes", "list", "--json"]);
    let key = world
        .user
        .sandbox(sandbox)
        .await
        .expect("the sandbox is missing")
        .session_api_key;
    let key = key.expect("the running sandbox has no key");
    assert!(
        !stdout_of(&sandboxes).contains(&key),
        "sandboxes list prints the sandbox's key"
    );
    assert_eq!(json_of(&sandboxes)["items"][0]["id"], *sandbox);
    let _ = stdout_of(&service.run(&["sandboxes", "pause", sandbox]));
    world
        .user
        .wait_for_sandbox_status(sandbox, "PAUSED", RECONCILE_TIMEOUT)
        .await;
    let table = stdout_of(&service.run(&["sandboxes", "list"]));
    assert!(
        table.contains(sandbox) && table.contains("PAUSED"),
        "{table}"
    );
    assert_log_command(service, sandbox);
    let resumed = json_of(&service.run(&["sandboxes", "resume", sandbox, "--json"]));
    assert_eq!(resumed["id"], *sandbox);
    let output = stderr_of(&service.run(&["sandboxes", "pause", "no-such-one"]));
    assert!(
        output.contains("there is no sandbox no-such-one"),
        "{output}"
    );
}

/// Reads the log of a paused sandbox; `--follow` ends at once, because nothing is running.
fn assert_log_command(service: &Service, sandbox: &str) {
    let whole = stdout_of(&service.run(&["sandboxes", "logs", sandbox]));
    assert!(whole.lines().count() > 1, "{whole}");
    let last = stdout_of(&service.run(&["sandboxes", "logs", sandbox, "--tail", "1", "--follow"]));
    assert_eq!(
        last.lines().collect::<Vec<_>>(),
        whole.lines().last().into_iter().collect::<Vec<_>>()
    );
    let output = stdout_of(&service.run(&["sandboxes", "logs", sandbox, "--tail", "1", "--json"]));
    let output: Value = serde_json::from_str(&output).expect("a line is not a JSON document");
    assert_eq!(output["line"].as_str(), whole.lines().last());
    let none = stdout_of(&service.run(&["sandboxes", "logs", sandbox, "--tail", "0"]));
    assert_eq!(none, "");
    let unknown = "00000000000000000000000000000001";
    let output = stderr_of(&service.run(&["egress", "deny", unknown]));
    assert!(output.contains("egress list"), "{output}");
    let output = stderr_of(&service.run(&["sandboxes", "logs", "no-such-one"]));
    assert!(
        output.contains("there is no sandbox no-such-one"),
        "{output}"
    );
}

/// A running command whose output is read line by line.
struct FollowedCommand {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl FollowedCommand {
    fn new(service: &Service, arguments: &[&str]) -> Self {
        let mut command = tokio::process::Command::from(service.cli_command(arguments));
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command
            .kill_on_drop(true)
            .spawn()
            .expect("cannot run the agent-workspace binary");
        let stdout = child.stdout.take().expect("the child has no pipe");
        let lines = BufReader::new(stdout).lines();
        Self { child, lines }
    }

    async fn next_line(&mut self) -> Option<String> {
        let line = tokio::time::timeout(WAIT_TIMEOUT, self.lines.next_line()).await;
        line.expect("no line arrives")
            .expect("cannot read the output")
    }

    /// Reads events up to the message that contains `word`.
    async fn read_until(&mut self, word: &str) -> Vec<Value> {
        let mut events = Vec::new();
        while let Some(line) = self.next_line().await {
            let event: Value = serde_json::from_str(&line).expect("a line is not a JSON document");
            events.push(event);
            if has_message(&events[events.len() - 1..], word) {
                return events;
            }
        }
        panic!("the command ended before a message with {word}: {events:?}");
    }

    /// Closes the pipe of its output.
    fn into_child(self) -> Child {
        self.child
    }
}

async fn exit_code(mut child: Child) -> Option<i32> {
    let ended = tokio::time::timeout(WAIT_TIMEOUT, child.wait()).await;
    ended
        .expect("the command does not end")
        .expect("cannot wait for the command")
        .code()
}

fn has_message(events: &[Value], word: &str) -> bool {
    events
        .iter()
        .any(|event| event["kind"] == "MessageEvent" && event.to_string().contains(word))
}

#[tokio::test]
async fn follow_prints_new_events_across_a_restart_until_the_conversation_is_deleted() {
    let mut world = World::with_faults("").await;
    let start = [
        "conversations",
        "start",
        "--message",
        "first",
        "--follow",
        "--json",
    ];
    let mut whole = FollowedCommand::new(&world.service, &start);
    let task = whole.next_line().await.expect("the start is not printed");
    let task: Value = serde_json::from_str(&task).expect("the start is not a JSON document");
    assert_eq!(task["status"], "READY");
    let id = task["app_conversation_id"]
        .as_str()
        .expect("the start has no conversation id")
        .to_owned();
    let mut seen = whole.read_until("first").await;

    let follow = ["conversations", "follow", &id, "--from-now", "--json"];
    let mut later = FollowedCommand::new(&world.service, &follow);
    let mut gone = FollowedCommand::new(&world.service, &follow[..3]);
    assert!(gone.next_line().await.is_some());
    let gone = gone.into_child();
    // Only the output shows that the command has connected, so messages are sent until one is printed.
    let mut late = None;
    let connected_by = Instant::now() + WAIT_TIMEOUT;
    while Instant::now() < connected_by {
        world.user.send_message(&id, "again").await;
        late = tokio::time::timeout(Duration::from_secs(2), later.lines.next_line())
            .await
            .ok();
        if late.is_some() {
            break;
        }
    }
    let late = late
        .expect("follow --from-now prints no new event")
        .expect("cannot read the output");
    assert!(!late.expect("the output has ended").contains("first"));

    world.service.restart().await;
    world.user.wait_for_execution_status(&id, "finished").await;
    world.user.send_message(&id, "last").await;
    seen.extend(whole.read_until("last").await);
    let ids: std::collections::BTreeSet<_> =
        seen.iter().map(|event| event["id"].as_str()).collect();
    assert_eq!(ids.len(), seen.len(), "an event was printed twice");
    assert!(!has_message(&later.read_until("last").await, "first"));
    assert_eq!(
        exit_code(gone).await,
        Some(0),
        "a closed pipe is not an error"
    );

    world.user.delete_conversation(&id).await;
    while whole.next_line().await.is_some() {}
    while later.next_line().await.is_some() {}
    assert_eq!(exit_code(whole.into_child()).await, Some(0));
    assert_eq!(exit_code(later.into_child()).await, Some(0));
    let output = stderr_of(&world.service.run(&["conversations", "follow", &id]));
    assert!(output.contains("conversations list"), "{output}");
}

#[tokio::test]
async fn errors_name_the_cause_and_the_remedy() {
    let mut world = World::with_faults("exit-at-start").await;
    let start = ["conversations", "start", "--message", "hello", "--wait"];
    let output = stderr_of(&world.service.run(&start));
    assert!(
        output.contains("ERROR") && output.contains("did not start: "),
        "{output}"
    );

    let mut wrong = world.service.cli_command(&["conversations", "list"]);
    wrong.env("AGENT_WORKSPACE_KEY", "aw_canary-of-this-test");
    let output = stderr_of(
        &wrong
            .output()
            .expect("cannot run the agent-workspace binary"),
    );
    assert!(
        output.contains("AGENT_WORKSPACE_KEY") && output.contains("keys create"),
        "{output}"
    );
    assert!(!output.contains("canary"), "{output}");

    // As on another machine: a URL and a key file, no configuration and no data directory.
    let file = world.service.root().join("key");
    std::fs::write(&file, world.user.key()).expect("cannot write the key file");
    let url = world.service.url();
    let mut elsewhere = world
        .service
        .cli_command(&["specs", "list", "--json", "--url", &url]);
    elsewhere.env_clear().env("AGENT_WORKSPACE_KEY_FILE", &file);
    elsewhere.envs(
        world
            .service
            .front_certificate_file()
            .map(|file| (CERTIFICATES_VARIABLE, file)),
    );
    let _ = json_of(
        &elsewhere
            .output()
            .expect("cannot run the agent-workspace binary"),
    );

    world.service.kill9();
    // Called directly: a proxy in front would still answer.
    let url = format!("http://{}", world.service.address());
    let mut direct = world.service.cli_command(&["sandboxes", "list"]);
    direct.env("WORKSPACE_HTTP__PUBLIC_URL", "");
    let output = stderr_of(
        &direct
            .output()
            .expect("cannot run the agent-workspace binary"),
    );
    assert!(
        output.contains(&url) && output.contains("agent-workspace serve"),
        "{output}"
    );
    world.service.restart().await;
}
