//! Signing in, conversations and sandboxes in the console, in the order of the suite.

use std::fs::File;
use std::io::Write as _;

use acceptance::client::{Conversation, Task};
use serde_json::json;

use crate::{ConsoleSession, HOSTILE_TITLE, PLAIN_TITLE};

pub(crate) const DIALOG: &str = "document.querySelector('dialog[open]')";
pub(crate) const NO_DIALOG: &str = "!document.querySelector('dialog[open]')";

/// The button of the open dialog with this text.
pub(crate) fn dialog_button(text: &str) -> String {
    format!(
        "[...document.querySelectorAll('dialog[open] button')].find(it => it.textContent === {})",
        json!(text)
    )
}

/// The table row that contains this text.
pub(crate) fn table_row(text: &str) -> String {
    format!(
        "[...document.querySelectorAll('tbody tr')].find(it => it.textContent.includes({}))",
        json!(text)
    )
}

/// A button of a table row.
pub(crate) fn row_button(text: &str, button: &str) -> String {
    let start = json!(button);
    format!(
        "[...{}?.querySelectorAll('button') ?? []].find(it => it.textContent.startsWith({start}))",
        table_row(text)
    )
}

/// Signs in with a wrong key and with the right one; no URL contains the key.
pub(crate) async fn sign_in_with_keys(session: &mut ConsoleSession) {
    let page = session.url_of("/console");
    session.browser.open(&page).await;
    session.browser.wait_for_text("Sign in").await;
    let here = session.browser.eval("location.href").await;
    assert_eq!(here, session.url_of("/console/"));
    session.browser.type_into("#key", "aw_wrong").await;
    let submit = "document.querySelector('form.sign-in button')";
    let refused =
        "document.querySelector('[role=alert]')?.textContent.includes('Unauthorized (401)')";
    session.browser.click(submit, refused).await;
    let names_request = "document.querySelector('[role=alert] code').textContent.length > 8";
    session
        .browser
        .wait_until("the request is named", names_request)
        .await;
    let kept = session
        .browser
        .eval("sessionStorage.length + localStorage.length")
        .await;
    assert_eq!(kept, 0, "a wrong key must not be stored");
    session.save_screenshot("sign-in").await;
    let key = session.world.user.key().to_owned();
    session.sign_in(&key).await;
    session.browser.wait_for_text("administrator").await;
    let address = session.browser.eval("location.href").await;
    assert!(address.as_str().is_some_and(|it| !it.contains(&key)));
    let elsewhere = session.browser.eval("localStorage.length").await;
    assert_eq!(elsewhere, 0, "the key must be stored for this tab only");
    session.assert_no_errors(&["401 (Unauthorized)"]).await;
}

/// Limits new sandboxes to some hosts, shows the list of one, and removes the limit.
pub(crate) async fn limit_new_sandboxes(session: &mut ConsoleSession) {
    let button = |at: &str| format!("document.querySelector('[data-at={}]')", json!(at));
    session.open_view("Network").await;
    let unlimited = "They reach all hosts that the service allows.";
    session.browser.wait_for_text(unlimited).await;
    session
        .browser
        .click(&button("limit new sandboxes"), DIALOG)
        .await;
    let hosts = "packages, api.example.org";
    session.browser.type_into("#asked", hosts).await;
    session
        .browser
        .click(&dialog_button("Save"), NO_DIALOG)
        .await;
    session.browser.wait_for_text(hosts).await;
    session.save_screenshot("network").await;
    let user = session.world.user.clone();
    let task = user.start(&json!({})).await;
    let limited = user.wait_until_ready(&task).await;
    let page = format!("/console/#/sandboxes/{}", limited.sandbox_id);
    let page = session.url_of(&page);
    session.browser.open(&page).await;
    session.browser.wait_for_text("Hosts that it reaches").await;
    session.browser.wait_for_text(hosts).await;
    session.open_view("Network").await;
    let remove = button("remove the limit");
    session.browser.wait_for_text(hosts).await;
    session.browser.click(&remove, &format!("!{remove}")).await;
    session.browser.wait_for_text(unlimited).await;
}

/// Shows states, start steps and the cause of a failed start, and inserts titles as text.
pub(crate) async fn show_conversations(session: &mut ConsoleSession, failed: &Task) {
    session.open_view("Conversations").await;
    session.browser.wait_for_text(PLAIN_TITLE).await;
    session.browser.wait_for_text(HOSTILE_TITLE).await;
    let pictures = "document.querySelectorAll('main img, main script').length";
    assert_eq!(
        session.browser.eval(pictures).await,
        0,
        "a title was inserted as markup"
    );
    let row = table_row(PLAIN_TITLE);
    let timed = format!(
        "/\\d (ms|s)/.test({row}.textContent) && {row}.querySelectorAll('.steps rect').length > 1"
    );
    session
        .browser
        .wait_until("the steps of a start", &timed)
        .await;
    session.browser.wait_for_text("Starts that failed").await;
    let cause = failed
        .detail
        .clone()
        .expect("the failed start has no cause");
    let shown = format!(
        "{}.textContent.includes({})",
        table_row("Never to be"),
        json!(cause)
    );
    session.browser.wait_until("the cause", &shown).await;
    session.save_screenshot("conversations").await;
    session.browser.type_into("#wanted", "parser").await;
    let only = format!("{row} && !document.body.innerText.includes('onerror')");
    session
        .browser
        .wait_until("those with this title only", &only)
        .await;
    let open = format!("{}.querySelector('a')", table_row(PLAIN_TITLE));
    session
        .browser
        .click(&open, "location.hash.startsWith('#/conversations/')")
        .await;
    session.browser.wait_for_text("Total").await;
    session.browser.wait_for_text("running").await;
    session.browser.wait_for_text("following").await;
    let keys = session.world.user.sandboxes().await;
    let text = session
        .browser
        .eval("document.documentElement.outerHTML")
        .await;
    for key in keys.iter().filter_map(|it| it.session_api_key.as_deref()) {
        assert!(
            text.as_str().is_some_and(|it| !it.contains(key)),
            "the page contains a sandbox's key"
        );
    }
    session.save_screenshot("conversation").await;
}

/// Shows log lines as they are written.
pub(crate) async fn follow_logs(session: &mut ConsoleSession, conversation: &Conversation) {
    let file = session
        .world
        .service
        .sandbox_dir(&conversation.sandbox_id)
        .join("agent-server.log");
    let mut log = File::options()
        .append(true)
        .open(file)
        .expect("the sandbox has no log");
    for line in ["the first new line", "<b id=bold>the second one</b>"] {
        writeln!(log, "{line}").expect("cannot write to the log");
        let shown = format!(
            "document.querySelector('.log').textContent.includes({})",
            json!(line)
        );
        session
            .browser
            .wait_until("a new line of the log", &shown)
            .await;
    }
    assert_eq!(
        session
            .browser
            .eval("document.querySelector('#bold')")
            .await,
        json!(null)
    );
    for number in 0..200 {
        writeln!(log, "line {number} of many").expect("cannot write to the log");
    }
    let at_end = "(it => it.scrollHeight > 2 * it.clientHeight && it.scrollHeight - it.scrollTop - it.clientHeight < 40)\
                  (document.querySelector('.log'))";
    let follows = format!(
        "document.querySelector('.log').textContent.includes('line 199 of many') && {at_end}"
    );
    session
        .browser
        .wait_until("the log is at its end", &follows)
        .await;
    rename(session, conversation, "Changed meanwhile").await;
    assert_eq!(
        session.browser.eval(at_end).await,
        true,
        "the log lost its scroll position when the page around it was redrawn"
    );
    rename(session, conversation, PLAIN_TITLE).await;
}

/// Renames a conversation over the API; the console shows the new title.
async fn rename(session: &mut ConsoleSession, conversation: &Conversation, title: &str) {
    let path = format!("/api/v1/app-conversations/{}", conversation.id);
    let user = session.world.user.clone();
    let renamed = user.patch(&path, &json!({"title": title})).await;
    assert_eq!(renamed.status, 200);
    session.browser.wait_for_text(title).await;
}

/// Pauses a sandbox after a confirmation, and resumes it.
pub(crate) async fn pause_and_resume(session: &mut ConsoleSession, sandbox: &str) {
    session.open_view("Sandboxes").await;
    let link = format!("a[data-at='open {sandbox}']");
    let row = format!("document.querySelector(\"{link}\")?.closest('tr')");
    let state = |word: &str| format!("{row}.querySelector('.state').textContent === '{word}'");
    let button = |text: &str| {
        format!(
            "[...{row}?.querySelectorAll('button') ?? []].find(it => it.textContent.startsWith('{text}'))"
        )
    };
    session
        .browser
        .wait_until("it runs", &state("running"))
        .await;
    session.save_screenshot("sandboxes").await;
    session.browser.click(&button("Pause"), DIALOG).await;
    session.save_screenshot("question").await;
    // Escape declines.
    session.browser.press_key("Escape", 27).await;
    session
        .browser
        .wait_until("the question is gone", NO_DIALOG)
        .await;
    session.browser.click(&button("Pause"), DIALOG).await;
    session
        .browser
        .click(&dialog_button("Pause"), NO_DIALOG)
        .await;
    session
        .browser
        .wait_until("it is paused", &state("paused"))
        .await;
    session
        .browser
        .press_once(&button("Resume"), &format!("!({})", state("paused")))
        .await;
    session
        .browser
        .wait_until("it runs again", &state("running"))
        .await;
    let user = &session.world.user;
    let found = user
        .sandboxes()
        .await
        .into_iter()
        .find(|it| it.id == sandbox);
    assert_eq!(found.expect("the sandbox is missing").status, "RUNNING");
}
