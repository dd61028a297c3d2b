//! Checks of `doctor`: whether a user has chosen a model, and whether its endpoint is reachable. The check only opens a
//! connection, and sends no key.

use std::collections::BTreeSet;
use std::sync::Arc;

use application::settings::{SettingsService, llm_endpoint};
use domain::clock::Clock;
use domain::id::UserId;
use domain::user::settings::SettingsRepository;
use futures::future::join_all;
use http_api::CONTAINER_HOST_NAMES;
use keyring::Keyring;
use url::Url;

use super::DoctorReport;
use super::network::can_connect;

/// Users whose settings are read.
const MAX_USERS: usize = 50;
const MAX_ENDPOINTS: usize = 5;

/// Models with their configured base URLs; users of one model may have different ones.
type ModelEndpoints = BTreeSet<(String, Option<String>)>;

pub(super) async fn examine(
    store: Arc<dyn SettingsRepository>,
    keyring: Arc<Keyring>,
    clock: Arc<dyn Clock>,
    users: &BTreeSet<UserId>,
    report: &mut DoctorReport,
) {
    let service = SettingsService::new(store, keyring, clock);
    let mut models = ModelEndpoints::new();
    for user in users.iter().take(MAX_USERS) {
        match service.load(&user.into()).await {
            Ok(Some(settings)) => {
                let model = settings.agent.llm_model().map(str::to_owned);
                let url = settings.agent.llm_base_url().map(str::to_owned);
                models.extend(model.map(|model| (model, url)));
            }
            Ok(None) => {}
            Err(error) => {
                return report.warn("models", format!("cannot read the settings: {error}"));
            }
        }
    }
    check(&models, users.len(), report).await;
}

async fn check(models: &ModelEndpoints, user_count: usize, report: &mut DoctorReport) {
    if models.is_empty() {
        let found = if user_count > MAX_USERS {
            format!(
                "none of the first {MAX_USERS} of {user_count} users has chosen a model yet, so they cannot start \
                 conversations"
            )
        } else {
            "no user has chosen a model yet, so no conversation can start".to_owned()
        };
        let advice =
            "set a model and its API key in the settings (POST /api/v1/settings, or a front end)";
        return report.warn("models", format!("{found}: {advice}"));
    }
    let names: BTreeSet<&String> = models.iter().map(|(model, _)| model).collect();
    report.ok("models", format!("{} chosen", names.len()));
    let endpoints: BTreeSet<Url> = models
        .iter()
        .filter_map(|(model, url)| llm_endpoint(model, url.as_deref()))
        .collect();
    let checks = endpoints.iter().take(MAX_ENDPOINTS).map(|url| async {
        let result = if is_container_host(url) {
            None
        } else {
            Some(can_connect(url).await)
        };
        (url.origin().ascii_serialization(), result)
    });
    for (origin, result) in join_all(checks).await {
        let what = "model endpoint";
        match result {
            None => report.ok(what, format!("{origin}: a name that resolves only in sandboxes")),
            Some(Ok(())) => report.ok(what, format!("{origin} accepts connections")),
            Some(Err(error)) => report.warn(
                what,
                format!(
                    "cannot connect to {origin} from this machine ({error}): if sandboxes cannot reach it either, conversations \
                         fail at their first step. Check the name, the firewall, and the base URL in the settings"
                ),
            ),
        }
    }
}

/// Whether the host name has a meaning only inside a container.
fn is_container_host(url: &Url) -> bool {
    url.host_str()
        .is_some_and(|name| CONTAINER_HOST_NAMES.contains(&name))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn an_unreachable_endpoint_is_a_warning() {
        let open = TcpListener::bind("127.0.0.1:0").unwrap();
        let closed = TcpListener::bind("127.0.0.1:0").unwrap();
        let (reachable, unreachable) = (open.local_addr().unwrap(), closed.local_addr().unwrap());
        drop(closed);
        for (url, level, part) in [
            (
                format!("http://{reachable}/v1"),
                "ok",
                "accepts connections",
            ),
            (
                format!("http://{unreachable}/v1"),
                "warning",
                "base URL in the settings",
            ),
            (
                "http://no-such-host.invalid/v1".to_owned(),
                "warning",
                "cannot connect",
            ),
            (
                "http://host.docker.internal:8080".to_owned(),
                "ok",
                "only in sandboxes",
            ),
        ] {
            let mut report = DoctorReport::default();
            let models = ModelEndpoints::from([("openai/own".to_owned(), Some(url.clone()))]);
            check(&models, 1, &mut report).await;
            let shown = report.render(false);
            let line = shown.lines().nth(1).unwrap();
            assert!(
                line.starts_with(level) && line.contains(part),
                "{url}: {line}"
            );
        }
        // Two users of one model: both endpoints are checked.
        let mut report = DoctorReport::default();
        let endpoint = |address| ("openai/own".to_owned(), Some(format!("http://{address}")));
        check(
            &ModelEndpoints::from([endpoint(unreachable), endpoint(reachable)]),
            2,
            &mut report,
        )
        .await;
        let shown = report.render(false);
        assert_eq!(shown.matches("model endpoint").count(), 2, "{shown}");
        assert!(shown.contains("1 chosen"), "{shown}");
        for (user_count, text) in [
            (MAX_USERS, "no user has chosen"),
            (MAX_USERS + 1, "none of the first 50 of 51 users has chosen"),
        ] {
            let mut report = DoctorReport::default();
            check(&ModelEndpoints::new(), user_count, &mut report).await;
            let expected = format!("warning  models: {text}");
            assert!(report.render(false).starts_with(&expected), "{user_count}");
        }
    }
}
