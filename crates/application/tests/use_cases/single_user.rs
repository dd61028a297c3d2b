//! The single-user rule of backends without isolation.

use application::administration::Origin;
use domain::error::{Classify, ErrorClass};
use domain::id::OwnerId;
use domain::sandbox::SingleUserRule;
use domain::user::identity::Role;
use domain::user::scope::Scope;

use crate::fixture::Fixture;

const RULE: SingleUserRule = SingleUserRule {
    reason: "Sandboxes share one account",
    advice: "Isolate them.",
};

fn user(name: &str) -> OwnerId {
    OwnerId::parse(name).expect("an id")
}

async fn make(fixture: &Fixture, name: &str) -> Result<(), ErrorClass> {
    let (origin, name) = (Origin::command("test"), user(name));
    let administration = &fixture.app.administration;
    let name = name.user();
    let made = administration.create_user(&origin, &name, Role::User);
    made.await.map(drop).map_err(|error| error.class())
}

#[tokio::test(start_paused = true)]
async fn a_second_user_is_refused_and_an_existing_one_starts_nothing() {
    let several = Fixture::new().await;
    make(&several, "first").await.expect("no user exists");
    make(&several, "second").await.expect("several may be");
    let fixture = several.replica(|policy| policy.single_user = Some(RULE));
    assert_eq!(make(&fixture, "third").await, Err(ErrorClass::Conflict));

    let sandboxes = &fixture.app.sandboxes;
    let sandbox = sandboxes.start(&user("first"), None).await.expect("theirs");
    let refused = sandboxes.start(&user("second"), None).await;
    let refused = refused.expect_err("not the first");
    assert_eq!(refused.class(), ErrorClass::Forbidden);
    let refusal_text = refused.public();
    for part in [RULE.reason, RULE.advice] {
        assert!(refusal_text.contains(part), "{refusal_text}");
    }
    let scope = Scope::Owner(user("second"));
    let refused = sandboxes.resume(&scope, &sandbox.id).await;
    assert_eq!(
        refused.expect_err("not the first").class(),
        ErrorClass::Forbidden
    );
    let scope = Scope::Owner(user("first"));
    sandboxes.resume(&scope, &sandbox.id).await.expect("theirs");
}
