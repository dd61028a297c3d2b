//! After the storm: what is there is what users were told, and once they have deleted it, nothing is.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};

use acceptance::engine::Container;
use acceptance::{Engine, Sandboxing, Service};
use reqwest::Method;
use serde_json::Value;

use crate::sandbox_life::{DesiredState, SandboxLife};
use crate::soak_client::{SoakAnswer, SoakClient};
use crate::user_loop::{SoakUser, settle};

/// Everything that the service does by itself sooner or later: a pass of its keeper, the network of sandboxes that is
/// removed when it was idle for a while.
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
            return Err(format!("a user sees {seen:?}, and should see {expected:?}"));
        }
    }
    let (engine, instance) = place(service)?;
    let began = Instant::now();
    for life in &mut kept {
        loop {
            let containers = engine.containers_of(&instance);
            let status = status(client, life).await?;
            let Err(difference) = agree(&status, &life.id, &containers) else {
                break;
            };
            if began.elapsed() > RECONCILE_TIMEOUT {
                return Err(life.wrong(difference));
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
        return Err(life.wrong(format!("it changed by itself: {seen}")));
    }
    Ok(seen[0]["status"].as_str().unwrap_or_default().to_owned())
}

/// Whether a RUNNING sandbox has one container that is up, and any other none.
fn agree(status: &str, id: &str, containers: &[Container]) -> Result<(), String> {
    let of = containers.iter().filter(|it| it.sandbox == id);
    let (up, down): (Vec<_>, Vec<_>) = of.partition(|it| it.is_up());
    match (status, up.len(), down.len()) {
        ("RUNNING", 1, 0) | ("PAUSED", 0, 1) | ("PAUSED" | "MISSING", 0, 0) => Ok(()),
        _ => Err(format!(
            "it is {status}, and its containers are {up:?} {down:?}"
        )),
    }
}

/// Deletes everything, looks whether capacity is free, deletes that, too, and looks what is left anywhere.
pub(crate) async fn nothing_is_left(
    service: &mut Service,
    users: &[SoakUser],
    client: &SoakClient,
) -> Result<(), String> {
    delete_all(users, client).await?;
    no_rows(service).await?;
    capacity_is_free(service, users, client).await?;
    delete_all(users, client).await?;
    no_rows(service).await?;
    let (engine, instance) = place(service)?;
    until("the end of all containers, volumes and networks", || {
        let containers = engine.containers_of(&instance);
        let volumes = engine.volumes_of(&instance);
        let networks = engine.networks_of(&instance);
        let is_empty = containers.is_empty() && volumes.is_empty() && networks.is_empty();
        (!is_empty).then(|| format!("{containers:?} {volumes:?} {networks:?}"))
    })
    .await?;
    until("the end of the rules about the metadata address", || {
        // Without rights there are none, and nothing is listed.
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
            let answer = client.ask(key, &method, &path, None).await;
            if !matches!(answer, SoakAnswer::Said(200..=299, _)) {
                return Err(format!("deleting {id}: {answer}"));
            }
        }
    }
    Ok(())
}

/// With caps of one per user and one too few for all users.
async fn capacity_is_free(
    service: &mut Service,
    users: &[SoakUser],
    client: &SoakClient,
) -> Result<(), String> {
    let all = (users.len() - 1).to_string();
    service.set("WORKSPACE_SANDBOX__MAX_RUNNING_PER_USER", "1");
    service.set("WORKSPACE_SANDBOX__MAX_RUNNING", &all);
    service.restart().await;
    let start = async |user: &SoakUser| {
        client
            .ask(user.client.key(), &Method::POST, "/api/v1/sandboxes", None)
            .await
    };
    for (number, user) in users.iter().enumerate() {
        let is_last = number + 1 == users.len();
        match start(user).await {
            SoakAnswer::Said(200..=299, _) if !is_last => {}
            SoakAnswer::Said(429, _) if is_last => {}
            other => return Err(format!("start {number} with a cap of {all}: {other}")),
        }
    }
    match start(&users[0]).await {
        SoakAnswer::Said(429, _) => Ok(()),
        other => Err(format!("a second start with a cap of one: {other}")),
    }
}

/// The service's own table, which users do not see all of.
async fn no_rows(service: &Service) -> Result<(), String> {
    const COUNT: &str = "
import sqlite3, sys
db = sqlite3.connect('file:' + sys.argv[1] + '?mode=ro', uri=True)
print(db.execute('select count(*) from sandboxes').fetchone()[0])
";
    let database = service.data().join("agent-workspace.db");
    until("the end of all rows", || {
        let mut count = Command::new("python3");
        count.args(["-c", COUNT]).arg(&database);
        let said = match count.output() {
            Ok(output) => [output.stdout, output.stderr].concat(),
            Err(error) => return Some(format!("python3 cannot be run: {error}")),
        };
        let said = String::from_utf8_lossy(&said).trim().to_owned();
        (said != "0").then_some(said)
    })
    .await
}

async fn ids(client: &SoakClient, key: &str) -> Result<BTreeSet<String>, String> {
    let list = client
        .read(key, "/api/v1/sandboxes/search?limit=100")
        .await?;
    let items = list["items"].as_array().into_iter().flatten();
    let ids = items.filter_map(|it: &Value| it["id"].as_str());
    Ok(ids.map(str::to_owned).collect())
}

fn place(service: &Service) -> Result<(Engine, String), String> {
    match (service.sandboxing(), service.instance()) {
        (Sandboxing::Docker(engine), Some(instance)) => Ok((engine.clone(), instance)),
        _ => Err("the service runs no containers".to_owned()),
    }
}

/// Asks until nothing is in the way any more.
async fn until(what: &str, mut in_the_way: impl FnMut() -> Option<String>) -> Result<(), String> {
    let began = Instant::now();
    while let Some(left) = in_the_way() {
        if began.elapsed() > RECONCILE_TIMEOUT {
            return Err(format!(
                "waited {RECONCILE_TIMEOUT:?} in vain for {what}: {left}"
            ));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(())
}
