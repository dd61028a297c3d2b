//! Secrets in a live sandbox: looked up when a command names them, so that a change reaches it at once.
//!
//! Commands write a shifted copy of what they see: what a command prints is masked, and so nothing else holds a value.

use acceptance::Client;
use serde_json::json;

use crate::support::{Setup, World};

/// As [`SHIFT`] does it.
fn shifted(text: &str) -> String {
    let next = |c: char| match c {
        'a'..='y' => char::from(c as u8 + 1),
        other => other,
    };
    text.chars().map(next).collect()
}

const SHIFT: &str = "tr a-y b-z";

/// Sets both secrets: a custom one and a git provider's token.
async fn set(user: &Client, secret: &str, token: &str) {
    let secret = json!({"name": "MY_SECRET", "value": secret, "description": "for the test"});
    let stored = user.post("/api/v1/secrets", &secret).await;
    assert_eq!(stored.status, 201, "{stored:?}");
    let tokens = json!({"provider_tokens": {"github": {"token": token}}});
    let _ = user
        .post("/api/v1/secrets/git-providers", &tokens)
        .await
        .ok();
}

/// Has the agent print both, and write a shifted copy.
fn command(file: &str) -> String {
    format!("RUN: echo \"$MY_SECRET $GITHUB_TOKEN\" | tee /dev/stderr | {SHIFT} > {file}")
}

pub(crate) async fn a_changed_secret_is_seen_by_the_next_command(setup: Setup) {
    let world = World::start(setup).await;
    let user = &world.user;
    let values = [
        ("canary-secret-one", "ghp_canary_one"),
        ("canary-secret-two", "ghp_canary_two"),
        ("canary-secret-three", "ghp_canary_three"),
    ];
    let sees = |(secret, token): (&str, &str)| Some(shifted(&format!("{secret} {token}")));

    set(user, values[0].0, values[0].1).await;
    let conversation = user.converse(&command("first.txt")).await;
    let (id, sandbox) = (&conversation.id, &conversation.sandbox_id);
    user.executed(id, "finished").await;
    assert_eq!(world.file(&conversation, "first.txt"), sees(values[0]));

    set(user, values[1].0, values[1].1).await;
    user.say(id, &command("second.txt")).await;
    user.executed(id, "finished").await;
    assert_eq!(world.file(&conversation, "second.txt"), sees(values[1]));

    // An agent server that is started again reads from its disk where to ask, and by which key.
    user.pause(sandbox).await;
    set(user, values[2].0, values[2].1).await;
    user.resume(sandbox).await;
    user.say(id, &command("third.txt")).await;
    user.executed(id, "finished").await;
    assert_eq!(world.file(&conversation, "third.txt"), sees(values[2]));

    let events = serde_json::to_string(&world.assert_complete(id).await).unwrap_or_default();
    let log = world.service.log();
    for value in values.iter().flat_map(|(secret, token)| [secret, token]) {
        assert!(!events.contains(value), "{value} is in an event");
        assert!(!log.contains(value), "{value} is in the log");
    }
    assert!(events.contains("<secret-hidden>"), "nothing was masked");
}
