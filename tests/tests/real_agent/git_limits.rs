//! Limits of what agents do with git: a real git host, the real binary, a real agent server.

use serde_json::{Value, json};

use crate::repositories::{GitWorld, request};
use crate::support::Setup;

/// What an agent tries. The command names the token, so that the agent server would set it.
const ATTEMPTS: &str = "RUN: git commit --quiet --allow-empty -m x; git push origin HEAD:refs/heads/theirs >seen.txt 2>&1; \
    echo \"other branch: $?\" >>seen.txt; git push --quiet origin HEAD >push.txt 2>&1; echo \"own branch: $?\" >>seen.txt; \
    git push --quiet origin :feature/next >>push.txt 2>&1; echo \"deletion: $?\" >>seen.txt; \
    echo \"token: ${GITHUB_TOKEN:-none}\" >>seen.txt";

pub(crate) async fn an_agent_pushes_its_own_branch_only(setup: Setup) {
    let limits = [
        ("WORKSPACE_BROKER__GIT_REPOSITORIES", "conversations"),
        ("WORKSPACE_BROKER__GIT_PUSH", "working_branch"),
    ];
    let world = GitWorld::build_with(&setup, &limits).await;
    let user = &world.user;
    let task = user.start(&request(ATTEMPTS, &json!({}))).await;
    let conversation = user.wait_until_ready(&task).await;
    user.wait_for_execution_status(&conversation.id, "finished")
        .await;
    let sandbox = &conversation.sandbox_id;
    let file = |name: &str| world.service.workspace_file(sandbox, name);
    let seen = file("tools/seen.txt").expect("the agent was there");
    let end: String = conversation.id.chars().skip(16).collect();
    let own = format!("openhands-workspace-{end}");
    let reason =
        format!("agents may not push refs/heads/theirs, only branches {own} of this repository");
    assert!(seen.contains(&reason), "{seen}");
    for line in [
        "other branch: 1",
        "own branch: 0",
        "deletion: 1",
        "token: none",
    ] {
        assert!(
            seen.contains(line),
            "{line}: {seen} {:?}",
            file("tools/push.txt")
        );
    }
    assert!(world.git.has_branch(&own) && !world.git.has_branch("theirs"));
    assert!(world.git.has_branch("feature/next"), "it was deleted");
    let audit = user.get_all_pages("/api/v1/audit").await;
    let object = format!(
        "repository:{}/acme/tools",
        world.git.url().trim_start_matches("https://")
    );
    for outcome in ["ok", "refused"] {
        let is_it = |entry: &Value| {
            entry["action"] == "git push"
                && entry["actor"] == json!(format!("sandbox:{sandbox}"))
                && entry["outcome"] == outcome
                && entry["object"] == json!(object)
        };
        assert!(audit.iter().any(is_it), "{outcome}: {audit:?}");
    }
}
