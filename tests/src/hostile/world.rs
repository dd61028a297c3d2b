//! Ids and page tokens from responses, so that many requests concern existing objects.

use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::random::Random;
use super::wire::{Request, Response};

/// Maximum number of values of each kind; older ones are dropped.
const MAX_KNOWN_IDS: usize = 64;

/// The known values.
#[derive(Debug, Default)]
pub(super) struct KnownIds(Mutex<IdPools>);

#[derive(Debug, Default)]
struct IdPools {
    /// Ids that the run itself created.
    own: Vec<String>,
    ids: Vec<String>,
    pages: Vec<String>,
    starts: Vec<Request>,
}

fn keep<T: PartialEq>(pool: &mut Vec<T>, new: T) {
    if pool.contains(&new) {
        return;
    }
    if pool.len() >= MAX_KNOWN_IDS {
        pool.remove(0);
    }
    pool.push(new);
}

impl KnownIds {
    fn pools(&self) -> MutexGuard<'_, IdPools> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, id: &str) {
        keep(&mut self.pools().own, id.to_owned());
    }

    pub(super) fn ids(&self) -> Vec<String> {
        let pools = self.pools();
        pools.own.iter().chain(&pools.ids).cloned().collect()
    }

    pub(super) fn id(&self, random: &mut Random) -> String {
        let pools = self.pools();
        let pool = if random.percent(50) {
            &pools.own
        } else {
            &pools.ids
        };
        random
            .pick(pool)
            .or(pools.own.first())
            .cloned()
            .unwrap_or_default()
    }

    /// A page token: a known one, a changed one, or an invalid text.
    pub(super) fn page(&self, random: &mut Random) -> String {
        let pools = self.pools();
        let Some(token) = random.pick(&pools.pages).cloned() else {
            return random.word(&["garbage", "0", "-1", "MA=="]).to_owned();
        };
        match random.below(6) {
            0 | 1 => token,
            2 => token.chars().rev().collect(),
            3 => token.chars().skip(1).collect(),
            4 => {
                let at = random.below(token.len());
                let changed = token.char_indices().map(|(index, char)| match char {
                    'A' if index == at => 'B',
                    _ if index == at => 'A',
                    char => char,
                });
                changed.collect()
            }
            _ => random
                .word(&[
                    "garbage",
                    "",
                    "99999999999999999999999",
                    "-5",
                    "%00",
                    "AAAA",
                    "eyJhIjoxfQ",
                ])
                .to_owned(),
        }
    }

    /// Sometimes, an earlier request that creates an object, to be repeated.
    pub(super) fn to_repeat(&self, random: &mut Random) -> Option<Request> {
        if !random.percent(1) {
            return None;
        }
        random.pick(&self.pools().starts).cloned()
    }

    /// Stores the ids and page tokens in a response.
    pub(super) fn learn(&self, request: &Request, response: &Response) {
        if response.status != 200 {
            return;
        }
        let Ok(document) = serde_json::from_slice::<Value>(&response.body) else {
            return;
        };
        let mut pools = self.pools();
        if request.method == "POST" && request.has_header("idempotency-key") {
            keep(&mut pools.starts, request.clone());
        }
        if let Some(token) = document["next_page_id"].as_str() {
            keep(&mut pools.pages, token.to_owned());
        }
        let items = document["items"].as_array().or_else(|| document.as_array());
        for item in items.into_iter().flatten().take(5).chain([&document]) {
            for name in ["id", "sandbox_id", "app_conversation_id"] {
                if let Some(id) = item[name]
                    .as_str()
                    .filter(|id| !id.is_empty() && id.len() < 100)
                {
                    keep(&mut pools.ids, super::requests::encoded(id));
                }
            }
        }
    }
}
