//! Checks of `doctor`: clocks, and the URL that clients use.

use std::net::SocketAddr;
use std::time::Duration;

use chrono::DateTime;
use domain::clock::{Clock, Timestamp};
use tokio::net::TcpStream;
use url::{Host, Url};

use super::DoctorReport;
use crate::compose;
use crate::config::{AuthModeSetting, Config};

/// A process judges the leases of others by its own clock. Leases last six seconds at least.
const WARNING_SKEW: Duration = Duration::from_secs(2);
const PROBLEM_SKEW: Duration = Duration::from_secs(30);
/// Time for the public URL to answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Compares two clocks.
pub(super) fn skew(what: &str, theirs: Timestamp, ours: Timestamp, report: &mut DoctorReport) {
    let apart = theirs.since(ours).max(ours.since(theirs));
    let text = format!("{:.1} s apart from this machine's", apart.as_secs_f64());
    let advice = "synchronize both machines by NTP: leases and expiry times depend on the clock";
    if apart > PROBLEM_SKEW {
        report.problem(what, format!("{text}: {advice}"));
    } else if apart > WARNING_SKEW {
        report.warn(what, format!("{text}: {advice}"));
    } else {
        report.ok(what, text);
    }
}

/// Checks that the URL for clients is plausible, and that it answers.
pub(super) async fn public_url(
    config: &Config,
    is_running: bool,
    clock: &dyn Clock,
    report: &mut DoctorReport,
) {
    let what = "public URL";
    let bound = config.http.bind;
    let url = config.http.public_url(bound);
    if let Some(doubt) = doubt(config, &url, bound) {
        report.warn(what, doubt);
    } else {
        report.ok(what, url.as_str());
    }
    if bound.port() == 0 && !config.http.is_url_configured() {
        return report.ok("reachable", "not checked: the port is chosen at the start");
    }
    let answered = if url.scheme() == "https" {
        // `doctor` speaks no TLS, so it only checks the connection.
        let said = |()| {
            format!(
                "{url} accepts connections; TLS is not checked: `curl --head {url}alive` answers 200 if the service \
                     is reachable"
            )
        };
        let unreachable = |why| format!("{url} cannot be reached from here ({why})");
        connects(&url).await.map(said).map_err(unreachable)
    } else {
        answers(&url, report, clock).await
    };
    let what = "reachable";
    match answered {
        Ok(text) => report.ok(what, text),
        Err(_) if !is_running => {
            let text = format!("{url} does not answer, and no service is running here");
            report.ok(what, text);
        }
        Err(error) => report.warn(
            what,
            format!(
                "{error}: if clients cannot reach it either, correct WORKSPACE_HTTP__PUBLIC_URL or the proxy, which has to \
                 hand requests to {bound}"
            ),
        ),
    }
}

/// Whether the service answers there. Also compares its clock.
async fn answers(
    url: &Url,
    report: &mut DoctorReport,
    clock: &dyn Clock,
) -> Result<String, String> {
    let mut asked = url.clone();
    asked.set_path("/alive");
    let answer = compose::probe(asked.clone(), CONNECT_TIMEOUT).await;
    let answer =
        answer.map_err(|error| format!("{asked} cannot be reached from here ({error})"))?;
    if answer.status != 200 {
        return Err(format!("{asked} answers {}", answer.status));
    }
    if let Some(date) = answer.date.as_deref().and_then(instant) {
        skew("clock of the public URL", date, clock.now(), report);
    }
    Ok(format!("{asked} answers"))
}

/// Whether the port accepts a connection; otherwise why not.
pub(super) async fn connects(url: &Url) -> Result<(), String> {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let port = url.port_or_known_default().unwrap_or(443);
    let connected = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect((host, port))).await;
    connected
        .map_err(|_| format!("no answer in {} s", CONNECT_TIMEOUT.as_secs()))?
        .map_err(|error| error.to_string())?;
    Ok(())
}

/// The time of a `Date` header, which has a resolution of a second.
fn instant(text: &str) -> Option<Timestamp> {
    let read = DateTime::parse_from_rfc2822(text).ok()?;
    Some(Timestamp::new(read.to_utc()).plus(Duration::from_millis(500)))
}

fn doubt(config: &Config, url: &Url, bound: SocketAddr) -> Option<String> {
    let advice = "set WORKSPACE_HTTP__PUBLIC_URL to the URL that clients use";
    if !config.http.is_url_configured() && !bound.ip().is_loopback() {
        return Some(format!("{url} is only a guess from {bound}: {advice}"));
    }
    if !matches!(url.scheme(), "http" | "https") {
        return Some(format!("{url} is not an HTTP URL: {advice}"));
    }
    let is_local = match url.host() {
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        None => false,
    };
    if url.scheme() == "http" && !is_local && config.auth.mode == AuthModeSetting::ApiKey {
        return Some(format!(
            "{url} is not encrypted: API keys are sent in plain text. Terminate TLS in a proxy, and {advice}"
        ));
    }
    config.http.doubt()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doubted(bind: &str, url: &str) -> Option<String> {
        let variables = [
            ("HOME".into(), "/home/someone".into()),
            ("WORKSPACE_HTTP__BIND".into(), bind.into()),
            ("WORKSPACE_HTTP__PUBLIC_URL".into(), url.into()),
        ];
        let config = Config::load(None, &variables).unwrap();
        let bound = config.http.bind;
        doubt(&config, &config.http.public_url(bound), bound)
    }

    #[test]
    fn a_url_that_clients_cannot_mean_is_doubted() {
        for (bind, url, part) in [
            ("0.0.0.0:3000", "", Some("only a guess")),
            ("127.0.0.1:3000", "", None),
            (
                "0.0.0.0:3000",
                "https://a.example.org",
                Some("none is trusted"),
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
                Some("none is trusted"),
            ),
        ] {
            let doubt = doubted(bind, url);
            match part {
                None => assert_eq!(doubt, None, "{url}"),
                Some(part) => assert!(doubt.unwrap().contains(part), "{url}"),
            }
        }
    }

    #[test]
    fn a_large_clock_skew_is_a_problem() {
        let at = |seconds: i64| Timestamp::from_micros(1_795_251_552_000_000 + seconds * 1_000_000);
        for (seconds, level) in [
            (0, "ok"),
            (-2, "ok"),
            (5, "warning"),
            (-5, "warning"),
            (60, "problem"),
        ] {
            let mut report = DoctorReport::default();
            skew("clock", at(seconds), at(0), &mut report);
            assert!(report.shown(false).starts_with(level), "{seconds}");
        }
        let read = instant("Sat, 21 Nov 2026 08:59:12 GMT").unwrap();
        assert_eq!(read, at(0).plus(Duration::from_millis(500)));
    }
}
