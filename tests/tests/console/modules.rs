//! Functions of the console's modules that decide what a text means.

use serde_json::{Value, json};

use crate::ConsoleSession;

async fn call(session: &mut ConsoleSession, module: &str, function: &str, text: &str) -> Value {
    let script = format!(
        "import('./{module}').then(it => it.{function}({}))",
        json!(text)
    );
    session.browser.eval(&script).await
}

/// The console must be open.
pub(crate) async fn understand_texts(session: &mut ConsoleSession) {
    say_errors_in_a_sentence(session).await;
    find_levels_of_log_lines(session).await;
    render_markdown(session).await;
    find_next_fire_times(session).await;
}

async fn say_errors_in_a_sentence(session: &mut ConsoleSession) {
    for (text, sentence) in [
        ("Quota exceeded. Try again.", "Quota exceeded."),
        ("a.b.SomeError: c.d.OtherException: Not so.", "Not so."),
        (
            "Traceback (most recent call last):\n  x\nValueError: bad key",
            "bad key",
        ),
        ("KeyError", "KeyError"),
        ("see v1.2 of it", "see v1.2 of it"),
        ("", ""),
    ] {
        let found = call(session, "events.js", "sentence", text).await;
        assert_eq!(found, sentence, "{text}");
    }
}

async fn find_levels_of_log_lines(session: &mut ConsoleSession) {
    for (line, level, shown) in [
        (
            r#"{"levelname": "WARNING", "message": "hot"}"#,
            json!("warning"),
            "hot",
        ),
        (
            r#"{"level": "error", "msg": "no", "ts": 5}"#,
            json!("error"),
            "no",
        ),
        (
            "[11/27/26 10:00:00] DEBUG    loaded",
            json!("debug"),
            "[11/27/26 10:00:00] DEBUG    loaded",
        ),
        (
            "Traceback (most recent call last):",
            json!("error"),
            "Traceback (most recent call last):",
        ),
        (
            "  File \"x.py\", line 3",
            Value::Null,
            "  File \"x.py\", line 3",
        ),
        ("{no json", Value::Null, "{no json"),
    ] {
        let found = call(session, "logs.js", "parse", line).await;
        assert_eq!(
            (&found["level"], &found["text"]),
            (&level, &json!(shown)),
            "{line}"
        );
    }
}

async fn render_markdown(session: &mut ConsoleSession) {
    for (text, markup) in [
        (
            "a **b** `c<d`",
            "<p>a <strong>b</strong> <code>c&lt;d</code></p>",
        ),
        ("<b>x</b>", "<p>&lt;b&gt;x&lt;/b&gt;</p>"),
        (
            "# Title\n\n- one\n- *two*",
            "<p class=\"md-heading\">Title</p><ul><li>one</li><li><em>two</em></li></ul>",
        ),
        (
            "```sh\nls *\n```\nend",
            "<pre><code>ls *</code></pre><p>end</p>",
        ),
        (
            "[x](javascript:alert(1))",
            "<p>[x](javascript:alert(1))</p>",
        ),
        ("1. a\n2. b", "<ol><li>a</li><li>b</li></ol>"),
        ("> q", "<blockquote>q</blockquote>"),
        (
            "2 * 3 * 4 and ** and ```",
            "<p>2 * 3 * 4 and ** and ```</p>",
        ),
    ] {
        let script = format!(
            "import('./markdown.js').then(it => it.markdown({}).map(one => one.outerHTML).join(''))",
            json!(text)
        );
        assert_eq!(session.browser.eval(&script).await, markup, "{text}");
    }
}

async fn find_next_fire_times(session: &mut ConsoleSession) {
    for (schedule, zone, now, expected) in [
        // The clocks of Berlin go forward on the 29th.
        (
            "0 6 * * mon",
            "Europe/Berlin",
            "2026-03-28T12:00:00Z",
            json!("2026-03-30T04:00:00.000Z"),
        ),
        (
            "*/20 9-10 * * *",
            "UTC",
            "2026-03-28T09:41:00Z",
            json!("2026-03-28T10:00:00.000Z"),
        ),
        // With both fields limited, either day is enough.
        (
            "0 0 13 * 5",
            "UTC",
            "2026-03-28T12:00:00Z",
            json!("2026-04-03T00:00:00.000Z"),
        ),
        (
            "5 0 29 2 *",
            "Asia/Tokyo",
            "2026-03-28T12:00:00Z",
            json!("2028-02-28T15:05:00.000Z"),
        ),
        ("0 0 30 2 *", "UTC", "2026-03-28T12:00:00Z", Value::Null),
        ("0 0 L * *", "UTC", "2026-03-28T12:00:00Z", Value::Null),
        (
            "0 0 1 1 *",
            "Mars/Olympus",
            "2026-03-28T12:00:00Z",
            Value::Null,
        ),
    ] {
        let script = format!(
            "import('./cron.js').then(it => it.next({}, {}, Date.parse({}))?.toISOString() ?? null)",
            json!(schedule),
            json!(zone),
            json!(now)
        );
        let found = session.browser.eval(&script).await;
        assert_eq!(found, expected, "{schedule} {zone}");
    }
}
