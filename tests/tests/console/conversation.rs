//! The page of a conversation, in the order of the suite.

use acceptance::client::Conversation;
use acceptance::wait::wait_for;
use acceptance::world::RECONCILE_TIMEOUT;
use serde_json::json;

use crate::accessibility::assert_accessible;
use crate::scenarios::table_row;
use crate::{ConsoleSession, PLAIN_TITLE};

const ANSWER: &str = "and **now** the `tests`, please";

/// The events that the page shows.
fn event_with(text: &str) -> String {
    format!(
        "[...document.querySelectorAll('.event')].find(it => it.textContent.includes({}))",
        json!(text)
    )
}

async fn open(session: &mut ConsoleSession) {
    session.open_view("Conversations").await;
    session.browser.wait_for_text(PLAIN_TITLE).await;
    let link = format!("{}.querySelector('a')", table_row(PLAIN_TITLE));
    let title = format!(
        "document.querySelector('h1').textContent === {}",
        json!(PLAIN_TITLE)
    );
    session.browser.click(&link, &title).await;
}

/// Shows what was said, sends an answer, and shows what arrives without a new load.
pub(crate) async fn read_and_answer(session: &mut ConsoleSession, conversation: &Conversation) {
    open(session).await;
    session
        .browser
        .wait_until("the first message", &event_with("hello"))
        .await;
    session.browser.type_into("#answer", ANSWER).await;
    let send = "document.querySelector('.composer button')";
    session
        .browser
        .press_once(send, "document.querySelector('#answer').value === ''")
        .await;
    let shown = format!(
        "{}?.querySelector('strong + code, strong ~ code')",
        event_with("and now the tests, please")
    );
    session.browser.wait_until("the answer", &shown).await;
    let user = session.world.user.clone();
    wait_for("the stored answer", RECONCILE_TIMEOUT, || async {
        let events = user.events(&conversation.id).await;
        let is_there = events.iter().any(|it| it.to_string().contains(ANSWER));
        is_there.then_some(())
    })
    .await;
    let kinds = "document.querySelector('#event-kind')";
    let choose = format!("{kinds}.value = 'error', {kinds}.dispatchEvent(new Event('change'))");
    session.browser.eval(&choose).await;
    let hidden = format!("!{}.checkVisibility()", event_with("hello"));
    session
        .browser
        .wait_until("errors only are shown", &hidden)
        .await;
    let all = choose.replace("'error'", "'all'");
    session.browser.eval(&all).await;
}

/// Says in one sentence why a conversation failed; the traceback is folded.
pub(crate) async fn say_why_it_failed(session: &mut ConsoleSession, conversation: &Conversation) {
    let user = session.world.user.clone();
    let sandbox = user.sandbox(&conversation.sandbox_id).await;
    let key = sandbox.and_then(|it| it.session_api_key);
    let agent_server = user.with_key(&key.expect("the sandbox has no key"));
    let detail = "Traceback (most recent call last):\n  File \"llm.py\", line 7, in call\n\
                  litellm.BadRequestError: The model gpt-none does not exist. Try another one.";
    let at = "2030-01-01T10:00:00.000000";
    let batch = json!([
        {"id": "stats-1", "kind": "ConversationStateUpdateEvent", "source": "environment", "timestamp": at, "key": "stats",
         "value": {"usage_to_metrics": {"agent": {"accumulated_cost": 0.5, "accumulated_token_usage": {"prompt_tokens": 900}}}}},
        {"id": "stats-2", "kind": "ConversationStateUpdateEvent", "source": "environment", "timestamp": at, "key": "stats",
         "value": {"usage_to_metrics": {"agent": {"accumulated_cost": 0.75, "accumulated_token_usage": {"prompt_tokens": 1900}}}}},
        {"id": "action-1", "kind": "ActionEvent", "source": "agent", "timestamp": at, "tool_name": "terminal",
         "thought": [{"type": "text", "text": "I look around."}], "action": {"kind": "TerminalAction", "command": "ls -la"}},
        {"id": "result-1", "kind": "ObservationEvent", "source": "environment", "timestamp": at, "tool_name": "terminal",
         "observation": {"kind": "TerminalObservation", "exit_code": 2,
                         "content": [{"type": "text", "text": "<b id=bold>ls</b>: cannot access\n".repeat(40)}]}},
        {"id": "error-1", "kind": "ConversationErrorEvent", "source": "environment", "timestamp": at, "code": "LLMBadRequestError",
         "detail": detail},
        {"id": "status-1", "kind": "ConversationStateUpdateEvent", "source": "environment", "timestamp": at,
         "key": "execution_status", "value": "error"},
    ]);
    let path = format!("/api/v1/webhooks/events/{}", conversation.id);
    assert_eq!(agent_server.post(&path, &batch).await.status, 200);
    let said = "document.querySelector('.failure:not([hidden]) p')?.textContent === 'Failed: The model gpt-none does not exist.'";
    session.browser.wait_until("the sentence", said).await;
    session
        .browser
        .wait_until("the action", &event_with("ls -la"))
        .await;
    let folded = format!("{}.querySelector('button.link')", event_with("exit code 2"));
    let unfolded = format!("{folded}.getAttribute('aria-expanded') === 'true'");
    session.browser.click(&folded, &unfolded).await;
    session
        .browser
        .wait_until(
            "the chart",
            "document.querySelector('svg[aria-label^=\"Cost so far\"]')",
        )
        .await;
    let markup = session
        .browser
        .eval("document.querySelector('#bold')")
        .await;
    assert_eq!(markup, json!(null), "output was inserted as markup");
    session.save_screenshot("conversation-failed").await;
    assert_accessible(session, "conversation").await;
    let user = &session.world.user;
    user.wait_for_execution_status(&conversation.id, "error")
        .await;
}
