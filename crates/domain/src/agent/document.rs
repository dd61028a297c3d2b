//! Parses the agent server's documents: events, conversation infos, statistics.
//!
//! The webhook intake and the back-fill client share these pure functions. They accept unknown kinds and fields, and
//! leave unusable values out instead of failing, because an agent server repeats a refused batch for ever.

use chrono::NaiveDateTime;
use serde_json::Value;

use super::{AgentConversation, AgentKind};
use crate::clock::Timestamp;
use crate::conversation::{ConversationReport, ExecutionStatus, Metrics};
use crate::event::Event;
use crate::id::{ConversationId, EventId};

/// Kind of the event that carries a change of state as `key` and `value`.
pub const STATE_UPDATE: &str = "ConversationStateUpdateEvent";
/// Kind of a fragment of a streamed response (1.34 sends it by webhook). It is never stored.
pub const STREAMING_DELTA: &str = "StreamingDeltaEvent";

/// Maximum length of a stored title, model or tag. Sandboxes may be hostile.
const MAX_TEXT_CHARS: usize = 1_000;
/// Maximum number of tags of one conversation.
pub const MAX_TAGS: usize = 64;
/// Maximum bytes of the names and values of all tags of one conversation, because lists of conversations show them.
pub const MAX_TAG_BYTES: usize = 16 * 1024;

/// The text without NUL (which Postgres cannot hold), truncated to `max_chars` characters.
fn bounded(text: &str, max_chars: usize) -> String {
    text.chars()
        .filter(|c| *c != '\0')
        .take(max_chars)
        .collect()
}

impl Event {
    /// Reads an event. `None` if it has no usable id. `received` replaces a missing or unreadable timestamp.
    pub fn from_document(body: Value, received: Timestamp) -> Option<Self> {
        let id = EventId::parse(body.get("id")?.as_str()?).ok()?;
        let text = |key: &str| body.get(key).and_then(Value::as_str);
        Some(Self {
            id,
            kind: bounded(text("kind").unwrap_or("Event"), 128),
            timestamp: text("timestamp").and_then(read_time).unwrap_or(received),
            body,
        })
    }
}

impl ConversationReport {
    /// What a batch of events reports about its conversation. Later events win.
    pub fn from_events(events: &[Event]) -> Self {
        let mut report = Self::default();
        for event in events.iter().filter(|e| e.kind == STATE_UPDATE) {
            let key = event.body.get("key").and_then(Value::as_str);
            match (key, event.body.get("value")) {
                (Some("execution_status"), Some(value)) => {
                    report.merge_status(value, event.timestamp);
                }
                (Some("stats"), Some(stats)) => report.merge_metrics(read_metrics(stats)),
                // The agent server also sends this when it loads a conversation, with the time of loading and the old
                // status. A message may already make the conversation run by then, so the status in it is ignored. Each change
                // of status has an event of its own.
                (Some("full_state"), Some(state)) => {
                    report.merge_metrics(state.get("stats").and_then(read_metrics));
                }
                (Some("title"), Some(Value::String(title))) if !title.trim().is_empty() => {
                    report.title = Some(bounded(title, MAX_TEXT_CHARS));
                }
                _ => {}
            }
        }
        report
    }

    fn merge_status(&mut self, value: &Value, at: Timestamp) {
        let status = value
            .as_str()
            .and_then(|text| text.parse::<ExecutionStatus>().ok());
        if let Some(status) = status
            && self.execution_status.is_none_or(|(_, known)| known <= at)
        {
            self.execution_status = Some((status, at));
        }
    }

    fn merge_metrics(&mut self, metrics: Option<Metrics>) {
        let Some(new) = metrics else { return };
        // Totals only grow. A batch may hold several snapshots in any order.
        if self.metrics.as_ref().is_none_or(|known| {
            (known.accumulated_cost, known.prompt_tokens)
                <= (new.accumulated_cost, new.prompt_tokens)
        }) {
            self.metrics = Some(new);
        }
    }
}

impl AgentConversation {
    /// Reads a `ConversationInfo` (webhook, GET, batch). `None` if it has no usable id.
    pub fn from_document(info: &Value) -> Option<Self> {
        let id = info.get("id")?.as_str()?.parse::<ConversationId>().ok()?;
        let text = |at: &str| {
            info.pointer(at)
                .and_then(Value::as_str)
                .map(|text| bounded(text, MAX_TEXT_CHARS))
        };
        let acp = text("/agent/kind").is_some_and(|kind| kind == "ACPAgent");
        let tags = info.get("tags").and_then(Value::as_object).map(|tags| {
            let texts = tags
                .iter()
                .filter_map(|(name, value)| Some((name, value.as_str()?)));
            texts
                .take(MAX_TAGS)
                .map(|(name, value)| (bounded(name, 256), bounded(value, MAX_TEXT_CHARS)))
                .collect()
        });
        Some(Self {
            id,
            execution_status: text("/execution_status").and_then(|s| s.parse().ok()),
            title: text("/title").filter(|title| !title.trim().is_empty()),
            metrics: info.get("stats").and_then(read_metrics),
            // The `llm` of an external agent program is a placeholder (`acp-managed`).
            llm_model: text("/current_model_id").or_else(|| {
                text(if acp {
                    "/agent/acp_model"
                } else {
                    "/agent/llm/model"
                })
            }),
            agent_kind: if acp {
                AgentKind::Acp
            } else {
                AgentKind::OpenHands
            },
            tags: tags.unwrap_or_default(),
            updated_at: text("/updated_at").as_deref().and_then(read_time),
            notes: Vec::new(),
        })
    }

    /// The report about the conversation's row. A status without a time of its own counts as of `received`.
    pub fn report(&self, received: Timestamp) -> ConversationReport {
        ConversationReport {
            execution_status: self
                .execution_status
                .map(|s| (s, self.updated_at.unwrap_or(received))),
            metrics: self.metrics.clone(),
            llm_model: self.llm_model.clone(),
            title: self.title.clone(),
            tags: self.tags.clone(),
        }
    }
}

/// Sums the statistics of all model usages (`stats.usage_to_metrics`): the agent, its condenser, its title generator.
pub fn read_metrics(stats: &Value) -> Option<Metrics> {
    let usages = stats.get("usage_to_metrics")?.as_object()?;
    let mut sum = Metrics::default();
    for usage in usages.values() {
        let cost = usage
            .get("accumulated_cost")
            .and_then(Value::as_f64)
            .unwrap_or(0.0);
        if cost.is_finite() {
            sum.accumulated_cost += cost;
        }
        if let Some(budget) = usage.get("max_budget_per_task").and_then(Value::as_f64) {
            sum.max_budget_per_task = Some(budget);
        }
        let tokens = |name: &str| {
            usage
                .pointer(&format!("/accumulated_token_usage/{name}"))
                .and_then(Value::as_i64)
                .unwrap_or(0)
                .max(0)
        };
        for (name, total) in sum.token_totals() {
            *total = total.saturating_add(tokens(name));
        }
        sum.context_window = sum.context_window.max(tokens("context_window"));
        sum.per_turn_token = sum.per_turn_token.max(tokens("per_turn_token"));
    }
    Some(sum)
}

/// Parses ISO 8601 with or without a zone. A time without one is UTC, because sandboxes run with `TZ=UTC`.
pub fn read_time(text: &str) -> Option<Timestamp> {
    let without_zone = || {
        let mut formats = ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f"].iter();
        let naive = formats.find_map(|format| NaiveDateTime::parse_from_str(text, format).ok());
        naive.map(|naive| Timestamp::new(naive.and_utc()))
    };
    text.parse().ok().or_else(without_zone)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(body: Value) -> Event {
        Event::from_document(body, Timestamp::from_micros(7)).expect("readable")
    }

    #[test]
    fn events_of_any_kind_are_read_and_events_without_id_are_dropped() {
        let e = event(
            json!({"id":"x/../y","kind":"Brand New","timestamp":"2026-11-21T08:59:14.384696","z":1}),
        );
        assert_eq!((e.id.as_str(), e.kind.as_str()), ("x/../y", "Brand New"));
        assert_eq!(e.timestamp.to_string(), "2026-11-21T08:59:14.384696Z");
        assert_eq!(
            event(json!({"id":"a","timestamp":"soon"})).timestamp,
            Timestamp::from_micros(7)
        );
        for bad in [
            json!({}),
            json!({"id":""}),
            json!({"id":5}),
            json!([]),
            json!(null),
            json!({"id":"a\0"}),
        ] {
            assert!(
                Event::from_document(bad.clone(), Timestamp::from_micros(0)).is_none(),
                "{bad}"
            );
        }
    }

    #[test]
    fn the_latest_status_of_a_shuffled_batch_wins() {
        let update = |at: &str, status: &str| {
            event(
                json!({"id":at,"kind":STATE_UPDATE,"timestamp":at,"key":"execution_status","value":status}),
            )
        };
        let batch = [
            update("2026-11-21T08:59:14.395679", "finished"),
            update("2026-11-21T08:59:12.501334", "running"),
            update("2026-11-21T08:59:13.501334", "hibernating"),
        ];
        let (status, _) = ConversationReport::from_events(&batch)
            .execution_status
            .expect("a status");
        assert_eq!(status, ExecutionStatus::Finished);
    }

    /// After a resume, the agent server takes a message and loads the conversation before it runs.
    #[test]
    fn loading_a_conversation_does_not_change_its_status() {
        let loaded = event(json!({
            "id": "a", "kind": STATE_UPDATE, "timestamp": "2026-11-21T08:59:14.395679",
            "key": "full_state", "value": {"execution_status": "finished", "stats": {}},
        }));
        assert_eq!(
            ConversationReport::from_events(&[loaded]).execution_status,
            None
        );
    }

    #[test]
    fn statistics_are_summed_over_usages() {
        let usage = |cost: f64, prompt: i64| json!({"accumulated_cost":cost,"accumulated_token_usage":{"prompt_tokens":prompt,"context_window":9}});
        let stats =
            json!({"usage_to_metrics":{"agent":usage(0.5, 300),"condenser":usage(0.25, 20)}});
        let metrics = read_metrics(&stats).expect("metrics");
        assert_eq!(
            (
                metrics.accumulated_cost,
                metrics.prompt_tokens,
                metrics.context_window
            ),
            (0.75, 320, 9)
        );
    }
}
