//! Whether a URL answers, for `doctor`.

use std::error::Error as _;
use std::fmt::Write as _;
use std::time::Duration;

use reqwest::header::DATE;
use reqwest::redirect::Policy;
use url::Url;

/// Response of a probed URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeResponse {
    /// Its HTTP status.
    pub status: u16,
    /// Time of the server: the header `Date`.
    pub date: Option<String>,
}

/// Asks a URL once, and follows no redirect. The error is for a person and says what failed, with its causes.
pub async fn probe(url: Url, deadline: Duration) -> Result<ProbeResponse, String> {
    let client = reqwest::Client::builder()
        .redirect(Policy::none())
        .timeout(deadline)
        .build()
        .map_err(in_full)?;
    let answer = client.get(url).send().await.map_err(in_full)?;
    let date = answer.headers().get(DATE).and_then(|it| it.to_str().ok());
    Ok(ProbeResponse {
        status: answer.status().as_u16(),
        date: date.map(str::to_owned),
    })
}

/// A failure with its causes, without the URL, which the reader knows.
fn in_full(error: reqwest::Error) -> String {
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
