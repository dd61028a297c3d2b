//! Two people in an organization and one outside of it, two tabs, a lost connection, and a session that ends in a
//! conversation.

use acceptance::Service;
use acceptance::browser::Browser;
use serde_json::json;

use super::{INPUT, MODEL, MODEL_KEY, PASSWORD, SUBMIT, TITLE, WebSession, set_password};

/// Sends a message from the open page, which then shows this number of answers.
async fn say(browser: &mut Browser, message: &str, answers: usize) {
    let input = format!("document.querySelector('{INPUT}')");
    browser.wait_until("the field for messages", &input).await;
    browser.type_into(INPUT, message).await;
    browser.press_key("Enter", 13).await;
    wait_for_answers(browser, answers).await;
}

async fn wait_for_answers(browser: &mut Browser, count: usize) {
    let shown = "document.body.innerText.split('Done as scripted.').length";
    let answered = format!("{shown} === {}", count + 1);
    browser.wait_until("the answers", &answered).await;
}

/// Starts a conversation from the home page; returns the path of its page.
async fn start_conversation(browser: &mut Browser, message: &str) -> String {
    say(browser, message, 1).await;
    let path = browser.eval("location.pathname").await;
    let path = path.as_str().unwrap_or_default().to_owned();
    assert!(path.starts_with("/conversations/"), "{path}");
    path
}

/// Opens the link with which this user sets a password, and sets it.
async fn sign_in_by_link(service: &Service, browser: &mut Browser, user: &str) {
    let output = service.run(&["users", "link", user]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let link = text.lines().find(|line| line.contains("/password#"));
    browser.open(link.expect("a link").trim()).await;
    browser.wait_for_text("Set a password").await;
    set_password(browser, "location.pathname === '/'").await;
}

/// Fills in the login page, which is open, until the page shows the effect.
async fn log_in(browser: &mut Browser, user: &str, effect: &str) {
    browser.wait_for_text("Sign in").await;
    browser.type_into("#name", user).await;
    browser.type_into("#password", PASSWORD).await;
    browser.click(SUBMIT, effect).await;
}

#[tokio::test]
async fn members_work_in_their_organization_and_others_see_nothing_of_it() {
    let mut session = WebSession::start("accounts").await;
    session.use_model().await;
    let body = json!({"name": "Crew"});
    let crew = session.user.post("/api/organizations", &body).await.ok();
    let crew = crew["id"].as_str().expect("an id").to_owned();
    // The model of the organization.
    let profile = format!("/api/organizations/{crew}/profiles/shared");
    let llm = json!({"model": MODEL, "base_url": session.llm.base_url(), "api_key": MODEL_KEY});
    let _ = session.user.post(&profile, &json!({"llm": llm})).await.ok();
    let invite = format!("/api/organizations/{crew}/members/invite");
    let body = json!({"emails": ["mia@example.org"], "role": "member"});
    let invited = session.user.post(&invite, &body).await.ok();
    let link = invited["successful"][0]["invite_url"].as_str();
    let link = link.expect("a link").to_owned();

    session.browser.open(&link).await;
    session.browser.wait_for_text("Create an account").await;
    session.browser.type_into("#name", "mia").await;
    set_password(&mut session.browser, "location.pathname === '/'").await;
    wait_for_organization(&mut session.browser, "Crew").await;
    session.save_screenshot("organization").await;
    let path = start_conversation(&mut session.browser, "RUN: echo crew > crew.txt").await;
    session.open("/").await;
    session.browser.wait_for_text(TITLE).await;
    session.assert_no_errors().await;
    session
        .assert_nothing_kept(&[PASSWORD, "sk-scripted"])
        .await;

    // Her personal organization has a model and conversations of its own.
    let llm = json!({"model": "openai/scripted", "base_url": session.llm.base_url(), "api_key": "sk-own"});
    let settings = json!({"agent_settings_diff": {"llm": llm}});
    let save = format!(
        "fetch('/api/organizations').then(it => it.json()).then(it => fetch('/api/v1/settings', {{method: 'POST', \
         headers: {{'Content-Type': 'application/json', 'X-Org-Id': it.items.find(it => it.is_personal).id}}, \
         body: JSON.stringify({settings})}})).then(it => it.status)"
    );
    assert_eq!(session.browser.eval(&save).await, 200);
    choose_organization(&mut session, "Personal").await;
    session
        .browser
        .wait_for_text("No conversations found")
        .await;
    choose_organization(&mut session, "Crew").await;
    session.browser.wait_for_text(TITLE).await;

    let _ = session.service.user("bob");
    let mut bob = Browser::start().await;
    sign_in_by_link(&session.service, &mut bob, "bob").await;
    let id = path.rsplit('/').next().unwrap_or_default();
    let ask = format!("fetch('/api/v1/app-conversations?ids={id}').then(it => it.text())");
    assert_eq!(bob.eval(&ask).await, "[null]");
    let organizations = "fetch('/api/organizations').then(it => it.text())";
    let known = bob.eval(organizations).await.to_string();
    assert!(known.contains("items") && !known.contains(&crew), "{known}");
    bob.open(&format!("{}{path}", session.service.url())).await;
    let answered = "document.readyState === 'complete' && document.querySelector('[data-testid=sidebar-conversations-link]')";
    bob.wait_until("the page", answered).await;
    let text = bob.eval("document.body.innerText").await.to_string();
    assert!(!text.contains("crew.txt"), "{text}");
}

/// The menu at the bottom of the page, which is a field, shows the selected organization.
async fn wait_for_organization(browser: &mut Browser, name: &str) {
    let shown =
        format!("[...document.querySelectorAll('input')].some(it => it.value.endsWith('{name}'))");
    browser.wait_until("the organization", &shown).await;
}

/// Chooses an organization in that menu.
async fn choose_organization(session: &mut WebSession, name: &str) {
    let menu = "document.querySelector('[data-testid=dropdown-trigger]')";
    let item = format!(
        "[...document.querySelectorAll('[role=option]')].find(it => it.textContent.includes('{name}'))"
    );
    session.browser.click(menu, &item).await;
    session.browser.click(&item, &format!("!{item}")).await;
}

#[tokio::test]
async fn two_tabs_show_the_same_conversation_also_after_a_lost_connection() {
    let mut session = WebSession::start("accounts").await;
    session.use_model().await;
    sign_in_by_link(&session.service, &mut session.browser, "admin").await;
    let path = start_conversation(&mut session.browser, "RUN: echo one > first.txt").await;
    let mut other = Browser::start().await;
    let url = format!("{}{path}", session.service.url());
    other.open(&url).await;
    log_in(
        &mut other,
        "admin",
        &format!("location.pathname === '{path}'"),
    )
    .await;
    wait_for_answers(&mut other, 1).await;
    other.wait_for_socket(true).await;
    say(&mut session.browser, "RUN: echo two > second.txt", 2).await;
    wait_for_answers(&mut other, 2).await;

    session.service.kill9();
    for browser in [&mut session.browser, &mut other] {
        browser.wait_for_socket(false).await;
    }
    session.service.restart().await;
    for browser in [&mut session.browser, &mut other] {
        browser.wait_for_socket(true).await;
    }
    say(&mut other, "RUN: echo three > third.txt", 3).await;
    wait_for_answers(&mut session.browser, 3).await;
}

#[tokio::test]
async fn a_session_that_ends_in_a_conversation_leads_to_the_login_page_and_back() {
    let mut session = WebSession::start("accounts").await;
    session.use_model().await;
    sign_in_by_link(&session.service, &mut session.browser, "admin").await;
    let path = start_conversation(&mut session.browser, "RUN: echo one > first.txt").await;
    let sessions = session.user.get("/api/v1/sessions").await.ok();
    for ended in sessions["items"].as_array().expect("a list") {
        let id = ended["id"].as_str().expect("an id");
        let path = format!("/api/v1/sessions/{id}");
        let _ = session.user.delete(&path).await.ok();
    }
    // The page asks for its session every half a minute, and when its tab is shown again.
    let shown_again = "document.dispatchEvent(new Event('visibilitychange'))";
    session.browser.eval(shown_again).await;
    // Where the host is this machine, the page shows this until it is loaded again.
    session.browser.wait_for_text("Logged out").await;
    session.open(&path).await;
    let there = format!("location.pathname === '{path}'");
    log_in(&mut session.browser, "admin", &there).await;
    wait_for_answers(&mut session.browser, 1).await;
    session.browser.wait_for_socket(true).await;
    say(&mut session.browser, "RUN: echo two > second.txt", 2).await;
}
