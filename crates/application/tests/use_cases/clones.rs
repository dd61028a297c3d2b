//! What a clone and the scripts of a repository get to know, and what they must not tell.

use application::AppError;
use application::settings::{GitProvidersInput, TokenInput};
use application::start::StartInput;
use domain::cipher::Cipher as _;
use domain::conversation::GitProvider;
use domain::error::{Classify, ErrorClass};
use domain::sandbox::Sandbox;
use secrecy::{ExposeSecret, SecretString};
use store_memory::MarkerCipher;

use crate::world::{World, alice, input, until};

const LOOK: &str = "echo state=absent";
const CLONE: &str = " clone --quiet";
const SETUP: &str = "source ./.openhands/setup.sh";

async fn world() -> World {
    let world = World::new().await;
    let nothing = "private=/home/a/.agent-workspace/1\nstate=absent\n";
    world.workspace.answer(LOOK, Some(0), nothing);
    world
}

async fn store(world: &World, provider: GitProvider, token: &str, host: Option<&str>) {
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
    let stored = world.app.settings.add_git_providers(&alice(), &input).await;
    stored.expect("the token is stored");
}

fn tools() -> StartInput {
    input(|r| r.selected_repository = Some("acme/tools".to_owned()))
}

/// What a credential helper gets that asks now.
async fn asked(world: &World, helper: &str) -> Result<String, AppError> {
    let lines = helper.lines();
    let access = lines.filter_map(|line| line.strip_prefix("access=")).next();
    let access = access.expect("an access token").trim_matches('\'');
    let access = SecretString::from(access);
    let opened = world.app.secrets.provider_token(&access);
    opened.await.map(|token| token.expose_secret().to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_clone_gets_no_token_that_was_stored_for_another_host_meanwhile() {
    let world = world().await;
    let gitlab = GitProvider::Gitlab;
    store(&world, gitlab, "t-1", Some("old.acme.test")).await;
    world.workspace.hang(CLONE);
    world.start(tools()).await;
    until(|| async { (world.workspace.count(CLONE) > 0).then_some(()) }).await;
    let (_, helper) = world.workspace.files().pop_first().expect("a helper");
    assert_eq!(asked(&world, &helper).await.expect("it opens"), "t-1");
    store(&world, gitlab, "t-2", Some("https://old.acme.test/")).await;
    assert_eq!(asked(&world, &helper).await.expect("it opens"), "t-2");
    // The helper was written for a token that is no pair, and for the old host.
    for (token, host) in [("me:t-3", "old.acme.test"), ("t-4", "new.acme.test")] {
        store(&world, gitlab, token, Some(host)).await;
        let refused = asked(&world, &helper).await.expect_err(token);
        assert_eq!(refused.class(), ErrorClass::Unauthenticated, "{token}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_note_shows_no_key_of_the_sandbox_and_no_half_of_a_pair() {
    let world = world().await;
    store(&world, GitProvider::Bitbucket, "me:half-of-it", None).await;
    let first = world.started(input(|_| {})).await;
    let sandbox = world.sandbox(&first.sandbox_id).await.expect("it runs");
    let cipher = MarkerCipher;
    let opened = |sealed| {
        let opened = cipher.open(&Sandbox::key_context(&sandbox.id), sealed);
        opened.expect("it opens").expose_secret().to_owned()
    };
    let (key, secret_key) = (opened(&sandbox.session_key), opened(&sandbox.secret_key));
    let said = format!("A={key} B={secret_key} C=half-of-it /home/a/.agent-workspace/1/x");
    world.workspace.answer(CLONE, Some(0), "has=setup.sh\n");
    world.workspace.answer(SETUP, Some(1), &said);
    let mut asked = tools();
    asked.request.sandbox_id = Some(sandbox.id.clone());
    let note = world.started(asked).await.detail.expect("a note");
    let hidden = "A=********** B=********** C=********** …/x";
    assert!(note.contains(hidden), "{note}");
    let commands = world.workspace.commands();
    let setup = commands.iter().find(|it| it.script.contains(SETUP));
    let setup = &setup.expect("it was run").script;
    assert!(setup.starts_with("unset OH_SECRET_KEY"), "{setup}");
}
