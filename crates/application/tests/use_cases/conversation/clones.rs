//! Secrets of clones and repository scripts: what they may read and what notes must not show.

use application::settings::{GitProvidersInput, TokenInput};
use application::start::StartInput;
use domain::encryption::cipher::Cipher as _;
use domain::git::GitProvider;
use domain::sandbox::Sandbox;
use domain::start_task::{AgentType, StartStatus};
use secrecy::ExposeSecret;
use store_memory::MarkerCipher;

use crate::fixture::{Fixture, alice, start_input};

const INSPECT_COMMAND: &str = "echo state=absent";
const CLONE_COMMAND: &str = " clone --quiet";
const SETUP_COMMAND: &str = "source ./.openhands/setup.sh";

async fn fixture() -> Fixture {
    let fixture = Fixture::new().await;
    let nothing = "private=/home/a/.agent-workspace/1\nstate=absent\n";
    fixture
        .workspace
        .set_command_result(INSPECT_COMMAND, Some(0), nothing);
    fixture
}

async fn store(fixture: &Fixture, provider: GitProvider, token: &str, host: Option<&str>) {
    let input = GitProvidersInput {
        provider_tokens: vec![(
            provider,
            TokenInput {
                token: Some(token.to_owned().into()),
                user_id: None,
                host: host.map(str::to_owned),
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

#[tokio::test(start_paused = true)]
async fn a_note_shows_no_key_of_the_sandbox_and_no_half_of_a_pair() {
    let fixture = fixture().await;
    store(&fixture, GitProvider::Bitbucket, "me:half-of-it", None).await;
    let first = fixture.start_and_wait(start_input(|_| {})).await;
    let sandbox = fixture.sandbox(&first.sandbox_id).await.expect("it runs");
    let cipher = MarkerCipher;
    let opened = |sealed| {
        let opened = cipher.open(&Sandbox::key_context(&sandbox.id), sealed);
        opened.expect("it opens").expose_secret().to_owned()
    };
    let (key, secret_key) = (opened(&sandbox.session_key), opened(&sandbox.secret_key));
    let said = format!("A={key} B={secret_key} C=half-of-it /home/a/.agent-workspace/1/x");
    fixture
        .workspace
        .set_command_result(CLONE_COMMAND, Some(0), "has=setup.sh\n");
    fixture
        .workspace
        .set_command_result(SETUP_COMMAND, Some(1), &said);
    let mut asked = tools();
    asked.request.sandbox_id = Some(sandbox.id.clone());
    let note = fixture.start_and_wait(asked).await.detail.expect("a note");
    let hidden = "A=********** B=********** C=********** …/x";
    assert!(note.contains(hidden), "{note}");
    let commands = fixture.workspace.commands();
    let setup = commands.iter().find(|it| it.script.contains(SETUP_COMMAND));
    let setup = &setup.expect("it was run").script;
    assert!(setup.starts_with("unset OH_SECRET_KEY"), "{setup}");
}

#[tokio::test(start_paused = true)]
async fn the_provider_of_a_repository_does_not_change_with_the_settings() {
    let fixture = fixture().await;
    store(&fixture, GitProvider::Gitlab, "t-1", None).await;
    let parent = fixture.start_and_wait(tools()).await;
    let view = fixture
        .view(parent.conversation_id)
        .await
        .expect("it is there");
    let kept = view.conversation.git_provider;
    assert_eq!(
        kept,
        Some(GitProvider::Gitlab),
        "the only one that there is"
    );
    // With these settings it would be GitHub's.
    store(&fixture, GitProvider::Bitbucket, "t-2", None).await;
    let part = start_input(|r| {
        r.parent_conversation_id = Some(parent.conversation_id);
        r.agent_type = AgentType::Plan;
    });
    let part = fixture.start_and_wait(part).await;
    assert_eq!(part.status, StartStatus::Ready, "{:?}", part.detail);
    let commands = fixture.workspace.commands();
    let mut clones = commands
        .iter()
        .filter(|it| it.script.contains(CLONE_COMMAND));
    let address = "'https://gitlab.example.com/acme/tools.git'";
    assert!(clones.all(|it| it.script.contains(address)), "{commands:?}");
    let launch = fixture.agents.launches().pop().expect("a launch");
    let path = launch.plan_path.expect("a path");
    assert!(path.contains("/agents-tmp-config/"), "{path}");
}

#[tokio::test(start_paused = true)]
async fn the_plan_path_suits_the_provider_even_without_a_named_one() {
    let fixture = fixture().await;
    store(&fixture, GitProvider::Gitlab, "t-1", None).await;
    let mut asked = tools();
    asked.request.agent_type = AgentType::Plan;
    fixture.start_and_wait(asked).await;
    let launch = fixture.agents.launches().pop().expect("a launch");
    let path = launch.plan_path.expect("a path");
    assert!(path.contains("/agents-tmp-config/"), "{path}");
}
