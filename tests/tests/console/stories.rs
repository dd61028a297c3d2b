//! What people do in the console, in the order in which the suite does it.

use std::fs::File;
use std::io::Write as _;
use std::time::Duration;

use acceptance::client::{Conversation, Task};
use acceptance::wait::wait_for;
use serde_json::json;

use crate::{ConsoleSession, HOSTILE, TITLE};

const DIALOG: &str = "document.querySelector('dialog[open]')";
const NO_DIALOG: &str = "!document.querySelector('dialog[open]')";
const RECONCILE_TIMEOUT: Duration = Duration::from_secs(60);

/// The button of the open dialog that says this.
fn answer(text: &str) -> String {
    format!(
        "[...document.querySelectorAll('dialog[open] button')].find(it => it.textContent === {})",
        json!(text)
    )
}

/// The row of a table that holds this text.
fn row(text: &str) -> String {
    format!(
        "[...document.querySelectorAll('tbody tr')].find(it => it.textContent.includes({}))",
        json!(text)
    )
}

/// A button of a row.
fn in_row(text: &str, button: &str) -> String {
    let start = json!(button);
    format!(
        "[...{}?.querySelectorAll('button') ?? []].find(it => it.textContent.startsWith({start}))",
        row(text)
    )
}

/// With no key, a wrong one and the right one. The key is in no address.
pub(crate) async fn signing_in(desk: &mut ConsoleSession) {
    let page = desk.at("/console");
    desk.browser.go(&page).await;
    desk.browser.shows("Sign in").await;
    let here = desk.browser.eval("location.href").await;
    assert_eq!(here, desk.at("/console/"));
    desk.browser.write("#key", "aw_wrong").await;
    let submit = "document.querySelector('form.sign-in button')";
    let refused =
        "document.querySelector('[role=alert]')?.textContent.includes('Unauthorized (401)')";
    desk.browser.click(submit, refused).await;
    let names_request = "document.querySelector('[role=alert] code').textContent.length > 8";
    desk.browser
        .until("the request is named", names_request)
        .await;
    let kept = desk
        .browser
        .eval("sessionStorage.length + localStorage.length")
        .await;
    assert_eq!(kept, 0, "a wrong key is not kept");
    desk.picture("sign-in").await;
    let key = desk.world.user.key().to_owned();
    desk.sign_in(&key).await;
    desk.browser.shows("administrator").await;
    let address = desk.browser.eval("location.href").await;
    assert!(address.as_str().is_some_and(|it| !it.contains(&key)));
    let elsewhere = desk.browser.eval("localStorage.length").await;
    assert_eq!(elsewhere, 0, "the key is in this tab only");
    desk.assert_quiet(&["401 (Unauthorized)"]).await;
}

/// The states, the cause of a failure and the steps of a start; and text is text.
pub(crate) async fn conversations(desk: &mut ConsoleSession, failed: &Task) {
    desk.view("Conversations").await;
    desk.browser.shows(TITLE).await;
    desk.browser.shows(HOSTILE).await;
    let pictures = "document.querySelectorAll('main img, main script').length";
    assert_eq!(
        desk.browser.eval(pictures).await,
        0,
        "a title became markup"
    );
    let timed = format!(
        "/\\d (ms|s)/.test({}.textContent) && {}.querySelectorAll('.steps rect').length > 1",
        row(TITLE),
        row(TITLE)
    );
    desk.browser.until("the steps of a start", &timed).await;
    desk.browser.shows("Starts that failed").await;
    let cause = failed.detail.clone().expect("a failure has a cause");
    let shown = format!(
        "{}.textContent.includes({})",
        row("Never to be"),
        json!(cause)
    );
    desk.browser.until("the cause", &shown).await;
    desk.picture("conversations").await;
    desk.browser.write("#wanted", "parser").await;
    let only = format!(
        "{} && !document.body.innerText.includes('onerror')",
        row(TITLE)
    );
    desk.browser
        .until("those with this title only", &only)
        .await;
    let open = format!("{}.querySelector('a')", row(TITLE));
    desk.browser
        .click(&open, "location.hash.startsWith('#/conversations/')")
        .await;
    desk.browser.shows("Together").await;
    desk.browser.shows("running").await;
    desk.browser.shows("following").await;
    let keys = desk.world.user.sandboxes().await;
    let text = desk
        .browser
        .eval("document.documentElement.outerHTML")
        .await;
    for key in keys.iter().filter_map(|it| it.session_api_key.as_deref()) {
        assert!(
            text.as_str().is_some_and(|it| !it.contains(key)),
            "a sandbox's key is on the page"
        );
    }
    desk.picture("conversation").await;
}

/// What is written while the page is open appears.
pub(crate) async fn logs(desk: &mut ConsoleSession, conversation: &Conversation) {
    let file = desk
        .world
        .service
        .sandbox_dir(&conversation.sandbox_id)
        .join("agent-server.log");
    let mut log = File::options()
        .append(true)
        .open(file)
        .expect("a sandbox has a log");
    for line in ["the first new line", "<b id=bold>the second one</b>"] {
        writeln!(log, "{line}").expect("it can be written");
        let shown = format!(
            "document.querySelector('.log').textContent.includes({})",
            json!(line)
        );
        desk.browser.until("a new line of the log", &shown).await;
    }
    assert_eq!(
        desk.browser.eval("document.querySelector('#bold')").await,
        json!(null)
    );
    for number in 0..200 {
        writeln!(log, "line {number} of many").expect("it can be written");
    }
    let at_end = "(it => it.scrollHeight > 2 * it.clientHeight && it.scrollHeight - it.scrollTop - it.clientHeight < 40)\
                  (document.querySelector('.log'))";
    let follows = format!(
        "document.querySelector('.log').textContent.includes('line 199 of many') && {at_end}"
    );
    desk.browser.until("the log is at its end", &follows).await;
    rename(desk, conversation, "Changed meanwhile").await;
    assert_eq!(
        desk.browser.eval(at_end).await,
        true,
        "what is around the log was drawn again, and it lost its place"
    );
    rename(desk, conversation, TITLE).await;
}

/// Not in the console, which then shows it.
async fn rename(desk: &mut ConsoleSession, conversation: &Conversation, title: &str) {
    let path = format!("/api/v1/app-conversations/{}", conversation.id);
    let user = desk.world.user.clone();
    let renamed = user.patch(&path, &json!({"title": title})).await;
    assert_eq!(renamed.status, 200);
    desk.browser.shows(title).await;
}

/// Nothing happens before it is confirmed; then the state follows.
pub(crate) async fn pausing(desk: &mut ConsoleSession, sandbox: &str) {
    desk.view("Sandboxes").await;
    let link = format!("a[data-at='open {sandbox}']");
    let row = format!("document.querySelector(\"{link}\")?.closest('tr')");
    let state = |word: &str| format!("{row}.querySelector('.state').textContent === '{word}'");
    let button = |text: &str| {
        format!(
            "[...{row}?.querySelectorAll('button') ?? []].find(it => it.textContent.startsWith('{text}'))"
        )
    };
    desk.browser.until("it runs", &state("running")).await;
    desk.picture("sandboxes").await;
    desk.browser.click(&button("Pause"), DIALOG).await;
    desk.picture("question").await;
    // Escape means no.
    desk.browser.key("Escape", 27).await;
    desk.browser.until("the question is gone", NO_DIALOG).await;
    desk.browser.click(&button("Pause"), DIALOG).await;
    desk.browser.click(&answer("Pause"), NO_DIALOG).await;
    desk.browser.until("it is paused", &state("paused")).await;
    desk.browser
        .press_once(&button("Resume"), &format!("!({})", state("paused")))
        .await;
    desk.browser.until("it runs again", &state("running")).await;
    let user = &desk.world.user;
    let found = user
        .sandboxes()
        .await
        .into_iter()
        .find(|it| it.id == sandbox);
    assert_eq!(found.expect("it is there").status, "RUNNING");
}

/// A key is made, shown once, and revoked.
pub(crate) async fn keys(desk: &mut ConsoleSession) {
    desk.view("Keys").await;
    desk.browser.shows("this one").await;
    desk.browser.write("#key-name", "for a test").await;
    // Whoever presses twice means it once: below there is one row to revoke, and then none.
    let twice = "(() => { const it = document.querySelector('main form button'); \
                 return { click() { it.click(); it.click() } } })()";
    desk.browser
        .press_once(
            twice,
            "document.querySelector('dialog[open] #new-key')?.value",
        )
        .await;
    let key = desk
        .browser
        .eval("document.querySelector('#new-key').value")
        .await;
    let key = key.as_str().expect("it is a text").to_owned();
    assert!(key.starts_with("aw_"));
    desk.picture("new-key").await;
    let made = desk.world.user.with_key(&key);
    assert_eq!(made.get("/api/v1/users/me/access").await.status, 200);
    desk.browser.click(&answer("I have it"), NO_DIALOG).await;
    desk.browser
        .until("the key is listed", &row("for a test"))
        .await;
    let everywhere = "document.documentElement.outerHTML + JSON.stringify(sessionStorage) + location.href \
                      + [...document.querySelectorAll('input')].map(it => it.value)";
    let is_gone = format!("!({everywhere}).includes({})", json!(key));
    desk.browser.until("it is shown once", &is_gone).await;
    desk.picture("keys").await;
    desk.browser
        .click(&in_row("for a test", "Revoke"), DIALOG)
        .await;
    desk.browser.click(&answer("Revoke"), NO_DIALOG).await;
    let gone = format!("!{}", row("for a test"));
    desk.browser
        .until("the key is gone from the list", &gone)
        .await;
    wait_for("the end of the key", RECONCILE_TIMEOUT, || async {
        (made.get("/api/v1/users/me/access").await.status == 401).then_some(())
    })
    .await;
}

/// What only administrators see.
pub(crate) async fn administering(desk: &mut ConsoleSession) {
    desk.view("Audit").await;
    desk.browser
        .until("a line of the log", &row("DELETE /api/v1/keys/{key_id}"))
        .await;
    desk.picture("audit").await;
    desk.view("Users").await;
    desk.browser.until("a user", &row("bob")).await;
    let keys = format!("{}.querySelector('a')", row("bob"));
    desk.browser
        .click(&keys, "location.hash === '#/users/bob'")
        .await;
    let prefix = desk.bob.key()[..6].to_owned();
    desk.browser.until("a key of theirs", &row(&prefix)).await;
    desk.view("Templates").await;
    desk.browser.shows("Warm sandboxes").await;
    desk.browser.shows("None are kept ready").await;
    desk.picture("templates").await;
}

/// Drawn by our own script, of the starts that there were.
pub(crate) async fn charts(desk: &mut ConsoleSession) {
    desk.view("Overview").await;
    for (chart, shape) in [
        ("Starts per hour, by how they ended", "rect.bad"),
        ("Time until ready, per hour", "circle"),
        (
            "Where the time goes: the start in the middle, and the one at 95 %",
            "rect.step1",
        ),
        ("Starts with a warm sandbox, and without", "rect.step1"),
    ] {
        let drawn = format!(
            "document.querySelector('svg[aria-label={}] {shape}')",
            json!(chart)
        );
        desk.browser.until(chart, &drawn).await;
    }
    let tiles = "[...document.querySelectorAll('.tile .big')].map(it => it.textContent).slice(0, 2).join() === '3,1'";
    desk.browser.until("the starts are counted", tiles).await;
    desk.picture("overview").await;
    let unfold = "document.querySelector('figure summary')";
    desk.browser
        .click(unfold, "document.querySelector('figure details').open")
        .await;
}

/// On a telephone, and in the dark: nothing is wider than the screen.
pub(crate) async fn small_and_dark(desk: &mut ConsoleSession) {
    let fits = "document.documentElement.scrollWidth <= window.innerWidth";
    desk.browser.look(390, 844, "dark").await;
    for view in ["Overview", "Conversations", "Sandboxes", "Keys", "Audit"] {
        desk.view(view).await;
        desk.browser
            .until("it is loaded", "document.querySelector('.stack .card')")
            .await;
        desk.browser.until(&format!("{view} fits"), fits).await;
        desk.picture(&format!("small-{}", view.to_lowercase()))
            .await;
    }
    desk.browser.look(1280, 900, "dark").await;
    desk.view("Overview").await;
    desk.browser
        .until("it is drawn", "document.querySelector('svg.chart')")
        .await;
    desk.picture("dark-overview").await;
    desk.browser.look(1280, 900, "light").await;
}

/// Someone else sees what is theirs, and nothing of administration.
pub(crate) async fn a_plain_user(desk: &mut ConsoleSession) {
    desk.sign_out().await;
    assert_eq!(desk.browser.eval("sessionStorage.length").await, 0);
    let key = desk.bob.key().to_owned();
    desk.sign_in(&key).await;
    let links = "[...document.querySelectorAll('nav a')].map(it => it.textContent).join()";
    let links = desk.browser.eval(links).await;
    assert_eq!(links, "Overview,Conversations,Sandboxes,Templates,Keys");
    let audit = desk.at("/console/#/audit");
    desk.browser.go(&audit).await;
    desk.browser.shows("Your own starts").await;
    desk.view("Conversations").await;
    desk.browser.shows("No conversations.").await;
    desk.assert_quiet(&[]).await;
}

/// A page that is open learns of the end of its key.
pub(crate) async fn a_revoked_key(desk: &mut ConsoleSession) {
    let keys = "/api/v1/admin/users/bob/keys";
    let admin = desk.world.user.clone();
    let listed = admin.get(keys).await.ok();
    let id = listed["items"][0]["id"].as_str().expect("there is one");
    let revoked = admin.delete(&format!("{keys}/{id}")).await;
    assert_eq!(revoked.status, 200);
    desk.browser.shows("Sign in").await;
    assert_eq!(desk.browser.eval("sessionStorage.length").await, 0);
    desk.assert_quiet(&["401 (Unauthorized)"]).await;
}

/// The page of the documentation works under its policy. Afterwards the console is open again.
pub(crate) async fn documentation(desk: &mut ConsoleSession) {
    let (docs, console) = (desk.at("/docs/"), desk.at("/console/"));
    let browser = &mut desk.browser;
    browser.go(&docs).await;
    let operation = "document.querySelector('[data-path=\"/alive\"]')";
    let in_operation =
        |what: &str| format!("{operation}?.closest('.opblock').querySelector('{what}')");
    browser.until("the operations are listed", operation).await;
    browser
        .click(operation, &in_operation(".try-out__btn"))
        .await;
    let (try_out, execute) = (in_operation(".try-out__btn"), in_operation(".execute"));
    browser.click(&try_out, &execute).await;
    let answered = in_operation(".live-responses-table tbody .response-col_status");
    let answered = format!("{answered}?.innerText.includes('200')");
    browser.click(&execute, &answered).await;
    desk.assert_quiet(&[]).await;
    desk.browser.go(&console).await;
}
