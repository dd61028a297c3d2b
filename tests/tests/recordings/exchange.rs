//! A recorded exchange of the fixtures.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// An exchange of `tests/fixtures`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecordedExchange {
    pub(crate) name: String,
    /// The server with which the exchange was recorded, which determines the expected state.
    pub(crate) session: String,
    /// Requests before it that are not compared.
    #[serde(default)]
    pub(crate) before: Vec<RecordedRequest>,
    pub(crate) method: String,
    pub(crate) path: String,
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    /// The body, in one of three spellings.
    #[serde(default)]
    pub(crate) json: Option<Value>,
    #[serde(default)]
    pub(crate) text: Option<String>,
    #[serde(default)]
    pub(crate) latin1: Option<String>,
    pub(crate) status: u16,
    #[serde(default)]
    pub(crate) answer_headers: BTreeMap<String, String>,
    /// The body of an error, or the shape of an answer, or a text.
    #[serde(default)]
    pub(crate) error: Option<Value>,
    #[serde(default)]
    pub(crate) shape: Option<Value>,
    #[serde(default)]
    pub(crate) text_answer: Option<String>,
}

/// A request that is sent only for its effect.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecordedRequest {
    pub(crate) method: String,
    pub(crate) path: String,
    #[serde(default)]
    pub(crate) json: Option<Value>,
}

/// All exchanges in order.
pub(crate) fn all() -> Vec<RecordedExchange> {
    let files = [
        include_str!("../../fixtures/recordings-v1.json"),
        include_str!("../../fixtures/recordings-v0.json"),
    ];
    let parse = |text| {
        serde_json::from_str::<Vec<RecordedExchange>>(text).expect("the fixtures are exchanges")
    };
    files.into_iter().flat_map(parse).collect()
}

impl RecordedExchange {
    /// Whether the exchange is about a legacy operation, whose errors have another form.
    pub(crate) fn is_legacy(&self) -> bool {
        let in_v1_form = ["/api/v1/", "/api/conversations", "/api/user/"];
        let mut in_v1_form = in_v1_form.iter();
        self.path.starts_with("/api/") && !in_v1_form.any(|start| self.path.starts_with(start))
    }

    pub(crate) fn body(&self, fill: impl Fn(&str) -> String) -> Option<Vec<u8>> {
        let long = "x".repeat(20_000);
        let whole = |text: &str| fill(text).replace("{long}", &long).into_bytes();
        let json = self.json.as_ref().map(|json| whole(&json.to_string()));
        let text = || self.text.as_deref().map(whole);
        let latin1 = || {
            let chars = self.latin1.as_ref()?.chars();
            Some(
                chars
                    .map(|char| u8::try_from(u32::from(char)).unwrap_or(b'?'))
                    .collect(),
            )
        };
        json.or_else(text).or_else(latin1)
    }
}
