//! Checks at the end: the state matches the acknowledgements, and after deletion no resource remains.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use acceptance::Service;
use reqwest::Method;
use serde_json::Value;

use crate::place::{Place, Unit};
use crate::sandbox_life::{DesiredState, SandboxLife};
use crate::soak_client::{SoakClient, SoakOutcome};
use crate::user_loop::{SoakUser, settle};

/// Deadline for background work of the service, such as the reconciler, and the removal of an idle network.
const RECONCILE_TIMEOUT: Duration = Duration::from_secs(90);
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Compares the sandboxes that were not deleted with what users see and with what runs.
pub(crate) async fn compare(
    services: &[Service],
    place: &Place,
    users: &[SoakUser],
    client: &SoakClient,
    mut kept: Vec<SandboxLife>,
) -> Result<(), String> {
    for life in &mut kept {
        settle(client, life).await?;
    }
    kept.retain(|life| !life.is_over());
    for user in users {
        let key = user.client.key();
        let own = kept.iter().filter(|life| life.key == key);
        let expected: BTreeSet<String> = own.map(|life| life.id.clone()).collect();
        let seen = ids(client, key).await?;
        if seen != expected {
            return Err(format!(
                "a user has the sandboxes {seen:?} instead of {expected:?}"
            ));
        }
    }
    let started_at = Instant::now();
    for life in &mut kept {
        loop {
            let units = place.units();
            let status = status(client, life).await?;
            let Err(difference) = check_units(&status, &life.id, &units) else {
                break;
            };
            if started_at.elapsed() > RECONCILE_TIMEOUT {
                return Err(life.failure(difference));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
    let clients: Vec<_> = users.iter().map(|user| &user.client).collect();
    for service in services {
        service.assert_no_orphans(&clients).await;
    }
    Ok(())
}

async fn status(client: &SoakClient, life: &mut SandboxLife) -> Result<String, String> {
    let path = format!("/api/v1/sandboxes?id={}", life.id);
    let seen = client.read(&life.key, &path).await?;
    if !life.fits(&seen[0]) {
        return Err(life.failure(format!("it changed without a request: {seen}")));
    }
    Ok(seen[0]["status"].as_str().unwrap_or_default().to_owned())
}

/// Checks that a RUNNING sandbox has one running container or pod, and others have none.
fn check_units(status: &str, id: &str, units: &[Unit]) -> Result<(), String> {
    let own = units.iter().filter(|unit| unit.sandbox == id);
    let (up, down): (Vec<_>, Vec<_>) = own.partition(|unit| unit.is_up);
    match (status, up.len(), down.len()) {
        ("RUNNING", 1, 0) | ("PAUSED", 0, 1) | ("PAUSED" | "MISSING", 0, 0) => Ok(()),
        _ => Err(format!(
            "it is {status}, and {} run and {} do not",
            up.len(),
            down.len()
        )),
    }
}

/// Deletes all sandboxes, checks that their capacity is free, and checks that no resource remains.
pub(crate) async fn assert_nothing_left(
    services: &mut [Service],
    place: &Place,
    users: &[SoakUser],
    client: &SoakClient,
) -> Result<(), String> {
    delete_all(users, client).await?;
    wait_for_no_rows(services, place).await?;
    check_free_capacity(services, users, client).await?;
    delete_all(users, client).await?;
    wait_for_no_rows(services, place).await?;
    until("removal of all that sandboxes have", || place.left()).await
}

async fn delete_all(users: &[SoakUser], client: &SoakClient) -> Result<(), String> {
    for user in users {
        let key = user.client.key();
        for id in ids(client, key).await? {
            let (method, path) = DesiredState::Deleted.request(&id);
            let answer = client.send(key, &method, &path, None).await;
            if !matches!(answer, SoakOutcome::Responded(200..=299, _)) {
                return Err(format!("deleting {id}: {answer}"));
            }
        }
    }
    Ok(())
}

/// Sets caps of one sandbox per user, and of one fewer than there are users.
async fn check_free_capacity(
    services: &mut [Service],
    users: &[SoakUser],
    client: &SoakClient,
) -> Result<(), String> {
    let all = (users.len() - 1).to_string();
    for service in services {
        service.set_variable("WORKSPACE_SANDBOX__MAX_RUNNING_PER_USER", "1");
        service.set_variable("WORKSPACE_SANDBOX__MAX_RUNNING", &all);
        service.restart().await;
    }
    let start = async |user: &SoakUser| {
        client
            .send(user.client.key(), &Method::POST, "/api/v1/sandboxes", None)
            .await
    };
    for (number, user) in users.iter().enumerate() {
        let is_last = number + 1 == users.len();
        match start(user).await {
            SoakOutcome::Responded(200..=299, _) if !is_last => {}
            SoakOutcome::Responded(429, _) if is_last => {}
            other => return Err(format!("start {number} with a cap of {all}: {other}")),
        }
    }
    match start(&users[0]).await {
        SoakOutcome::Responded(429, _) => Ok(()),
        other => Err(format!("a second start with a cap of one: {other}")),
    }
}

/// Waits until the table of sandboxes, which contains rows that the API hides, is empty.
async fn wait_for_no_rows(services: &[Service], place: &Place) -> Result<(), String> {
    until("empty table of sandboxes", || {
        let count = place.rows(&services[0]);
        (count != "0").then_some(count)
    })
    .await
}

async fn ids(client: &SoakClient, key: &str) -> Result<BTreeSet<String>, String> {
    let list = client
        .read(key, "/api/v1/sandboxes/search?limit=100")
        .await?;
    let items = list["items"].as_array().into_iter().flatten();
    let ids = items.filter_map(|item: &Value| item["id"].as_str());
    Ok(ids.map(str::to_owned).collect())
}

/// Polls until there is no obstacle.
async fn until(what: &str, mut obstacle: impl FnMut() -> Option<String>) -> Result<(), String> {
    let started_at = Instant::now();
    while let Some(left) = obstacle() {
        if started_at.elapsed() > RECONCILE_TIMEOUT {
            return Err(format!("no {what} within {RECONCILE_TIMEOUT:?}: {left}"));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}
