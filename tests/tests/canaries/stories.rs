//! What happens between planting and looking.

use acceptance::canaries::{PlantedSecrets, start_request, wrong_types};
use acceptance::client::Conversation;
use acceptance::{Client, Sandboxing};
use reqwest::Method;
use serde_json::{Value, json};

use crate::bench::CanaryBench;
use crate::provider::FakeProvider;

const MODEL: &str = "openai/stub";
const NOWHERE: &str = "http://127.0.0.1:9/v1";
const START: &str = "/api/v1/app-conversations";
/// Given to the agent server by value with a start.
const LAUNCHED: [&str; 15] = [
    "LlmKey",
    "AwsAccessKeyId",
    "AwsSecretAccessKey",
    "AwsSessionToken",
    "SearchKey",
    "McpBearer",
    "McpEnv",
    "McpQuery",
    "SseKey",
    "SseQuery",
    "ShttpKey",
    "ShttpQuery",
    "StdioEnv",
    "Request",
    "RequestOther",
];
/// Looked up by it.
const LOOKED_UP: [&str; 7] = [
    "Github",
    "Gitlab",
    "Bitbucket",
    "Forgejo",
    "AzureDevops",
    "Custom",
    "CustomLegacy",
];

/// All of it, with a look in the middle, after the crash, and at the end.
pub(crate) async fn play(mut bench: CanaryBench) {
    let (ann, bob) = (
        PlantedSecrets::with_special_characters("Ann"),
        PlantedSecrets::with_special_characters("Bob"),
    );
    let (annas, bobs) = (bench.town.user("Ann"), bench.town.user("Bob"));
    for (user, planted) in [(&annas, &ann), (&bobs, &bob)] {
        bench.town.plant(user, planted, MODEL, NOWHERE).await;
    }
    let hers = a_run(&mut bench, &annas, "Ann", &ann).await;
    let his = a_run(&mut bench, &bobs, "Bob", &bob).await;
    crossing(&annas, &his).await;
    errors(&bench, &annas, &hers, &ann).await;
    starts_that_fail(&bench, &annas, &ann).await;
    bench.town.read_all(&annas).await;
    bench.town.read_all(&bobs).await;
    look(&bench);
    a_crash(&mut bench, &annas, &hers).await;
    a_rotation(&mut bench);
    if let Some(server) = &bench.town.postgres {
        server.stop("immediate");
        // Whatever the answer is: it is looked at.
        let _ = annas.get("/api/v1/settings").await;
        let _ = annas.get("/ready").await;
        let _ = bench.town.run(&["doctor"]);
        bench.town.postgres.as_ref().expect("it is there").resume();
        for path in ["/api/v1/settings", "/ready"] {
            acceptance::wait::wait_for(
                "the database",
                acceptance::world::RECONCILE_TIMEOUT,
                || async { (annas.get(path).await.status == 200).then_some(()) },
            )
            .await;
        }
    }
    bench.town.read_all(&annas).await;
    for command in [
        &["config"][..],
        &["doctor"],
        &["doctor", "--json"],
        &["keys", "list"],
        &["users", "list"],
        &["openapi"],
    ] {
        let said = bench.town.run(command);
        assert!(!said.is_empty(), "{command:?} says nothing");
    }
    look(&bench);
    let _ = bench.town.run(&["users", "delete", "Ann", "--yes"]);
    bench.town.read_all(&bobs).await;
    bench.town.service.stop().await;
    look(&bench);
}

fn look(bench: &CanaryBench) {
    bench.town.assert_no_leak(&|_, _| false);
}

/// A conversation from start to end, by a request that may be repeated; its sandbox opens what it may.
async fn a_run(
    bench: &mut CanaryBench,
    user: &Client,
    name: &str,
    of: &PlantedSecrets,
) -> Conversation {
    let request = start_request("hello", of);
    let mut task = Value::Null;
    for _ in 0..2 {
        let reply = user
            .try_repeatable(Method::POST, START, Some(&request), Some(name))
            .await;
        task = reply.expect("an answer").ok();
    }
    let task = user.task(task["id"].as_str().expect("an id")).await;
    let conversation = user.ready(&task).await;
    user.executed(&conversation.id, "finished").await;
    let created = bench.stub.creates().join("\n");
    for place in LAUNCHED {
        assert!(
            created.contains(&of.core(place)),
            "{place} did not reach the agent server: nothing is proved"
        );
    }
    for place in LOOKED_UP {
        assert!(
            !created.contains(&of.core(place)),
            "{place} is sent, and not looked up"
        );
    }
    let inside = bench.town.learn_sandbox(name, &conversation);
    let sandbox = &conversation.sandbox_id;
    let signed = bench.town.learn_addresses(name, user, sandbox).await;
    let has_ports = matches!(bench.town.service.sandboxing(), Sandboxing::Docker(_));
    assert!(signed > 0 || !has_ports, "no port has an address");
    bench.town.open(&inside, &conversation, of).await;
    user.say(&conversation.id, "More.").await;
    user.executed(&conversation.id, "finished").await
}

/// Nobody gets at another's with a key of their own.
async fn crossing(user: &Client, other: &Conversation) {
    for path in ["settings/secrets", "settings/secrets/CUSTOM"] {
        let path = format!("/api/v1/sandboxes/{}/{path}", other.sandbox_id);
        let reply = user.get(&path).await;
        assert!(matches!(reply.status, 401 | 403 | 404), "{reply:?}");
    }
    let events = user.events(&other.id).await;
    assert!(events.is_empty());
}

/// Requests and reports that are refused, or make no sense.
async fn errors(
    bench: &CanaryBench,
    user: &Client,
    conversation: &Conversation,
    of: &PlantedSecrets,
) {
    for (path, body) in wrong_types(of) {
        let reply = user.post(path, &body).await;
        assert!(
            (400..500).contains(&reply.status),
            "{path} {body}: {reply:?}"
        );
    }
    let put = json!({"name": 5, "value": of.value("Custom"), "description": []});
    for path in ["/api/v1/secrets/CUSTOM", "/api/secrets/CUSTOM_LEGACY"] {
        let _ = user.call(Method::PUT, path, Some(&put)).await;
    }
    let nobody = bench.town.caller(&format!("aw_{}", of.core("WrongKey")));
    for path in [
        "/api/v1/settings",
        "/api/settings",
        "/api/v1/users/me",
        "/api/v1/webhooks/secrets",
    ] {
        assert_eq!(nobody.get(path).await.status, 401, "{path}");
    }
    let key = conversation
        .session_api_key
        .as_deref()
        .expect("it is RUNNING");
    let inside = bench.town.caller(key);
    let info = json!({"id": conversation.id, "execution_status": "finished", "secret_registry": of.value("Request"),
        "agent": {"kind": "Agent", "llm": {"model": "m", "api_key": of.value("LlmKey")}}, "more": {"key": of.value("LlmKey")}});
    let odd =
        json!({"id": [5], "execution_status": of.value("LlmKey"), "agent": of.value("LlmKey")});
    for body in [
        info,
        odd,
        json!([of.value("LlmKey")]),
        json!(of.value("LlmKey")),
    ] {
        for caller in [&inside, &nobody] {
            let _ = caller.post("/api/v1/webhooks/conversations", &body).await;
        }
    }
    let path = format!("/api/v1/webhooks/events/{}", conversation.id);
    for body in [
        json!(of.value("LlmKey")),
        json!([of.value("LlmKey"), 5]),
        json!({"a": of.value("LlmKey")}),
    ] {
        let _ = inside.post(&path, &body).await;
    }
}

/// The agent server, its shell and a git provider quote what they are sent.
async fn starts_that_fail(bench: &CanaryBench, user: &Client, of: &PlantedSecrets) {
    let fails = async |request: &Value| {
        let task = user.start(request).await;
        let ended = user.ended(&task).await;
        assert_eq!(ended.status, "ERROR", "{ended:?}");
        if let Some(sandbox) = ended.sandbox_id {
            let path = format!("/api/v1/sandboxes/{sandbox}?sandbox_id={sandbox}");
            let _ = user.delete(&path).await;
        }
        ended.detail.unwrap_or_default()
    };
    bench.stub.set("create-echo");
    let cause = fails(&start_request("hello", of)).await;
    assert!(
        cause.contains("**********"),
        "nothing was quoted, so nothing is proved: {cause}"
    );
    bench.stub.set("bash-echo");
    let mut request = start_request("hello", of);
    request["selected_repository"] = json!("acme/tools");
    request["git_provider"] = json!("github");
    let _ = fails(&request).await;
    bench.stub.set("");
    // With no key of the other vendor's: refused.
    let mut request = start_request("hello", of);
    request["llm_model"] = json!("anthropic/other");
    let _ = user.post(START, &request).await;

    let provider = FakeProvider::start().await;
    let tokens =
        json!({"provider_tokens": {"gitlab": {"token": of.value("Gitlab"), "host": provider.url}}});
    let _ = user
        .post("/api/v1/secrets/git-providers", &tokens)
        .await
        .ok();
    for path in [
        "/api/v1/git/repositories/search?provider=gitlab",
        "/api/v1/git/branches/search?provider=gitlab&repository=a/b",
        "/api/v1/git/installations/search?provider=gitlab",
        "/api/v1/git/suggested-tasks/search",
        "/api/v1/users/git-info",
    ] {
        let _ = user.get(path).await;
    }
    let arguments = json!({"id": "a/b", "source_branch": "c", "target_branch": "d", "title": "t", "description": null});
    let ask = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "create_mr", "arguments": arguments}});
    // Once for each way of refusing.
    for _ in 0..4 {
        let answer = user.post("/mcp/mcp", &ask).await.ok();
        assert_eq!(answer["result"]["isError"], true, "{answer}");
    }
}

/// `kill -9` with a run under way, and with a start that has only been acknowledged.
async fn a_crash(bench: &mut CanaryBench, user: &Client, conversation: &Conversation) {
    user.say(&conversation.id, "HOLD").await;
    user.executed(&conversation.id, "running").await;
    let task = user.start_with("hello").await;
    bench.town.service.kill9();
    look(bench);
    bench.town.service.restart().await;
    bench.stub.go();
    user.executed(&conversation.id, "finished").await;
    let second = user.ready(&user.task(&task.id).await).await;
    let _ = bench.town.learn_sandbox("Ann", &second);
    if let Sandboxing::Process = bench.town.service.sandboxing() {
        user.pause(&second.sandbox_id).await;
    }
}

fn a_rotation(bench: &mut CanaryBench) {
    let _ = bench.town.run(&["secrets", "rotate-key", "--dry-run"]);
    bench.renew_master_key();
    // Synchronous as any command of an operator; the service goes on meanwhile in its own process.
    let said = bench
        .town
        .run(&["secrets", "rotate-key", "--wait", "1m", "--settle", "1s"]);
    assert!(said.contains("may be removed"), "{said}");
}
