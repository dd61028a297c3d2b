//! The Python SDK as its users install it, with the addresses of the API: through the gateway.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::time::timeout;

use crate::support::{RECONCILE_TIMEOUT, Setup, World, user_messages};
use acceptance::service::CERTIFICATES_VARIABLE;
use acceptance::wait::wait_for;

const PROGRAM: &str = include_str!("../../fixtures/sdk_user.py");
/// Time for importing the SDK and for two runs.
const WAIT_TIMEOUT: Duration = Duration::from_secs(120);

pub(crate) async fn a_program_of_the_sdk_works_in_a_sandbox(setup: Setup) {
    let world = World::start(setup.clone()).await;
    let user = &world.user;
    let conversation = user.converse("RUN: echo one > first.txt").await;
    let (id, sandbox) = (&conversation.id, &conversation.sandbox_id);
    user.wait_for_execution_status(id, "finished").await;
    let found = user.get(&format!("/api/v1/sandboxes?id={sandbox}")).await;
    let found = found.ok()[0].clone();
    let urls = found["exposed_urls"].as_array().into_iter().flatten();
    let mut urls = urls.filter(|it| it["name"] == "AGENT_SERVER");
    let host = urls.next().map(|it| it["url"].clone());
    let host = host.expect("it is told where the agent server is");
    let text = host.as_str().unwrap_or_default().trim_end_matches('/');
    assert_eq!(text, world.service.url(), "the service's own port");
    let dir = world.service.sandbox_dir(sandbox).join("workspace");
    let given = json!({
        "host": host,
        "key": found["session_api_key"],
        "dir": dir,
        "conversation": id,
        "model": world.llm.base_url(),
    });
    let said = program(&setup, &world, &given).await;

    assert_eq!(said["command"], json!([0, "to the other side"]));
    assert_eq!(said["file"], "a file");
    for run in ["attached", "created"] {
        let run = &said[run];
        assert_eq!(run["status"], "finished", "{said}");
        let seen = run["seen"].as_array().cloned().unwrap_or_default();
        for kind in ["MessageEvent", "ActionEvent", "ObservationEvent"] {
            assert!(seen.contains(&json!(kind)), "no {kind}: {said}");
        }
    }
    assert_eq!(said["attached"]["id"], *id);
    for (name, text) in [("second.txt", "two"), ("third.txt", "three")] {
        assert_eq!(world.file(&conversation, name).as_deref(), Some(text));
    }
    let events = world.assert_complete(id).await;
    assert_eq!(user_messages(&events).len(), 2);
    // The conversation that the program created also belongs to the user.
    let made = said["created"]["id"].as_str().expect("an id");
    let made = wait_for(
        "the conversation that it made",
        RECONCILE_TIMEOUT,
        || async { user.find_conversation(made).await },
    )
    .await;
    assert_eq!(made.sandbox_id, *sandbox);
    world.assert_complete(&made.id).await;
}

/// Runs the program with the Python environment of the agent server.
async fn program(setup: &Setup, world: &World, given: &Value) -> Value {
    let command = setup.version.command();
    let python = command.split(' ').next().expect("a program");
    let home = world.service.root().join("home");
    let mut child = Command::new(python)
        .args(["-c", PROGRAM])
        .env_clear()
        .env("HOME", &home)
        .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        .envs(
            world
                .service
                .front_certificate_file()
                .map(|file| (CERTIFICATES_VARIABLE, file)),
        )
        .current_dir(&home)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap_or_else(|error| panic!("{python}: {error}"));
    let mut input = child.stdin.take().expect("it is piped");
    let written = input.write_all(given.to_string().as_bytes()).await;
    written.expect("it reads what it is given");
    drop(input);
    let ended = timeout(WAIT_TIMEOUT, child.wait_with_output()).await;
    let ended = ended.expect("it ends").expect("its output can be read");
    let (output, errors) = (
        String::from_utf8_lossy(&ended.stdout),
        String::from_utf8_lossy(&ended.stderr),
    );
    // The result is the last line of the output.
    let last = output.lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|_| panic!("{}: {output}\n{errors}", ended.status))
}
