//! Keys, administration, charts and documentation in the console, in the order of the suite.

use acceptance::wait::wait_for;
use acceptance::world::RECONCILE_TIMEOUT;
use serde_json::json;

use crate::ConsoleSession;
use crate::accessibility::assert_accessible;
use crate::scenarios::{DIALOG, NO_DIALOG, dialog_button, row_button, table_row};

/// Creates a key, which is shown once, and revokes it.
pub(crate) async fn create_and_revoke_key(session: &mut ConsoleSession) {
    session.open_view("Settings").await;
    session.open_section("API keys").await;
    session.browser.wait_for_text("this one").await;
    session.browser.type_into("#key-name", "for a test").await;
    // A double click must create one key: below there is one row to revoke, and then none.
    let twice = "(() => { const it = document.querySelector('main form button'); \
                 return { click() { it.click(); it.click() } } })()";
    session
        .browser
        .press_once(
            twice,
            "document.querySelector('dialog[open] #shown-once')?.value",
        )
        .await;
    let key = session
        .browser
        .eval("document.querySelector('#shown-once').value")
        .await;
    let key = key.as_str().expect("the new key is not a text").to_owned();
    assert!(key.starts_with("aw_"));
    session.save_screenshot("new-key").await;
    let made = session.world.user.with_key(&key);
    assert_eq!(made.get("/api/v1/users/me/access").await.status, 200);
    session
        .browser
        .click(&dialog_button("Done"), NO_DIALOG)
        .await;
    session
        .browser
        .wait_until("the key is listed", &table_row("for a test"))
        .await;
    let everywhere = "document.documentElement.outerHTML + JSON.stringify(sessionStorage) + location.href \
                      + [...document.querySelectorAll('input')].map(it => it.value)";
    let is_gone = format!("!({everywhere}).includes({})", json!(key));
    session
        .browser
        .wait_until("it is shown once", &is_gone)
        .await;
    session.save_screenshot("keys").await;
    session
        .browser
        .click(&row_button("for a test", "Revoke"), DIALOG)
        .await;
    session
        .browser
        .click(&dialog_button("Revoke"), NO_DIALOG)
        .await;
    let gone = format!("!{}", table_row("for a test"));
    session
        .browser
        .wait_until("the key is gone from the list", &gone)
        .await;
    wait_for("the end of the key", RECONCILE_TIMEOUT, || async {
        (made.get("/api/v1/users/me/access").await.status == 401).then_some(())
    })
    .await;
}

/// Opens the views for administrators.
pub(crate) async fn show_administration(session: &mut ConsoleSession) {
    session.open_view("Audit").await;
    session
        .browser
        .wait_until(
            "a line of the log",
            &table_row("DELETE /api/v1/keys/{key_id}"),
        )
        .await;
    session.save_screenshot("audit").await;
    session.open_view("Users").await;
    session
        .browser
        .wait_until("a user", &table_row("bob"))
        .await;
    let keys = format!("{}.querySelector('a')", table_row("bob"));
    session
        .browser
        .click(&keys, "location.hash === '#/users/bob'")
        .await;
    let prefix = session.bob.key()[..6].to_owned();
    session
        .browser
        .wait_until("a key of theirs", &table_row(&prefix))
        .await;
    session.open_view("Templates").await;
    session.browser.wait_for_text("Warm pool").await;
    session
        .browser
        .wait_for_text("No sandboxes are kept warm")
        .await;
    session.save_screenshot("templates").await;
}

/// Shows charts of the starts so far.
pub(crate) async fn show_charts(session: &mut ConsoleSession) {
    session.open_view("Overview").await;
    for (chart, shape) in [
        ("Starts per hour, by outcome", "rect.bad"),
        ("Time to ready, per hour", "circle"),
        (
            "Time of each step, of the starts at p50 and p95",
            "rect.step1",
        ),
        ("Time of each step, warm and cold starts", "rect.step1"),
    ] {
        let drawn = format!(
            "document.querySelector('svg[aria-label={}] {shape}')",
            json!(chart)
        );
        session.browser.wait_until(chart, &drawn).await;
    }
    let tiles = "[...document.querySelectorAll('.tile .big')].map(it => it.textContent).slice(0, 2).join() === '3,1'";
    session
        .browser
        .wait_until("the starts are counted", tiles)
        .await;
    session.save_screenshot("overview").await;
    assert_accessible(session, "overview").await;
    let unfold = "document.querySelector('figure summary')";
    session
        .browser
        .click(unfold, "document.querySelector('figure details').open")
        .await;
}

/// On a small dark screen nothing is wider than the window.
pub(crate) async fn fit_a_small_dark_screen(session: &mut ConsoleSession) {
    let fits = "document.documentElement.scrollWidth <= window.innerWidth";
    session.browser.set_viewport(360, 780, "dark").await;
    for view in [
        "Overview",
        "Conversations",
        "Sandboxes",
        "Users",
        "Audit",
        "Settings",
    ] {
        session.open_view(view).await;
        session
            .browser
            .wait_until("it is loaded", "document.querySelector('.stack .card')")
            .await;
        session
            .browser
            .wait_until(&format!("{view} fits"), fits)
            .await;
        session
            .save_screenshot(&format!("small-{}", view.to_lowercase()))
            .await;
    }
    session.open_view("Conversations").await;
    let first = "document.querySelector('tbody a')";
    let composer = "document.querySelector('#answer')";
    session.browser.click(first, composer).await;
    session.browser.wait_until("it fits", fits).await;
    session.save_screenshot("small-conversation").await;
    session.browser.set_viewport(1280, 900, "dark").await;
    session.open_view("Overview").await;
    session
        .browser
        .wait_until("it is drawn", "document.querySelector('svg.chart')")
        .await;
    session.save_screenshot("dark-overview").await;
    session.browser.set_viewport(1280, 900, "light").await;
}

/// A user without administration sees their own objects only.
pub(crate) async fn show_a_user_without_administration(session: &mut ConsoleSession) {
    session.sign_out().await;
    assert_eq!(session.browser.eval("sessionStorage.length").await, 0);
    let key = session.bob.key().to_owned();
    session.sign_in(&key).await;
    let links = "[...document.querySelectorAll('nav a')].map(it => it.textContent).join()";
    let links = session.browser.eval(links).await;
    assert_eq!(
        links,
        "Overview,Conversations,Automations,Sandboxes,Network,Templates,Costs,Settings"
    );
    let audit = session.url_of("/console/#/audit");
    session.browser.open(&audit).await;
    session.browser.wait_for_text("Your own starts").await;
    session.open_view("Conversations").await;
    session.browser.wait_for_text("No conversations.").await;
    session.assert_no_errors(&[]).await;
}

/// An open page notices that its key was revoked.
pub(crate) async fn end_the_session_of_a_revoked_key(session: &mut ConsoleSession) {
    let keys = "/api/v1/admin/users/bob/keys";
    let admin = session.world.user.clone();
    let listed = admin.get(keys).await.ok();
    let id = listed["items"][0]["id"]
        .as_str()
        .expect("the user has no key");
    let revoked = admin.delete(&format!("{keys}/{id}")).await;
    assert_eq!(revoked.status, 200);
    session.browser.wait_for_text("Sign in").await;
    assert_eq!(session.browser.eval("sessionStorage.length").await, 0);
    session.assert_no_errors(&["401 (Unauthorized)"]).await;
}

/// The API documentation works under its content security policy. Ends with the console open.
pub(crate) async fn use_the_documentation(session: &mut ConsoleSession) {
    let (docs, console) = (session.url_of("/docs/"), session.url_of("/console/"));
    let browser = &mut session.browser;
    browser.open(&docs).await;
    let operation = "document.querySelector('[data-path=\"/alive\"]')";
    let in_operation =
        |what: &str| format!("{operation}?.closest('.opblock').querySelector('{what}')");
    browser
        .wait_until("the operations are listed", operation)
        .await;
    browser
        .click(operation, &in_operation(".try-out__btn"))
        .await;
    let (try_out, execute) = (in_operation(".try-out__btn"), in_operation(".execute"));
    browser.click(&try_out, &execute).await;
    let answered = in_operation(".live-responses-table tbody .response-col_status");
    let answered = format!("{answered}?.innerText.includes('200')");
    browser.click(&execute, &answered).await;
    session.assert_no_errors(&[]).await;
    session.browser.open(&console).await;
}
