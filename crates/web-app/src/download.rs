//! Downloads the archive.

use std::path::Path;
use std::time::Duration;

use hyper::header::{HeaderMap, LOCATION};
use hyper::{Method, Response, body::Incoming};
use outbound_http::{CaCertificates, ClientOptions, HttpClient, next_chunk};
use tokio::fs::File;
use tokio::io::AsyncWriteExt as _;
use tokio::time::{Instant, timeout};
use url::Url;

use crate::error::WebAppError;

/// Receives what an installation does, e.g. "downloaded 5 of 17 MB".
pub type InstallProgress<'a> = dyn Fn(&str) + Send + Sync + 'a;

/// Some times the size of the pinned archive.
const MAX_ARCHIVE_BYTES: u64 = 128 << 20;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest silence within the body.
const CHUNK_TIMEOUT: Duration = Duration::from_secs(60);
const DOWNLOAD_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// Registries in front of an object store redirect once.
const MAX_REDIRECTS: usize = 3;
/// Interval of reports about a long download.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// Downloads `url` into a new file.
pub(crate) async fn download(
    url: &Url,
    file: &Path,
    progress: &InstallProgress<'_>,
) -> Result<(), WebAppError> {
    let whole = timeout(DOWNLOAD_TIMEOUT, receive(url, file, progress));
    whole
        .await
        .unwrap_or(Err(WebAppError::TooLong("the download")))
}

async fn receive(
    url: &Url,
    path: &Path,
    progress: &InstallProgress<'_>,
) -> Result<(), WebAppError> {
    let response = request(url).await?;
    let announced = response.headers().get(hyper::header::CONTENT_LENGTH);
    let announced = announced.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    let mut body = response.into_body();
    let mut file = File::create(path)
        .await
        .map_err(WebAppError::io("create", path))?;
    let (mut received, mut reported_at) = (0, Instant::now());
    loop {
        let chunk = timeout(CHUNK_TIMEOUT, next_chunk(&mut body)).await;
        let chunk = chunk.map_err(|_| WebAppError::TooLong("a part of the download"))?;
        let chunk = chunk.map_err(|source| WebAppError::Body {
            url: url.clone(),
            source,
        })?;
        let Some(chunk) = chunk else { break };
        received += chunk.len() as u64;
        if received > MAX_ARCHIVE_BYTES {
            let problem = format!("it has more than {MAX_ARCHIVE_BYTES} bytes");
            return Err(WebAppError::Archive(problem));
        }
        file.write_all(&chunk)
            .await
            .map_err(WebAppError::io("write", path))?;
        if reported_at.elapsed() >= REPORT_INTERVAL {
            reported_at = Instant::now();
            progress(&downloaded(received, announced));
        }
    }
    file.flush().await.map_err(WebAppError::io("write", path))
}

fn downloaded(received: u64, announced: Option<u64>) -> String {
    let megabytes = |bytes: u64| bytes.div_ceil(1_000_000);
    let received = megabytes(received);
    match announced {
        Some(all) => format!("downloaded {received} of {} MB", megabytes(all)),
        None => format!("downloaded {received} MB"),
    }
}

/// Requests the archive, and follows redirects: the digest proves the archive.
async fn request(url: &Url) -> Result<Response<Incoming>, WebAppError> {
    let mut target = url.clone();
    let mut redirects = 0;
    loop {
        let response = send(&target).await?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let location = response.headers().get(LOCATION);
        let next = location
            .filter(|_| status.is_redirection() && redirects < MAX_REDIRECTS)
            .and_then(|location| target.join(location.to_str().ok()?).ok())
            .filter(|next| matches!(next.scheme(), "http" | "https"));
        redirects += 1;
        target = next.ok_or_else(|| WebAppError::Status {
            url: target.clone(),
            status: status.as_u16(),
        })?;
    }
}

async fn send(url: &Url) -> Result<Response<Incoming>, WebAppError> {
    let failed = |source| WebAppError::Send {
        url: url.clone(),
        source,
    };
    // Reads files.
    let needs = url.clone();
    let authorities = tokio::task::spawn_blocking(move || CaCertificates::for_url(&needs))
        .await
        .unwrap_or_default();
    let options = ClientOptions {
        authorities,
        guard: None,
        connect_timeout: CONNECT_TIMEOUT,
        idle_timeout: CONNECT_TIMEOUT,
        max_idle_per_host: 0,
    };
    let client = HttpClient::new(options).map_err(|error| WebAppError::Tls(error.to_string()))?;
    let sent = client.send(Method::GET, url, HeaderMap::new(), "");
    let sent = timeout(RESPONSE_TIMEOUT, sent).await;
    sent.map_err(|_| WebAppError::TooLong("the response of the registry"))?
        .map_err(failed)
}
