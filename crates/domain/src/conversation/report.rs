//! How a report of the agent server changes a conversation. Every store uses these pure functions.

use super::{Conversation, ConversationReport, MAX_PULL_REQUESTS, Metrics};
use crate::agent::document::{MAX_TAG_BYTES, MAX_TAGS};
use crate::clock::Timestamp;

impl Conversation {
    /// Applies a report; returns whether anything changed. `status_at` is the time of the stored status (`None`:
    /// unknown, so that any report is newer) and changes with it. The caller sets `updated_at`.
    pub fn apply_report(
        &mut self,
        report: &ConversationReport,
        status_at: &mut Option<Timestamp>,
    ) -> bool {
        let before = (self.clone(), *status_at);
        if let Some((status, at)) = report.execution_status
            && status_at.is_none_or(|known| at >= known)
        {
            self.execution_status = Some(status);
            *status_at = Some(at);
        }
        if let Some(metrics) = &report.metrics {
            self.metrics.merge(metrics);
        }
        if let Some(model) = &report.llm_model {
            self.llm_model = Some(model.clone());
        }
        if let (true, Some(title)) = (self.auto_title, &report.title) {
            self.title = Some(title.clone());
        }
        let length = |name: &str, value: &str| name.len() + value.len();
        let mut bytes: usize = self.tags.iter().map(|(n, v)| length(n, v)).sum();
        for (name, value) in &report.tags {
            // Reports may be hostile: once the limits are reached, a report can only replace existing tags.
            let known = self.tags.get(name);
            let others = bytes - known.map_or(0, |old| length(name, old));
            let with = others + length(name, value);
            let is_room = self.tags.len() < MAX_TAGS || known.is_some();
            if is_room && with <= MAX_TAG_BYTES {
                self.tags.insert(name.clone(), value.clone());
                bytes = with;
            }
        }
        before != (self.clone(), *status_at)
    }
}

/// Appends the number of a pull request unless it is known or there are [`MAX_PULL_REQUESTS`]. Returns whether it was
/// appended.
pub fn add_pull_request_number(numbers: &mut Vec<i64>, number: i64) -> bool {
    let is_new = !numbers.contains(&number) && numbers.len() < MAX_PULL_REQUESTS;
    if is_new {
        numbers.push(number);
    }
    is_new
}

impl Metrics {
    /// Merges a report field by field: totals never decrease. The values that are not totals (window, last turn,
    /// budget) come only from a report none of whose totals is lower. A cost that is not finite is ignored.
    pub fn merge(&mut self, report: &Self) {
        let mut report = report.clone();
        if !report.accumulated_cost.is_finite() {
            report.accumulated_cost = self.accumulated_cost;
        }
        let mut is_older = report.accumulated_cost < self.accumulated_cost;
        self.accumulated_cost = self.accumulated_cost.max(report.accumulated_cost);
        for ((_, known), (_, reported)) in
            self.token_totals().into_iter().zip(report.token_totals())
        {
            is_older |= *reported < *known;
            *known = (*known).max(*reported);
        }
        if !is_older {
            self.context_window = report.context_window;
            self.per_turn_token = report.per_turn_token;
            let budget = report.max_budget_per_task;
            self.max_budget_per_task = budget.filter(|budget| budget.is_finite());
        }
    }

    /// The totals of tokens, by their names in the agent server's documents.
    pub(crate) fn token_totals(&mut self) -> [(&'static str, &mut i64); 5] {
        [
            ("prompt_tokens", &mut self.prompt_tokens),
            ("completion_tokens", &mut self.completion_tokens),
            ("cache_read_tokens", &mut self.cache_read_tokens),
            ("cache_write_tokens", &mut self.cache_write_tokens),
            ("reasoning_tokens", &mut self.reasoning_tokens),
        ]
    }
}

/// Folds the case of a title or search term character by character, so that a part of a title folds to a part of the
/// folded title. Greek's final sigma folds to sigma.
pub fn fold_title(text: &str) -> String {
    text.chars()
        .flat_map(char::to_lowercase)
        .map(|c| if c == 'ς' { 'σ' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::AgentKind;
    use crate::id::{ConversationId, OwnerId, SandboxId};

    #[test]
    fn totals_never_decrease_and_an_older_report_changes_nothing_else() {
        let mut stored = Metrics {
            accumulated_cost: 2.0,
            prompt_tokens: 10,
            per_turn_token: 7,
            ..Metrics::default()
        };
        stored.merge(&Metrics {
            accumulated_cost: f64::NAN,
            prompt_tokens: 9,
            completion_tokens: 3,
            per_turn_token: 1,
            ..Metrics::default()
        });
        assert!((stored.accumulated_cost - 2.0).abs() < f64::EPSILON);
        assert_eq!((stored.prompt_tokens, stored.completion_tokens), (10, 3));
        assert_eq!(stored.per_turn_token, 7);
    }

    #[test]
    fn folding_is_per_character() {
        assert_eq!(fold_title("ÀΣ"), "àσ");
        assert!(fold_title("ΟΔΟΣ 1").contains(&fold_title("ΟΔΟΣ")));
    }

    #[test]
    fn the_bytes_of_all_tags_are_limited() {
        let at = Timestamp::from_micros(0);
        let mut stored = Conversation {
            id: ConversationId::new(uuid::Uuid::nil()),
            owner: OwnerId::parse("ada").unwrap(),
            sandbox_id: SandboxId::parse("s").unwrap(),
            title: None,
            auto_title: true,
            selected_repository: None,
            selected_branch: None,
            git_provider: None,
            trigger: None,
            pr_numbers: Vec::new(),
            llm_model: None,
            agent_kind: AgentKind::OpenHands,
            metrics: Metrics::default(),
            parent: None,
            public: None,
            tags: [("a".to_owned(), "1".to_owned())].into(),
            execution_status: None,
            created_at: at,
            updated_at: at,
        };
        let mut report = |tags: &[(&str, String)]| {
            let tags = tags.iter();
            let tags = tags.map(|(name, value)| ((*name).to_owned(), value.clone()));
            let report = ConversationReport {
                tags: tags.collect(),
                ..ConversationReport::default()
            };
            stored.apply_report(&report, &mut None);
            let lengths = stored.tags.iter();
            lengths
                .map(|(name, value)| (name.clone(), value.len()))
                .collect::<Vec<_>>()
        };
        let half = MAX_TAG_BYTES / 2;
        let kept = report(&[
            ("b", "x".repeat(half)),
            ("c", "x".repeat(half)),
            ("d", String::new()),
        ]);
        let named = |name: &str, length| (name.to_owned(), length);
        assert_eq!(kept, [named("a", 1), named("b", half), named("d", 0)]);
        // What is replaced makes room.
        let kept = report(&[("b", String::new()), ("c", "x".repeat(half))]);
        assert_eq!(
            kept,
            [
                named("a", 1),
                named("b", 0),
                named("c", half),
                named("d", 0)
            ]
        );
    }
}
