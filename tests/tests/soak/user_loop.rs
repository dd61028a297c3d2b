//! The loop in which a user changes a few sandboxes.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use acceptance::Client;
use reqwest::Method;
use tokio::sync::Mutex;

use crate::sandbox_life::{DesiredState, SandboxLife};
use crate::seeded_random::SeededRandom;
use crate::soak_client::{SoakClient, SoakOutcome};

/// Sandboxes of a loop at once, sometimes one more when a start without a response was executed.
pub(crate) const MAX_CONCURRENT: usize = 2;
/// Maximum number of pauses, resumes and checks of a sandbox.
const MAX_STEPS: usize = 8;
/// Deadline for a sandbox to reach its desired state. Kills delay that.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(180);
const POLL_INTERVAL: Duration = Duration::from_millis(100);
const START: &str = "/api/v1/sandboxes";

/// A user of several loops.
pub(crate) struct SoakUser {
    pub(crate) client: Client,
    /// The known sandboxes. Locked during a start, so that an unknown sandbox in the list comes from a request without a
    /// response.
    known: Mutex<BTreeSet<String>>,
}

impl SoakUser {
    pub(crate) fn new(client: Client) -> Self {
        let known = Mutex::default();
        Self { client, known }
    }
}

pub(crate) struct UserLoop<'a> {
    client: &'a SoakClient,
    user: &'a SoakUser,
    dice: SeededRandom,
    to_start: usize,
    started: usize,
    lives: Vec<SandboxLife>,
}

impl<'a> UserLoop<'a> {
    pub(crate) fn new(
        client: &'a SoakClient,
        user: &'a SoakUser,
        dice: SeededRandom,
        share: usize,
    ) -> Self {
        Self {
            client,
            user,
            dice,
            to_start: share,
            started: 0,
            lives: Vec::new(),
        }
    }

    /// The sandboxes that were not deleted.
    pub(crate) fn into_lives(self) -> Vec<SandboxLife> {
        self.lives
    }

    /// Makes one change. Returns the number of sandboxes that started or ended; `None` at the end. The last sandbox of a loop
    /// is kept.
    pub(crate) async fn step(&mut self) -> Result<Option<usize>, String> {
        let has_capacity = self.lives.len() < MAX_CONCURRENT;
        if self.to_start > 0 && has_capacity && (self.lives.is_empty() || self.dice.roll(2) == 0) {
            self.to_start -= 1;
            self.start().await?;
            return Ok(Some(1));
        }
        let at = self.dice.roll(self.lives.len());
        let is_last = self.to_start == 0 && self.lives.len() <= 1;
        let Some(life) = self.lives.get_mut(at) else {
            return Ok(None);
        };
        if life.steps == 0 && is_last {
            return Ok(None);
        }
        if life.steps == 0 {
            self.request_state(at, DesiredState::Deleted).await?;
            if self.lives[at].is_over() {
                self.lives.swap_remove(at);
                return Ok(Some(1));
            }
            return Ok(Some(0));
        }
        life.steps -= 1;
        let may_run = life.can_be(DesiredState::Running);
        match self.dice.roll(10) {
            0..=4 => self.settle(at).await?,
            // Repeat the present state.
            5 if may_run => self.request_state(at, DesiredState::Running).await?,
            5 => self.request_state(at, DesiredState::Paused).await?,
            _ if may_run => self.request_state(at, DesiredState::Paused).await?,
            _ => self.request_state(at, DesiredState::Running).await?,
        }
        Ok(Some(0))
    }

    fn add_sandbox(&mut self, id: &str, answer: &SoakOutcome) {
        let steps = self.dice.roll(MAX_STEPS + 1);
        let mut life = SandboxLife::new(id, self.user.client.key(), steps);
        life.note(self.client.elapsed(), format!("started: {answer}"));
        self.lives.push(life);
    }

    /// Starts a sandbox. About half of the requests have an `Idempotency-Key`, so that they may be repeated.
    async fn start(&mut self) -> Result<(), String> {
        let key = self.user.client.key();
        let mut known = self.user.known.lock().await;
        let with_key = self.dice.roll(2) == 0;
        self.started += 1;
        let repeatable = format!("{:016x}-{}", self.dice.roll(usize::MAX), self.started);
        let repeatable = with_key.then_some(repeatable.as_str());
        let (mut unanswered, max_attempts) = (0, if with_key { 10 } else { 2 });
        let mut id = None;
        while id.is_none() && unanswered < max_attempts {
            let sent = self.client.send(key, &Method::POST, START, repeatable);
            let answer = sent.await;
            match &answer {
                SoakOutcome::Responded(200..=299, body) => {
                    let new = body["id"].as_str().unwrap_or_default().to_owned();
                    if !known.insert(new.clone()) {
                        return Err(format!("a start returned an existing sandbox: {answer}"));
                    }
                    self.add_sandbox(&new, &answer);
                    id = Some(new);
                }
                SoakOutcome::NoResponse(_) => {
                    unanswered += 1;
                    self.client.until_up().await?;
                }
                SoakOutcome::Responded(..) => return Err(format!("a start was refused: {answer}")),
            }
        }
        if with_key && id.is_none() {
            return Err("a start with a key got no response in ten attempts".to_owned());
        }
        if unanswered == 0 {
            return Ok(());
        }
        let list = self
            .client
            .read(key, "/api/v1/sandboxes/search?limit=100")
            .await?;
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let ids = items.iter().filter_map(|item| item["id"].as_str());
        let found: Vec<String> = ids
            .filter(|id| !known.contains(*id))
            .map(str::to_owned)
            .collect();
        // Without a key, each request without a response may have created a sandbox.
        let max_unknown = if with_key { 0 } else { unanswered };
        if found.len() > max_unknown {
            return Err(format!(
                "{unanswered} starts without a response (with a key: {with_key}) created {} sandboxes: {found:?}",
                found.len()
            ));
        }
        for id in found {
            known.insert(id.clone());
            self.add_sandbox(
                &id,
                &SoakOutcome::NoResponse("found in the list".to_owned()),
            );
        }
        Ok(())
    }

    /// Requests a state, repeats the request without a response once, and checks the sandbox.
    async fn request_state(&mut self, at: usize, state: DesiredState) -> Result<(), String> {
        let life = &mut self.lives[at];
        let (method, path) = state.request(&life.id);
        for _ in 0..2 {
            let answer = self.client.send(&life.key, &method, &path, None).await;
            life.note(self.client.elapsed(), format!("{state:?}: {answer}"));
            match &answer {
                SoakOutcome::Responded(200..=299, _) => {
                    life.acknowledge(state);
                    return self.check(at).await.map(drop);
                }
                SoakOutcome::Responded(404, _) if life.can_be(DesiredState::Deleted) => {
                    life.acknowledge(DesiredState::Deleted);
                    return Ok(());
                }
                // The service continues in the background.
                SoakOutcome::Responded(503, _) => {
                    life.add_possible(state);
                    return Ok(());
                }
                SoakOutcome::Responded(..) => {
                    return Err(life.failure(format!("{state:?} was refused")));
                }
                SoakOutcome::NoResponse(_) => {
                    life.add_possible(state);
                    self.client.until_up().await?;
                }
            }
        }
        Ok(())
    }

    /// Compares a sandbox with its model. Returns whether it has left STARTING.
    async fn check(&mut self, at: usize) -> Result<bool, String> {
        check(self.client, &mut self.lives[at]).await
    }

    async fn settle(&mut self, at: usize) -> Result<(), String> {
        settle(self.client, &mut self.lives[at]).await?;
        if self.lives[at].is_over() {
            self.lives[at].steps = 0;
        }
        Ok(())
    }
}

async fn check(client: &SoakClient, life: &mut SandboxLife) -> Result<bool, String> {
    let path = format!("{START}?id={}", life.id);
    let response = client.read(&life.key, &path).await?;
    let response = &response[0];
    let has_run = life.has_run;
    let fits = life.fits(response);
    if life.has_run && !has_run {
        client.count_running();
    }
    if !fits {
        life.note(client.elapsed(), format!("response: {response}"));
        return Err(life.failure("the response contradicts the acknowledged requests"));
    }
    if response.is_null() {
        life.acknowledge(DesiredState::Deleted);
    }
    Ok(response["status"] != "STARTING")
}

/// Waits until the sandbox has left STARTING.
pub(crate) async fn settle(client: &SoakClient, life: &mut SandboxLife) -> Result<(), String> {
    let started_at = Instant::now();
    while !check(client, life).await? {
        if started_at.elapsed() > SETTLE_TIMEOUT {
            life.note(client.elapsed(), "still STARTING");
            return Err(life.failure(format!("still STARTING after {SETTLE_TIMEOUT:?}")));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    life.note(client.elapsed(), "settled");
    Ok(())
}
