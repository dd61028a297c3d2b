//! What must be true after a case: everything that was acknowledged is there, once, and nothing else.

use std::collections::BTreeSet;

use acceptance::Sandboxing;
use acceptance::client::Conversation;
use acceptance::service::Trace;
use reqwest::Method;
use serde_json::Value;

use crate::bench::CrashBench;
use crate::rows::FORBIDDEN;
use crate::scenario::is_one_run;

/// What is there in the end, beside nothing.
pub(crate) struct ExpectedState {
    pub(crate) conversations: Vec<Conversation>,
    /// Whether the sandbox of all of them runs; otherwise there is none.
    pub(crate) has_sandbox: bool,
    /// Ids of events that the first of them has beside those of its run.
    pub(crate) events: Vec<String>,
}

/// Waits for the end of a sandbox that was deleted: its row, what it had on the machine, and its conversations.
pub(crate) async fn is_gone(bench: &mut CrashBench, id: &str) {
    bench
        .until("the end of a sandbox", async |bench| {
            let rows = bench.read(&format!("/api/v1/sandboxes?id={id}")).await;
            let mut traces = bench.service.traces_of(id);
            traces.retain(Trace::is_there);
            let processes = bench.service.processes();
            if !(rows[0].is_null() && traces.is_empty() && processes.is_empty()) {
                return Err(format!("{rows} {traces:?} {processes:?}"));
            }
            // Nobody sees it any more as soon as it is to be deleted; its row goes when that is done, also the last of it.
            let kept = bench.query(&format!("select count(*) from sandboxes where id = '{id}'"));
            (kept == "0").then_some(()).ok_or(kept)
        })
        .await;
}

/// Waits until the agent server, too, has forgotten a conversation, and the service knows.
pub(crate) async fn is_forgotten(bench: &mut CrashBench, gone: &Conversation) {
    let url = gone.conversation_url.clone().expect("it ran");
    let key = gone.session_api_key.clone().expect("it ran");
    let direct = acceptance::Client::new(url, &key);
    bench
        .until("the agent server to forget", async |bench| {
            // Through the service, which may just be dying.
            let answer = direct.try_call(Method::GET, "/events/count", None).await;
            let answer = answer.map_err(|error| error.to_string())?;
            if answer.status != 404 {
                return Err(answer.text);
            }
            let pending = bench.query("select count(*) from deleted_conversations where pending");
            (pending == "0").then_some(()).ok_or(pending)
        })
        .await;
}

/// Checks it all. The service lives.
pub(crate) async fn holds(bench: &mut CrashBench, expected: &ExpectedState) {
    let ids = |all: &[Conversation]| -> BTreeSet<String> {
        all.iter()
            .map(|conversation| conversation.id.clone())
            .collect()
    };
    let found = bench.user.conversations().await;
    assert_eq!(found.len(), expected.conversations.len(), "{found:?}");
    assert_eq!(ids(&found), ids(&expected.conversations), "conversations");

    let sandboxes = bench.user.sandboxes().await;
    let wanted: BTreeSet<&str> = expected
        .conversations
        .iter()
        .filter(|_| expected.has_sandbox)
        .map(|it| it.sandbox_id.as_str())
        .collect();
    let running = sandboxes.iter().filter(|it| it.status == "RUNNING");
    let running: BTreeSet<&str> = running.map(|it| it.id.as_str()).collect();
    assert_eq!(running, wanted, "sandboxes that run");
    assert_eq!(sandboxes.len(), wanted.len(), "{sandboxes:?}");
    let servers = bench.service.agent_servers();
    assert_eq!(servers.len(), wanted.len(), "{servers:?}");
    bench.service.assert_no_orphans(&[&bench.user]).await;

    for (conversation, is_first) in expected.conversations.iter().zip([true, false]) {
        let more = if is_first { &*expected.events } else { &[] };
        events_are_there_once(bench, conversation, expected.has_sandbox, more).await;
    }
    rows_are_legal(bench).await;
}

/// All that the agent server has, if it is there, and what was reported by others, each once.
async fn events_are_there_once(
    bench: &mut CrashBench,
    conversation: &Conversation,
    has_sandbox: bool,
    more: &[String],
) {
    let id = &conversation.id;
    let mut wanted = more.to_vec();
    if has_sandbox {
        let now = bench.user.conversation(id).await;
        let theirs = bench.user.events_at_agent_server(&now).await;
        assert!(is_one_run(&theirs), "at the agent server: {theirs:#?}");
        wanted.extend(ids(&theirs));
        wanted.sort_unstable();
    }
    let ours = bench
        .until("all events", async |bench| {
            let ours = bench.user.events(id).await;
            let mut found = ids(&ours);
            found.sort_unstable();
            if found == wanted || !has_sandbox {
                return Ok(ours);
            }
            Err(format!("{found:?} instead of {wanted:?}"))
        })
        .await;
    assert!(is_one_run(&ours), "{ours:#?}");
    assert_eq!(bench.user.count_events(id).await, ours.len());
}

fn ids(events: &[Value]) -> Vec<String> {
    let ids = events.iter().filter_map(|event| event["id"].as_str());
    ids.map(str::to_owned).collect()
}

async fn rows_are_legal(bench: &mut CrashBench) {
    let counts = FORBIDDEN
        .map(|(_, count)| format!("({count})"))
        .join(" || ' ' || ");
    let counts = format!("select {counts}");
    bench
        .until("rows that are legal", async |bench| {
            let found = bench.query(&counts);
            let wrong = FORBIDDEN
                .iter()
                .zip(found.split(' '))
                .filter(|(_, number)| *number != "0");
            let wrong: Vec<String> = wrong
                .map(|((what, _), number)| format!("{number} {what}"))
                .collect();
            if wrong.is_empty() {
                Ok(())
            } else {
                Err(wrong.join(", "))
            }
        })
        .await;
}

/// Deletes what is left of a case, and looks that this leaves nothing.
pub(crate) async fn clear(bench: &mut CrashBench, expected: ExpectedState) {
    for conversation in &expected.conversations {
        bench.user.delete_conversation(&conversation.id).await;
    }
    if let Some(first) = expected.conversations.first() {
        is_gone(bench, &first.sandbox_id).await;
    }
    let nothing = ExpectedState {
        conversations: Vec::new(),
        has_sandbox: false,
        events: Vec::new(),
    };
    holds(bench, &nothing).await;
    let tables = ["events", "conversations", "sandboxes"];
    let counts = tables.map(|table| format!("(select count(*) from {table})"));
    let counts = format!("select {}", counts.join(" || ' ' || "));
    // The row of a sandbox goes last: after its processes, its files, and what its owner sees of it.
    bench
        .until("no rows are left", async |bench| {
            let left = bench.query(&counts);
            let is_empty = left == "0 0 0";
            is_empty
                .then_some(())
                .ok_or_else(|| format!("{left} rows of {tables:?}"))
        })
        .await;
    if let Sandboxing::Process = bench.service.sandboxing() {
        let left: Vec<_> = std::fs::read_dir(bench.service.data().join("sandboxes"))
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .collect();
        assert!(left.is_empty(), "files: {left:?}");
    }
}

/// The network of the containers goes a while after the last one.
pub(crate) async fn no_network(bench: &mut CrashBench) {
    let instance = bench.service.instance().expect("it has run");
    let Sandboxing::Docker(engine) = bench.service.sandboxing().clone() else {
        return;
    };
    bench
        .until("the end of the network", async |_| {
            let left = engine.networks_of(&instance);
            if left.is_empty() {
                return Ok(());
            }
            Err(left.join(", "))
        })
        .await;
}
