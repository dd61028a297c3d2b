//! People who sign in: their settings, and the console with their session. In the order of the suite.

use serde_json::json;

use crate::accessibility::{assert_accessible, assert_keyboard};
use crate::scenarios::{DIALOG, NO_DIALOG, dialog_button, row_button, table_row};
use crate::{ConsoleSession, PLAIN_TITLE};

const FIRST: &str = "correct horse battery";
const SECOND: &str = "staple correct horse";

/// Restarts the service with accounts. The users of before have no password, so the start prints a link for the oldest
/// administrator, which leads to the page that was asked for.
pub(crate) async fn sign_in_by_link(session: &mut ConsoleSession) {
    let service = &mut session.world.service;
    service.set_variable("WORKSPACE_AUTH__MODE", "accounts");
    service.restart().await;
    let key = session.world.user.clone();
    assert_eq!(key.get("/api/v1/users/me").await.status, 200, "keys work");
    let settings = session.url_of("/settings?org=x#/keys");
    session.browser.open(&settings).await;
    session.browser.wait_for_text("Name").await;
    let returns =
        "new URLSearchParams(location.search).get('returnTo') === '/agents/settings?org=x'";
    session.browser.wait_until("the way back", returns).await;

    let log = session.world.service.log();
    let (_, after) = log
        .rsplit_once("/password#")
        .expect("the start prints a link");
    let code = after
        .split_whitespace()
        .next()
        .unwrap_or_default()
        .to_owned();
    let link = session.url_of(&format!("/password#{code}"));
    session.browser.open(&link).await;
    session.browser.type_into("#password", FIRST).await;
    session.browser.type_into("#repeat", FIRST).await;
    let submit = "document.querySelector('form button')";
    let console = "location.pathname === '/agents/console/'";
    session.browser.click(submit, console).await;
    session.browser.wait_for_text("administrator").await;
    assert_eq!(
        session
            .browser
            .eval("sessionStorage.length + localStorage.length")
            .await,
        0,
        "the browser keeps no credential"
    );
    session.assert_no_errors(&["401 (Unauthorized)"]).await;
}

/// Makes a second session by signing in again, ends the first one, and changes the password.
pub(crate) async fn change_the_password_and_end_sessions(session: &mut ConsoleSession) {
    let log_in = format!(
        "fetch('../login', {{method: 'POST', body: new URLSearchParams({{name: 'admin', password: {}}})}}).then(it => it.redirected)",
        json!(FIRST)
    );
    assert_eq!(session.browser.eval(&log_in).await, true);
    session.browser.page_state().await;
    session.open_view("Settings").await;
    session.browser.wait_for_text("this one").await;
    let rows = "document.querySelectorAll('[aria-label=Sessions] tbody tr').length";
    let count = |number: usize| format!("{rows} === {number}");
    session.browser.wait_until("both sessions", &count(2)).await;
    session.save_screenshot("settings-account").await;
    assert_accessible(session, "account").await;
    assert_keyboard(session, "account").await;
    let other = "[...document.querySelectorAll('[aria-label=Sessions] tbody tr')].find(it => !it.textContent.includes('this one'))?.querySelector('button')";
    session.browser.click(other, DIALOG).await;
    session
        .browser
        .click(&dialog_button("End session"), NO_DIALOG)
        .await;
    session.browser.wait_until("one session", &count(1)).await;

    for (field, text) in [
        ("#current-password", FIRST),
        ("#new-password", SECOND),
        ("#repeat-password", SECOND),
    ] {
        session.browser.type_into(field, text).await;
    }
    let change = "document.querySelector('[aria-label=Password] button')";
    let changed = "document.querySelector('#current-password').value === ''";
    session.browser.press_once(change, changed).await;
    session.assert_no_errors(&[]).await;
}

/// Creates a key, which is shown once, and revokes it.
pub(crate) async fn create_and_revoke_a_key(session: &mut ConsoleSession) {
    session.open_section("API keys").await;
    session
        .browser
        .type_into("#key-name", "for a program")
        .await;
    session
        .browser
        .press_once(
            "document.querySelector('main form button')",
            "document.querySelector('dialog[open] #shown-once')?.value",
        )
        .await;
    let key = session
        .browser
        .eval("document.querySelector('#shown-once').value")
        .await;
    let key = key.as_str().expect("the new key is not a text").to_owned();
    let made = session.world.user.with_key(&key);
    assert_eq!(made.get("/api/v1/users/me/access").await.status, 200);
    session
        .browser
        .click(&dialog_button("Done"), NO_DIALOG)
        .await;
    session.save_screenshot("settings-keys").await;
    session
        .browser
        .click(&row_button("for a program", "Revoke"), DIALOG)
        .await;
    session
        .browser
        .click(&dialog_button("Revoke"), NO_DIALOG)
        .await;
    let gone = format!("!{}", table_row("for a program"));
    session.browser.wait_until("the key is gone", &gone).await;
    session.assert_no_errors(&[]).await;
}

/// Stores a token, which is never shown again, and removes it.
pub(crate) async fn set_a_git_token(session: &mut ConsoleSession) {
    session.open_section("Git providers").await;
    session
        .browser
        .type_into("#git-token", "ghp_not_a_real_token")
        .await;
    let save =
        "[...document.querySelectorAll('main form button')].find(it => it.textContent === 'Save')";
    session
        .browser
        .press_once(save, "document.querySelector('#git-token').value === ''")
        .await;
    session
        .browser
        .wait_until("the provider", &table_row("GitHub"))
        .await;
    session.save_screenshot("settings-git").await;
    assert_accessible(session, "git providers").await;
    let remove = "[...document.querySelectorAll('main button')].find(it => it.textContent.startsWith('Remove all'))";
    session.browser.click(remove, DIALOG).await;
    session
        .browser
        .click(&dialog_button("Remove"), NO_DIALOG)
        .await;
    session
        .browser
        .wait_for_text("No provider has a token yet.")
        .await;
    session.assert_no_errors(&[]).await;
}

/// Stores a secret with a host, which agents get as a placeholder, and removes the host.
pub(crate) async fn keep_a_secret_outside(session: &mut ConsoleSession) {
    session.open_section("Secrets").await;
    session.browser.wait_for_text("No secrets.").await;
    for (field, text) in [
        ("#secret-name", "API_TOKEN"),
        ("#secret-value", "secret-canary-value"),
        ("#secret-hosts", "api.example.org, *.example.net:8443"),
    ] {
        session.browser.type_into(field, text).await;
    }
    let row = table_row("API_TOKEN");
    let cell = |text: &str| format!("{row}?.textContent.includes('{text}')");
    let save = "document.querySelector('main form button')";
    let listed = cell("api.example.org, *.example.net:8443a placeholder");
    session.browser.press_once(save, &listed).await;
    session.save_screenshot("settings-secrets").await;
    assert_accessible(session, "secrets").await;
    let change =
        format!("[...{row}.querySelectorAll('button')].find(it => it.textContent === 'Change…')");
    let filled = "document.querySelector('#secret-hosts').value.includes('example.net')";
    session.browser.click(&change, filled).await;
    let clear = "document.querySelector('#secret-hosts').value = ''; document.querySelector('#secret-exposed').click()";
    let _ = session.browser.eval(clear).await;
    session
        .browser
        .press_once(save, &cell("anythe value"))
        .await;
    let text = session
        .browser
        .eval("document.documentElement.outerHTML")
        .await;
    assert!(
        !text.to_string().contains("secret-canary-value"),
        "it is shown"
    );
    session.assert_no_errors(&[]).await;
}

/// Turns a skill off, which is then in the settings.
pub(crate) async fn turn_a_skill_off(session: &mut ConsoleSession) {
    let folder = session.world.service.data_dir().join("skills");
    std::fs::create_dir_all(&folder).expect("cannot create the folder of skills");
    let skill = "---\nname: tidy\ntriggers: [tidy]\n---\nTidy up.\n";
    std::fs::write(folder.join("tidy.md"), skill).expect("cannot write a skill");
    session.open_section("Skills").await;
    let switch = format!("{}?.querySelector('input')", table_row("tidy"));
    session
        .browser
        .wait_until("the skill is on", &format!("{switch}?.checked"))
        .await;
    session
        .browser
        .press_once(&switch, &format!("{switch} && !{switch}.checked"))
        .await;
    session
        .browser
        .wait_until(
            "it is stored",
            "document.querySelector('#message').textContent.includes('is off')",
        )
        .await;
    session.save_screenshot("settings-skills").await;
    assert_accessible(session, "skills").await;
    let stored = session.world.user.get("/api/v1/users/me").await.ok();
    assert_eq!(stored["disabled_skills"], json!(["tidy"]));
    session.assert_no_errors(&[]).await;
}

/// An administrator invites a person: the new user's link is shown once.
pub(crate) async fn invite_a_person(session: &mut ConsoleSession) {
    session.open_view("Users").await;
    session.browser.type_into("#user-name", "carol").await;
    let create = "document.querySelector('main form button')";
    let link =
        "document.querySelector('dialog[open] #shown-once')?.value.includes('/agents/password#')";
    session.browser.press_once(create, link).await;
    session
        .browser
        .click(&dialog_button("Done"), NO_DIALOG)
        .await;
    session
        .browser
        .wait_until("the user is listed", &table_row("carol"))
        .await;
    session.save_screenshot("users").await;
    assert_accessible(session, "users").await;
    session.assert_no_errors(&[]).await;
}

/// The console works with the session. Signing out leads to the login page, and signing in back to the view.
pub(crate) async fn use_the_console_with_the_session(session: &mut ConsoleSession) {
    session.open_view("Conversations").await;
    session.browser.wait_for_text(PLAIN_TITLE).await;
    session.assert_no_errors(&[]).await;
    let out = "document.querySelector('.who button')";
    let login = "location.pathname === '/agents/login'";
    session.browser.click(out, login).await;
    let view = session.url_of("/console/#/conversations");
    session.browser.open(&view).await;
    let returns = "new URLSearchParams(location.search).get('returnTo') === '/agents/console/#/conversations'";
    session.browser.wait_until("the way back", returns).await;
    session.save_screenshot("login").await;
    session.browser.type_into("#name", "admin").await;
    session.browser.type_into("#password", SECOND).await;
    let submit = "document.querySelector('form button')";
    let there = "document.querySelector('nav a[aria-current]')?.textContent === 'Conversations'";
    session.browser.click(submit, there).await;
    session.assert_no_errors(&["401 (Unauthorized)"]).await;
}
