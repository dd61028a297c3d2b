//! The user's MCP servers: the agent calls their tools, and a broken server leaves a note.

use acceptance::{ScriptedMcp, scripted_mcp};
use serde_json::{Value, json};

use crate::support::{Setup, World, tool_outputs, wait_for_events};

async fn use_servers(world: &World, servers: &Value) {
    let body = json!({"agent_settings_diff": {"mcp_config": servers}});
    let _ = world.user.post("/api/v1/settings", &body).await.ok();
}

/// Makes the agent look up a word with the only server of the settings. Returns the output of the tool.
async fn look_up(world: &World, servers: &Value, term: &str) -> String {
    use_servers(world, servers).await;
    let ask = format!("Please.\nTOOL: lookup {{\"word\": \"{term}\"}}");
    let task = world.user.start_with(&ask).await;
    let conversation = world.user.wait_until_ready(&task).await;
    let task = world.user.task(&task.id).await;
    assert_eq!(
        task.detail, None,
        "nothing to note about a server that works"
    );
    world
        .user
        .wait_for_execution_status(&conversation.id, "finished")
        .await;
    let found = |events: &[Value]| tool_outputs(events).contains(&format!("{term} found"));
    let events = wait_for_events(&world.user, &conversation.id, "what the tool said", found).await;
    tool_outputs(&events)
}

pub(crate) async fn the_agent_calls_tools_over_every_transport(setup: Setup) {
    let world = World::start(setup).await;
    let (address, host) = world.service.sandboxing().server_address();
    let server = ScriptedMcp::start(address, &host)
        .await
        .expect("a port is free");

    let http = json!({"words": {"url": server.http_url(), "transport": "http",
        "auth": {"strategy": "bearer", "value": "mcp-key"}}});
    let answer = look_up(&world, &http, "moon").await;
    assert!(answer.contains("moon found over /mcp"), "{answer}");

    let sse = json!({"words": {"url": server.sse_url(), "transport": "sse"}});
    let answer = look_up(&world, &sse, "sun").await;
    assert!(answer.contains("sun found over /sse"), "{answer}");

    let calls = server.calls();
    let seen: Vec<_> = calls
        .iter()
        .map(|it| (it.over, it.word.as_str(), it.key.as_deref()))
        .collect();
    assert_eq!(
        seen,
        [("/mcp", "moon", Some("mcp-key")), ("/sse", "sun", None)]
    );

    let (command, args) = scripted_mcp::stdio();
    let stdio =
        json!({"words": {"command": command, "args": args, "env": {"MCP_TOKEN": "a-word"}}});
    let answer = look_up(&world, &stdio, "star").await;
    assert!(answer.contains("star found over stdio with"), "{answer}");
}

pub(crate) async fn a_broken_mcp_server_costs_a_note(setup: Setup) {
    let world = World::start(setup).await;
    let (command, args) = scripted_mcp::stdio();
    // No program listens on the discard port; the second server exits immediately; the third never responds.
    let servers = json!({
        "nobody": {"url": "http://127.0.0.1:9/mcp", "transport": "http"},
        "ends": {"command": "false"},
        "hangs": {"command": "sleep", "args": ["600"]},
        "fine": {"command": command, "args": args},
    });
    use_servers(&world, &servers).await;
    let ask = "Please.\nTOOL: lookup {\"word\": \"star\"}";
    let task = world.user.start_with(ask).await;
    let conversation = world.user.wait_until_ready(&task).await;
    let detail = world.user.task(&task.id).await.detail.expect("notes");
    for name in ["nobody", "ends", "hangs"] {
        assert!(detail.contains(name), "{name}: {detail}");
    }
    assert!(!detail.contains("fine"), "{detail}");
    let ended = world
        .user
        .wait_for_execution_status(&conversation.id, "finished")
        .await;
    assert_eq!(ended.sandbox_status, "RUNNING");
    let found = |events: &[Value]| tool_outputs(events).contains("star found over stdio");
    wait_for_events(&world.user, &conversation.id, "what the tool said", found).await;
}
