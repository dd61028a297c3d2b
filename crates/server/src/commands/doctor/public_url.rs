//! Check of `doctor`: the URL that clients use.

use std::net::SocketAddr;

use domain::clock::Clock;
use sandbox_provider::is_loopback;
use url::Url;

use super::DoctorReport;
use super::clock::date_header;
use super::network::{CONNECT_TIMEOUT, can_connect};
use crate::compose;
use crate::config::{AuthModeSetting, Config};

pub(super) async fn examine(
    config: &Config,
    is_running: bool,
    clock: &dyn Clock,
    report: &mut DoctorReport,
) {
    let what = "public URL";
    let bound = config.http.bind;
    let url = config.http.public_url(bound);
    if let Some(warning) = warning(config, &url, bound) {
        report.warn(what, warning);
    } else {
        report.ok(what, url.as_str());
    }
    if bound.port() == 0 && !config.http.is_url_configured() {
        return report.ok("reachable", "not checked: the port is chosen at the start");
    }
    let result = if url.scheme() == "https" {
        // `doctor` speaks no TLS, so it only checks the connection.
        let not_checked = |()| {
            format!(
                "{url} accepts connections; TLS is not checked: `curl --head {url}alive` answers 200 if the service \
                     is reachable"
            )
        };
        let unreachable = |error| format!("cannot connect to {url} from this machine ({error})");
        can_connect(&url)
            .await
            .map(not_checked)
            .map_err(unreachable)
    } else {
        request_alive(&url, report, clock).await
    };
    let what = "reachable";
    match result {
        Ok(text) => report.ok(what, text),
        Err(_) if !is_running => {
            report.ok(what, format!("{url} was not checked: no service is running here"));
        }
        Err(error) => report.warn(
            what,
            format!(
                "{error}: if clients cannot reach it either, correct WORKSPACE_HTTP__PUBLIC_URL or the proxy, which has to \
                 forward requests to {bound}"
            ),
        ),
    }
}

/// Whether the service answers there. Also compares its clock.
async fn request_alive(
    url: &Url,
    report: &mut DoctorReport,
    clock: &dyn Clock,
) -> Result<String, String> {
    let mut alive = url.clone();
    alive.set_path("/alive");
    let response = compose::probe(alive.clone(), CONNECT_TIMEOUT).await;
    let response = response
        .map_err(|error| format!("cannot connect to {alive} from this machine ({error})"))?;
    if response.status != 200 {
        return Err(format!("{alive} answers {}", response.status));
    }
    if let Some(date) = response.date.as_deref().and_then(date_header) {
        report.skew("clock of the public URL", date, clock.now());
    }
    Ok(format!("{alive} answers"))
}

fn warning(config: &Config, url: &Url, bound: SocketAddr) -> Option<String> {
    let advice = "set WORKSPACE_HTTP__PUBLIC_URL to the URL that clients use";
    if !config.http.is_url_configured() && !bound.ip().is_loopback() {
        return Some(format!("{url} is only a guess from {bound}: {advice}"));
    }
    if !matches!(url.scheme(), "http" | "https") {
        return Some(format!("{url} is not an HTTP URL: {advice}"));
    }
    if url.scheme() == "http" && !is_loopback(url) && config.auth.mode != AuthModeSetting::Open {
        return Some(format!(
            "{url} is not encrypted: API keys are sent in plain text. Terminate TLS in a proxy, and {advice}"
        ));
    }
    config.http.warning()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warning_for(bind: &str, url: &str) -> Option<String> {
        let variables = [
            ("HOME".into(), "/home/someone".into()),
            // With accounts the service refuses addresses that are not encrypted.
            ("WORKSPACE_AUTH__MODE".into(), "api_key".into()),
            ("WORKSPACE_HTTP__BIND".into(), bind.into()),
            ("WORKSPACE_HTTP__PUBLIC_URL".into(), url.into()),
        ];
        let config = Config::load(compose::BACKENDS, None, &variables).unwrap();
        let bound = config.http.bind;
        warning(&config, &config.http.public_url(bound), bound)
    }

    #[test]
    fn an_implausible_public_url_is_a_warning() {
        for (bind, url, part) in [
            ("0.0.0.0:3000", "", Some("only a guess")),
            ("127.0.0.1:3000", "", None),
            (
                "0.0.0.0:3000",
                "https://a.example.org",
                Some("no proxy is trusted"),
            ),
            (
                "0.0.0.0:3000",
                "http://127.0.0.1:3000",
                Some("this machine only"),
            ),
            (
                "127.0.0.1:3000",
                "http://a.example.org",
                Some("not encrypted"),
            ),
            ("127.0.0.1:3000", "http://localhost:8080", None),
            (
                "127.0.0.1:3000",
                "https://a.example.org/agents/",
                Some("no proxy is trusted"),
            ),
        ] {
            let warning = warning_for(bind, url);
            match part {
                None => assert_eq!(warning, None, "{url}"),
                Some(part) => assert!(warning.unwrap().contains(part), "{url}"),
            }
        }
    }
}
