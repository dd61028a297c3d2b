//! Checks at the end: the state matches the acknowledgements, and after deletion no resource remains.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};

use acceptance::engine::Container;
use acceptance::{Engine, Sandboxing, Service};
use reqwest::Method;
use serde_json::Value;

use crate::sandbox_life::{DesiredState, SandboxLife};
use crate::soak_client::{SoakClient, SoakOutcome};
use crate::user_loop::{SoakUser, settle};

/// Deadline for background work of the service, such as the reconciler, and the removal of an idle network.
const RECONCILE_TIMEOUT: Duration = Duration::from_secs(90);
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Compares the sandboxes that were not deleted with what users see and with the engine.
pub(crate) async fn compare(
    service: &Service,
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
    let (engine, instance) = engine_and_instance(service)?;
    let started_at = Instant::now();
    for life in &mut kept {
        loop {
            let containers = engine.containers_of(&instance);
            let status = status(client, life).await?;
            let Err(difference) = check_containers(&status, &life.id, &containers) else {
                break;
            };
            if started_at.elapsed() > RECONCILE_TIMEOUT {
                return Err(life.failure(difference));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
    let clients: Vec<_> = users.iter().map(|user| &user.client).collect();
    service.assert_no_orphans(&clients).await;
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

/// Checks that a RUNNING sandbox has one running container, and others have none.
fn check_containers(status: &str, id: &str, containers: &[Container]) -> Result<(), String> {
    let own = containers
        .iter()
        .filter(|container| container.sandbox == id);
    let (up, down): (Vec<_>, Vec<_>) = own.partition(|container| container.is_up());
    match (status, up.len(), down.len()) {
        ("RUNNING", 1, 0) | ("PAUSED", 0, 1) | ("PAUSED" | "MISSING", 0, 0) => Ok(()),
        _ => Err(format!(
            "it is {status}, and its containers are {up:?} {down:?}"
        )),
    }
}

/// Deletes all sandboxes, checks that their capacity is free, and checks that no resource remains.
pub(crate) async fn assert_nothing_left(
    service: &mut Service,
    users: &[SoakUser],
    client: &SoakClient,
) -> Result<(), String> {
    delete_all(users, client).await?;
    wait_for_no_rows(service).await?;
    check_free_capacity(service, users, client).await?;
    delete_all(users, client).await?;
    wait_for_no_rows(service).await?;
    let (engine, instance) = engine_and_instance(service)?;
    until("removal of all containers, volumes and networks", || {
        let containers = engine.containers_of(&instance);
        let volumes = engine.volumes_of(&instance);
        let networks = engine.networks_of(&instance);
        let is_empty = containers.is_empty() && volumes.is_empty() && networks.is_empty();
        (!is_empty).then(|| format!("{containers:?} {volumes:?} {networks:?}"))
    })
    .await?;
    until("removal of the rules about the metadata address", || {
        // Without permission there are no rules.
        let rules = Command::new("iptables").args(["-w", "10", "-S"]).output();
        let rules = String::from_utf8_lossy(&rules.ok()?.stdout).into_owned();
        let own: Vec<&str> = rules
            .lines()
            .filter(|rule| rule.contains(&instance))
            .collect();
        (!own.is_empty()).then(|| own.join("\n"))
    })
    .await
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
    service: &mut Service,
    users: &[SoakUser],
    client: &SoakClient,
) -> Result<(), String> {
    let all = (users.len() - 1).to_string();
    service.set_variable("WORKSPACE_SANDBOX__MAX_RUNNING_PER_USER", "1");
    service.set_variable("WORKSPACE_SANDBOX__MAX_RUNNING", &all);
    service.restart().await;
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
async fn wait_for_no_rows(service: &Service) -> Result<(), String> {
    until("empty table of sandboxes", || {
        let count = service.query("select count(*) from sandboxes");
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

fn engine_and_instance(service: &Service) -> Result<(Engine, String), String> {
    match (service.sandboxing(), service.instance()) {
        (Sandboxing::Docker(engine), Some(instance)) => Ok((engine.clone(), instance)),
        _ => Err("the service runs no containers".to_owned()),
    }
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
