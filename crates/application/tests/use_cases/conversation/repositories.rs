//! Preparation of a conversation's workspace.

use std::sync::Arc;

use application::GitCaller;
use application::Policy;
use application::git::{BranchRule, GitPolicy, GitPush, GitRepositories};
use application::settings::{GitProvidersInput, TokenInput};
use application::start::StartInput;
use domain::agent::workspace::ProjectSkill;
use domain::git::GitProvider;
use domain::git_rights::{PushRights, RepositoryRights};
use domain::sandbox::SandboxStatus;
use domain::start_task::{StartStatus, StartTask};
use serde_json::json;
use store_memory::FakeWorkspace;

use crate::fixture::{Fixture, alice, start_input, wait_for};

/// Output of the first command for an empty workspace.
const EMPTY_WORKSPACE: &str = "private=/home/a/.agent-workspace/1\nstate=absent\n";
const CLONE_COMMAND: &str = " clone --quiet";
const INSPECT_COMMAND: &str = "echo state=absent";
const SETUP_COMMAND: &str = "source ./.openhands/setup.sh";
const HOOK_MARK: &str = "Installed by agent-workspace";

async fn fixture() -> (Fixture, Arc<FakeWorkspace>) {
    fixture_with(|_| {}).await
}

async fn fixture_with(policy: fn(&mut Policy)) -> (Fixture, Arc<FakeWorkspace>) {
    let fixture = Fixture::with_policy(policy).await;
    let workspace = Arc::clone(&fixture.workspace);
    workspace.set_command_result(INSPECT_COMMAND, Some(0), EMPTY_WORKSPACE);
    (fixture, workspace)
}

async fn token(fixture: &Fixture, provider: GitProvider, token: &str) {
    let input = GitProvidersInput {
        provider_tokens: vec![(
            provider,
            TokenInput {
                token: Some(token.to_owned().into()),
                ..TokenInput::default()
            },
        )],
        mcp_config: None,
    };
    let stored = fixture
        .app
        .settings
        .add_git_providers(&alice(), &input)
        .await;
    stored.expect("the token is stored");
}

fn tools() -> StartInput {
    start_input(|r| r.selected_repository = Some("acme/tools".to_owned()))
}

fn clone_of(workspace: &FakeWorkspace) -> String {
    let commands = workspace.commands();
    let clone = commands
        .iter()
        .find(|command| command.script.contains(CLONE_COMMAND));
    clone.expect("it was cloned").script.clone()
}

fn working_dir(fixture: &Fixture) -> String {
    let launches = fixture.agents.launches();
    launches.last().expect("a launch").working_dir.clone()
}

fn assert_failed(task: &StartTask, cause: &str) {
    let detail = task.detail.as_deref().unwrap_or_default();
    assert_eq!(task.status, StartStatus::Error, "{detail}");
    assert!(detail.contains(cause), "{detail}");
}

#[tokio::test(start_paused = true)]
async fn without_a_repository_there_is_one_quick_command() {
    let (fixture, workspace) = fixture().await;
    let task = fixture.start_and_wait(start_input(|_| {})).await;
    assert_eq!((task.status, task.detail), (StartStatus::Ready, None));
    assert_eq!(workspace.commands().len(), 1);
    assert_eq!(workspace.count("git init"), 1);
    assert!(workspace.files().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_repository_is_cloned_with_a_token_that_no_command_shows() {
    let (fixture, workspace) = fixture().await;
    token(&fixture, GitProvider::Gitlab, "glpat-hunter2").await;
    workspace.set_command_result(CLONE_COMMAND, Some(0), "has=git\n");
    let mut asked = tools();
    asked.request.selected_branch = Some("next".to_owned());
    let task = fixture.start_and_wait(asked).await;
    assert_eq!((task.status, &task.detail), (StartStatus::Ready, &None));
    let script = clone_of(&workspace);
    // The only provider with a stored token.
    assert!(
        script.contains("'https://gitlab.example.com/acme/tools.git'"),
        "{script}"
    );
    assert!(script.contains("--depth=1 --branch='next'"), "{script}");
    assert!(working_dir(&fixture).ends_with("/tools"));
    let view = fixture
        .view(task.conversation_id)
        .await
        .expect("it is there");
    let tags = &view.conversation.tags;
    let expected = [
        ("git_provider", "gitlab"),
        ("repo_name", "acme/tools"),
        ("selected_branch", "next"),
    ];
    for (name, value) in expected {
        assert_eq!(tags.get(name).map(String::as_str), Some(value), "{tags:?}");
    }
    let (path, hosts) = workspace.files().pop_first().expect("git's configuration");
    assert_eq!(path, "/home/a/.agent-workspace/git");
    assert!(
        hosts.contains("[url \"http://127.0.0.1:3000/git/gitlab.example.com/\"]"),
        "{hosts}"
    );
    assert!(script.contains(&path), "{script}");
    for text in workspace
        .commands()
        .iter()
        .map(|c| &c.script)
        .chain([&hosts])
    {
        assert!(!text.contains("hunter2"), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn git_calls_hosts_itself_where_the_service_does_not() {
    let (fixture, workspace) = fixture_with(|policy| policy.git_caller = GitCaller::Sandbox).await;
    token(&fixture, GitProvider::Gitlab, "glpat-hunter2").await;
    workspace.set_command_result(CLONE_COMMAND, Some(0), "has=git\n");
    let task = fixture.start_and_wait(tools()).await;
    assert_eq!((task.status, &task.detail), (StartStatus::Ready, &None));
    let (_, hosts) = workspace.files().pop_first().expect("git's configuration");
    // Of "git-user:glpat-hunter2". A sandbox with a proxy gets a placeholder.
    let expected = "[http \"https://gitlab.example.com/\"]\n\textraHeader =\n\textraHeader = \
        \"Authorization: Basic Z2l0LXVzZXI6Z2xwYXQtaHVudGVyMg==\"\n[url \"https://gitlab.example.com/\"]\n\
        \tinsteadOf = \"git@gitlab.example.com:\"\n\tinsteadOf = \"ssh://git@gitlab.example.com/\"\n";
    assert_eq!(hosts, expected);
    for command in workspace.commands() {
        assert!(!command.script.contains("hunter2") && !command.script.contains("b2F1"));
    }
}

/// What git may do in a repository with the token that a sandbox has.
async fn rights(fixture: &Fixture, repository: &str) -> RepositoryRights {
    let files = fixture.workspace.files();
    let hosts = files.get("/home/a/.agent-workspace/git").expect("a token");
    let (_, rest) = hosts.split_once("X-Access-Token: ").expect("a header");
    let (token, _) = rest.split_once('"').expect("its end");
    let place = format!("gitlab.example.com/{repository}.git/info/refs");
    let grant = fixture.app.sandbox_git.open(token, &place).await;
    grant
        .expect("an answer")
        .expect("a grant")
        .rights_in(repository)
}

#[tokio::test(start_paused = true)]
async fn with_limits_git_writes_to_the_branch_of_a_start_and_then_of_its_conversation() {
    let (fixture, workspace) = fixture_with(|policy| {
        policy.git = GitPolicy {
            repositories: GitRepositories::OfConversations,
            push: GitPush::Branches(vec![BranchRule::Working]),
        };
    })
    .await;
    token(&fixture, GitProvider::Gitlab, "glpat-1").await;
    workspace.hang_commands(CLONE_COMMAND);
    let mut asked = tools();
    asked.request.selected_branch = Some("next".to_owned());
    let task = fixture.start(asked).await;
    wait_for(|| async { (workspace.count(CLONE_COMMAND) > 0).then_some(()) }).await;
    let expected = RepositoryRights {
        has_token: true,
        push: PushRights::Branches(vec!["next".to_owned()]),
    };
    let none = RepositoryRights::NONE;
    assert_eq!(rights(&fixture, "acme/tools").await, expected);
    assert_eq!(rights(&fixture, "acme/other").await, none);
    let fixture = fixture.kill_and_restart().await;
    workspace.set_command_result(CLONE_COMMAND, Some(0), "has=git\n");
    let ended = fixture.wait_until_ended(&task).await;
    assert_eq!(ended.status, StartStatus::Ready, "{:?}", ended.detail);
    assert_eq!(rights(&fixture, "ACME/tools").await, expected);
    assert_eq!(rights(&fixture, "acme/other").await, none);
}

#[tokio::test(start_paused = true)]
async fn a_public_repository_needs_no_token_and_comes_from_github() {
    let (fixture, workspace) = fixture().await;
    let task = fixture.start_and_wait(tools()).await;
    assert_eq!(task.status, StartStatus::Ready, "{:?}", task.detail);
    let script = clone_of(&workspace);
    assert!(
        script.contains("'https://github.example.com/acme/tools.git'"),
        "{script}"
    );
    let end: String = task.conversation_id.to_string().chars().skip(16).collect();
    assert!(
        script.contains(&format!("'openhands-workspace-{end}'")),
        "{script}"
    );
    assert!(workspace.files().is_empty(), "no token is stored");
}

#[tokio::test(start_paused = true)]
async fn a_clone_that_fails_ends_the_start_with_its_cause_and_leaves_nothing() {
    let (fixture, workspace) = fixture().await;
    token(&fixture, GitProvider::Github, "ghp-wrong").await;
    let table = [
        (
            Some(128),
            "fatal: Authentication failed for 'https://x/'",
            "does not accept the token of github",
        ),
        (
            Some(128),
            "fatal: repository 'https://x/' not found",
            "has no such repository",
        ),
        (None, "", "within 120 s"),
        (Some(1), "out with ghp-wrong", "out with **********"),
    ];
    for (code, said, cause) in table {
        workspace.set_command_result(CLONE_COMMAND, code, said);
        let cleaned = workspace.count("rm -rf -- ");
        let task = fixture.start_and_wait(tools()).await;
        assert_failed(&task, cause);
        assert!(workspace.count("rm -rf -- ") > cleaned + 1, "cleaned up");
        assert!(fixture.agents.launches().is_empty());
        wait_for(|| async {
            fixture
                .sandbox(&task.sandbox_id)
                .await
                .is_none()
                .then_some(())
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn conflicting_directories_are_reported_and_equal_clones_are_used() {
    let (fixture, workspace) = fixture().await;
    workspace.set_command_result(INSPECT_COMMAND, Some(0), "private=/p\nstate=other\n");
    assert_failed(&fixture.start_and_wait(tools()).await, "a different tools");
    workspace.set_command_result(INSPECT_COMMAND, Some(0), "private=/p\ngit=no\n");
    assert_failed(&fixture.start_and_wait(tools()).await, "no git");
    workspace.set_command_result(INSPECT_COMMAND, Some(1), "mkdir: cannot create directory");
    assert_failed(&fixture.start_and_wait(tools()).await, "mkdir: cannot");
    assert_eq!(workspace.count(CLONE_COMMAND), 0);
    workspace.set_command_result(
        INSPECT_COMMAND,
        Some(0),
        "private=/p\nstate=same\nbranch=main\n",
    );
    let task = fixture.start_and_wait(tools()).await;
    assert_eq!(task.status, StartStatus::Ready);
    let note = task.detail.expect("a note");
    assert!(note.contains("is used as it is, on branch main"), "{note}");
    assert_eq!(workspace.count(CLONE_COMMAND), 0);
}

#[tokio::test(start_paused = true)]
async fn setup_script_hooks_and_skills_degrade_with_notes() {
    let (fixture, workspace) = fixture().await;
    token(&fixture, GitProvider::Github, "ghp-hunter2").await;
    let all = "has=git\nhas=setup.sh\nhas=pre-commit.sh\nhas=hooks.json\nhas=skills\n";
    workspace.set_command_result(CLONE_COMMAND, Some(0), all);
    workspace.set_command_result(SETUP_COMMAND, Some(3), "no such tool, ghp-hunter2\n");
    workspace.set_command_result(HOOK_MARK, Some(1), "read-only");
    workspace.stop_responding();
    let task = fixture.start_and_wait(tools()).await;
    let notes = task.detail.expect("notes");
    assert_eq!(task.status, StartStatus::Ready, "{notes}");
    for part in [
        "setup.sh failed with exit code 3. Its last words: no such tool, **********",
        "pre-commit.sh was not installed: read-only",
        "hooks.json are not used",
        "skills could not be read",
    ] {
        assert!(notes.contains(part), "{part} is not in: {notes}");
    }
    workspace.set_command_result(SETUP_COMMAND, None, "");
    let task = fixture.start_and_wait(tools()).await;
    assert!(
        task.detail
            .expect("notes")
            .contains("was ended after 600 s")
    );
}

#[tokio::test(start_paused = true)]
async fn agent_hooks_are_passed_to_the_launch() {
    let (fixture, workspace) = fixture().await;
    workspace.set_command_result(
        CLONE_COMMAND,
        Some(0),
        "has=git\nhas=hooks.json\nhas=skills\n",
    );
    let hooks = json!({"stop": [{"matcher": "*", "hooks": []}]});
    let skill = ProjectSkill {
        name: "s".to_owned(),
        kind: "repo".to_owned(),
        content: String::new(),
        triggers: Vec::new(),
    };
    workspace.set_project(Some(hooks.clone()), vec![skill]);
    let task = fixture.start_and_wait(tools()).await;
    assert_eq!((task.status, &task.detail), (StartStatus::Ready, &None));
    assert_eq!(fixture.agents.launches()[0].hooks, Some(hooks));
    // Unusable files are noted.
    workspace.set_project(None, Vec::new());
    let task = fixture.start_and_wait(tools()).await;
    let notes = task.detail.expect("notes");
    assert!(
        notes.contains("hooks.json are not used") && notes.contains("No skill"),
        "{notes}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_start_interrupted_while_cloning_continues_in_the_same_sandbox() {
    let (fixture, workspace) = fixture().await;
    workspace.hang_commands(CLONE_COMMAND);
    let task = fixture.start(tools()).await;
    wait_for(|| async { (workspace.count(CLONE_COMMAND) > 0).then_some(()) }).await;
    let shown = fixture.current_task(&task).await;
    assert_eq!(shown.status, StartStatus::PreparingRepository);
    assert_eq!(
        shown.detail.as_deref(),
        Some("Cloning acme/tools from github.example.com")
    );
    let fixture = fixture.kill_and_restart().await;
    workspace.set_command_result(CLONE_COMMAND, Some(0), "has=git\nhas=setup.sh\n");
    let ended = fixture.wait_until_ended(&task).await;
    assert_eq!((ended.status, &ended.detail), (StartStatus::Ready, &None));
    assert_eq!(fixture.backend.starts(), 1);
    let scripts: Vec<String> = workspace.commands().into_iter().map(|c| c.script).collect();
    let looks: Vec<_> = scripts
        .iter()
        .filter(|script| script.contains(INSPECT_COMMAND))
        .collect();
    assert_eq!(looks.len(), 2);
    assert_eq!(looks[0], looks[1], "every attempt looks for the same");
    assert_eq!(workspace.count(SETUP_COMMAND), 1);
    let sandbox = fixture
        .sandbox(&task.sandbox_id)
        .await
        .expect("it is there");
    assert_eq!(sandbox.status, SandboxStatus::Running);
}

/// A start whose process was killed when the agent server had just created the conversation. The sandbox cannot be
/// prepared again.
async fn cut_off_after_the_launch() -> (Fixture, StartTask) {
    let (fixture, workspace) = fixture().await;
    let first = fixture.start_and_wait(start_input(|_| {})).await;
    fixture.agents.hold_responses(true);
    let task = fixture
        .start(start_input(|r| {
            r.sandbox_id = Some(first.sandbox_id.clone());
        }))
        .await;
    let made = || async {
        fixture
            .agents
            .has_conversation(task.conversation_id)
            .then_some(())
    };
    wait_for(made).await;
    workspace.set_command_result("git init", Some(1), "no space left on device");
    fixture.agents.hold_responses(false);
    (fixture.kill_and_restart().await, task)
}

#[tokio::test(start_paused = true)]
async fn a_created_conversation_is_not_prepared_again_and_not_lost() {
    let (fixture, task) = Box::pin(cut_off_after_the_launch()).await;
    let ended = fixture.wait_until_ended(&task).await;
    assert_eq!((ended.status, &ended.detail), (StartStatus::Ready, &None));
    assert_eq!(fixture.workspace.count("git init"), 2, "one for each start");
    assert!(fixture.agents.has_conversation(task.conversation_id));
    assert!(fixture.view(task.conversation_id).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn the_conversation_of_a_failed_start_is_deleted() {
    let (fixture, task) = Box::pin(cut_off_after_the_launch()).await;
    // It was created without its first message.
    let id = task.conversation_id;
    fixture.agents.change(id, |it| it.execution_status = None);
    assert_failed(&fixture.wait_until_ended(&task).await, "no space left");
    assert!(
        !fixture.agents.has_conversation(id),
        "it would live on in the sandbox"
    );
    assert!(fixture.view(id).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_short_outage_of_the_agent_server_does_not_end_a_start() {
    let (fixture, workspace) = fixture().await;
    workspace.set_command_result(CLONE_COMMAND, Some(0), "has=git\nhas=setup.sh\n");
    for (part, away) in [(INSPECT_COMMAND, 1), (CLONE_COMMAND, 3), (SETUP_COMMAND, 2)] {
        workspace.drop_connections(part, away);
        let before = workspace.count(part);
        let task = fixture.start_and_wait(tools()).await;
        assert_eq!((task.status, &task.detail), (StartStatus::Ready, &None));
        assert_eq!(workspace.count(part), before + away + 1, "{part}");
    }
    workspace.drop_connections(INSPECT_COMMAND, 99);
    assert_failed(&fixture.start_and_wait(tools()).await, "unreachable");
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_setup_script_is_noted() {
    let (fixture, workspace) = fixture().await;
    workspace.set_command_result(CLONE_COMMAND, Some(0), "has=git\nhas=setup.sh\n");
    workspace.set_command_result(
        SETUP_COMMAND,
        Some(1),
        "agent-workspace: interrupted\nhalf\n",
    );
    let task = fixture.start_and_wait(tools()).await;
    let note = task.detail.expect("a note");
    let expected = "setup.sh was interrupted, and is not run again. Its last words: half";
    assert!(note.contains(expected), "{note}");
}
