//! What a clone and the scripts of a repository get to know, and what they must not tell.

use application::AppError;
use application::settings::{GitProvidersInput, TokenInput};
use application::start::StartInput;
use domain::conversation::GitProvider;
use domain::error::{Classify, ErrorClass};
use secrecy::{ExposeSecret, SecretString};

use crate::world::{World, alice, input, until};

const LOOK: &str = "echo state=absent";
const CLONE: &str = " clone --quiet";

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
