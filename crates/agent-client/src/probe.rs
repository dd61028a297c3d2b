//! A request to any URL, for the command `doctor`.

use std::error::Error as _;
use std::fmt::Write as _;
use std::time::Duration;

use reqwest::header::DATE;
use reqwest::redirect::Policy;
use url::Url;

/// Response of a probed URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeResponse {
    /// HTTP status.
    pub status: u16,
    /// The header `Date`: the server's clock.
    pub date: Option<String>,
}

/// Sends one GET request and follows no redirect. The error is a text for the operator, with all causes.
pub async fn probe(url: Url, deadline: Duration) -> Result<ProbeResponse, String> {
    let client = reqwest::Client::builder()
        .redirect(Policy::none())
        .timeout(deadline)
        .build()
        .map_err(describe)?;
    let response = client.get(url).send().await.map_err(describe)?;
    let date = response.headers().get(DATE);
    let date = date.and_then(|value| value.to_str().ok());
    Ok(ProbeResponse {
        status: response.status().as_u16(),
        date: date.map(str::to_owned),
    })
}

/// The error with its causes, without the URL, which the caller prints.
fn describe(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        // Writing to a String cannot fail.
        let _ = write!(text, ": {error}");
        cause = error.source();
    }
    text
}
