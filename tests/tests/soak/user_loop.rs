//! One thing after the other that a user does with a few sandboxes.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use acceptance::Client;
use reqwest::Method;
use tokio::sync::Mutex;

use crate::sandbox_life::{DesiredState, SandboxLife};
use crate::seeded_random::SeededRandom;
use crate::soak_client::{SoakAnswer, SoakClient};

/// How many sandboxes a lane has at once (and now and then one more, when a start was cut off and came to be all the same).
pub(crate) const MAX_CONCURRENT: usize = 2;
/// Most pauses, resumes and looks in a life.
const MAX_STEPS: usize = 8;
/// Until a sandbox is what it was to become. Kills begin it anew.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(180);
const POLL_INTERVAL: Duration = Duration::from_millis(100);
const START: &str = "/api/v1/sandboxes";

/// One user, in several lanes.
pub(crate) struct SoakUser {
    pub(crate) client: Client,
    /// The sandboxes that are known, held while one is started: what else is in the list then comes from a request that was
    /// cut off.
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

    /// Those that were not deleted.
    pub(crate) fn into_lives(self) -> Vec<SandboxLife> {
        self.lives
    }

    /// Does one thing. Returns how many lives have begun or ended by it; `None` when there is nothing more to do: the last
    /// sandbox of a lane is kept.
    pub(crate) async fn step(&mut self) -> Result<Option<usize>, String> {
        let has_room = self.lives.len() < MAX_CONCURRENT;
        if self.to_start > 0 && has_room && (self.lives.is_empty() || self.dice.roll(2) == 0) {
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
            self.act(at, DesiredState::Deleted).await?;
            if self.lives[at].is_over() {
                self.lives.swap_remove(at);
                return Ok(Some(1));
            }
            return Ok(Some(0));
        }
        life.steps -= 1;
        let runs = life.can_be(DesiredState::Running);
        match self.dice.roll(10) {
            0..=4 => self.settle(at).await?,
            // Once more what is so already.
            5 if runs => self.act(at, DesiredState::Running).await?,
            5 => self.act(at, DesiredState::Paused).await?,
            _ if runs => self.act(at, DesiredState::Paused).await?,
            _ => self.act(at, DesiredState::Running).await?,
        }
        Ok(Some(0))
    }

    fn begin(&mut self, id: &str, how: &SoakAnswer) {
        let steps = self.dice.roll(MAX_STEPS + 1);
        let mut life = SandboxLife::new(id, self.user.client.key(), steps);
        life.note(self.client.elapsed(), format!("started: {how}"));
        self.lives.push(life);
    }

    /// Starts one; every other request carries a key, with which it may be sent as often as one likes.
    async fn start(&mut self) -> Result<(), String> {
        let key = self.user.client.key();
        let mut known = self.user.known.lock().await;
        let with_key = self.dice.roll(2) == 0;
        self.started += 1;
        let repeatable = format!("{:016x}-{}", self.dice.roll(usize::MAX), self.started);
        let repeatable = with_key.then_some(repeatable.as_str());
        let (mut cut, tries) = (0, if with_key { 10 } else { 2 });
        let mut id = None;
        while id.is_none() && cut < tries {
            let answer = self.client.ask(key, &Method::POST, START, repeatable).await;
            match &answer {
                SoakAnswer::Said(200..=299, body) => {
                    let new = body["id"].as_str().unwrap_or_default().to_owned();
                    if !known.insert(new.clone()) {
                        return Err(format!(
                            "a start was answered with an old sandbox: {answer}"
                        ));
                    }
                    self.begin(&new, &answer);
                    id = Some(new);
                }
                SoakAnswer::Cut(_) => {
                    cut += 1;
                    self.client.until_up().await?;
                }
                SoakAnswer::Said(..) => return Err(format!("a start was refused: {answer}")),
            }
        }
        if with_key && id.is_none() {
            return Err("a start with a key was cut off ten times".to_owned());
        }
        if cut == 0 {
            return Ok(());
        }
        let list = self
            .client
            .read(key, "/api/v1/sandboxes/search?limit=100")
            .await?;
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let ids = items.iter().filter_map(|it| it["id"].as_str());
        let found: Vec<String> = ids
            .filter(|id| !known.contains(*id))
            .map(str::to_owned)
            .collect();
        // With a key there is the one that was answered. Without, each request that was cut off may have made one.
        let most = if with_key { 0 } else { cut };
        if found.len() > most {
            return Err(format!(
                "{} sandboxes came of {cut} starts that were cut off (with a key: {with_key}): {found:?}",
                found.len()
            ));
        }
        for id in found {
            known.insert(id.clone());
            self.begin(&id, &SoakAnswer::Cut("found in the list".to_owned()));
        }
        Ok(())
    }

    /// Says a wish, once more when it was cut off, and looks whether it is followed.
    async fn act(&mut self, at: usize, wish: DesiredState) -> Result<(), String> {
        let life = &mut self.lives[at];
        let (method, path) = wish.request(&life.id);
        for _ in 0..2 {
            let answer = self.client.ask(&life.key, &method, &path, None).await;
            life.note(self.client.elapsed(), format!("{wish:?}: {answer}"));
            match &answer {
                SoakAnswer::Said(200..=299, _) => {
                    life.is(wish);
                    return self.look(at).await.map(drop);
                }
                SoakAnswer::Said(404, _) if life.can_be(DesiredState::Deleted) => {
                    life.is(DesiredState::Deleted);
                    return Ok(());
                }
                // It takes longer, and goes on.
                SoakAnswer::Said(503, _) => {
                    life.may_be(wish);
                    return Ok(());
                }
                SoakAnswer::Said(..) => return Err(life.wrong(format!("{wish:?} was refused"))),
                SoakAnswer::Cut(_) => {
                    life.may_be(wish);
                    self.client.until_up().await?;
                }
            }
        }
        Ok(())
    }

    /// Compares it with its model. Whether it has settled.
    async fn look(&mut self, at: usize) -> Result<bool, String> {
        look(self.client, &mut self.lives[at]).await
    }

    async fn settle(&mut self, at: usize) -> Result<(), String> {
        settle(self.client, &mut self.lives[at]).await?;
        if self.lives[at].is_over() {
            self.lives[at].steps = 0;
        }
        Ok(())
    }
}

async fn look(client: &SoakClient, life: &mut SandboxLife) -> Result<bool, String> {
    let path = format!("{START}?id={}", life.id);
    let seen = client.read(&life.key, &path).await?;
    let seen = &seen[0];
    let has_run = life.has_run;
    let fits = life.fits(seen);
    if life.has_run && !has_run {
        client.runs();
    }
    if !fits {
        life.note(client.elapsed(), format!("seen: {seen}"));
        return Err(life.wrong("it is not what it should be"));
    }
    if seen.is_null() {
        life.is(DesiredState::Deleted);
    }
    Ok(seen["status"] != "STARTING")
}

/// Waits until it is what it was to become.
pub(crate) async fn settle(client: &SoakClient, life: &mut SandboxLife) -> Result<(), String> {
    let began = Instant::now();
    while !look(client, life).await? {
        if began.elapsed() > SETTLE_TIMEOUT {
            life.note(client.elapsed(), "still STARTING");
            return Err(life.wrong(format!("it has not settled in {SETTLE_TIMEOUT:?}")));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    life.note(client.elapsed(), "settled");
    Ok(())
}
