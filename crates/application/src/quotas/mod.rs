//! Quotas: how much each user may store, and how fast each sandbox may report.
//!
//! Usage is a sum of counters in the store. It is not queried for each report: this process caches it for a while and
//! adds what it stores itself, so an append needs no further query. Several processes see each other's share only
//! after the next query, so a quota is a bound with some tolerance.
//!
//! * Requests of users are never refused because of cached usage alone: it is queried again first.
//! * Reports of sandboxes are not refused for stored data. Their events are shortened, and in the end dropped. The
//!   status, title and metrics of their conversation are kept (see [`EventStorage`]).

mod report_rate;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::error::{ErrorClass, chain};
use domain::event::Event;
use domain::id::{OwnerId, SandboxId};
use domain::json::text_bytes;
use domain::metrics::Counter;
use domain::user::scope::Scope;
use domain::user::secret::MAX_SECRETS_PER_USER;
use domain::user::usage::{EventStorage, Quota, QuotaLimits, Usage, UsageRepository};
use tokio::time::Instant;

use self::report_rate::ReportRate;
use crate::AppError;
use crate::runtime::live_setting::LiveSetting;
use crate::tasks::BackgroundTasks;

/// Lifetime of cached usage within all quotas, and above one.
const USAGE_TTL: Duration = Duration::from_secs(30);
const EXCEEDED_USAGE_TTL: Duration = Duration::from_secs(2);

/// Pause before a user's events are shortened again, after there was nothing left to shorten.
const SHORTENING_INTERVAL: Duration = Duration::from_secs(60);

/// Maximum number of users in the cache. Above this number expired entries are removed, and if there are none, all.
const MAX_USERS: usize = 10_000;

/// A user's usage as it was queried, plus what this process has stored since.
#[derive(Debug, Clone, Copy)]
struct CachedUsage {
    usage: Usage,
    read_at: Instant,
    /// Until then no other task shortens the user's events.
    no_shortening_before: Option<Instant>,
}

/// Checks and counts usage. Cheap to clone.
#[derive(Clone)]
pub struct Quotas(Arc<QuotasShared>);

struct QuotasShared {
    usage: Arc<dyn UsageRepository>,
    limits: LiveSetting<QuotaLimits>,
    tasks: BackgroundTasks,
    users: Mutex<HashMap<OwnerId, CachedUsage>>,
    report_rate: ReportRate,
    refusals: [Counter; Quota::ALL.len()],
    rate_limited_reports: Counter,
    shortened_events: Counter,
    discarded_events: Counter,
}

/// Events in the form in which they are stored.
#[derive(Debug)]
pub(crate) struct AdmittedEvents {
    pub(crate) events: Vec<Event>,
    bytes: u64,
}

pub(crate) fn event_bytes(events: &[Event]) -> u64 {
    events.iter().map(|it| text_bytes(&it.body) as u64).sum()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsageReport {
    pub usage: Usage,
    pub limits: QuotaLimits,
}

/// Metrics of quotas since the start of this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaCounts {
    pub refusals: [(&'static str, u64); Quota::ALL.len()],
    /// Reports that were refused by the report rate.
    pub rate_limited_reports: u64,
    /// Events that were shortened, before or after they were stored.
    pub shortened_events: u64,
    pub discarded_events: u64,
    /// Recently active users above four fifths of a quota, and above a quota.
    pub users: [(&'static str, u64); 2],
}

impl Quotas {
    pub(crate) fn new(
        usage: Arc<dyn UsageRepository>,
        limits: LiveSetting<QuotaLimits>,
        tasks: BackgroundTasks,
    ) -> Self {
        Self(Arc::new(QuotasShared {
            usage,
            limits,
            tasks,
            users: Mutex::default(),
            report_rate: ReportRate::default(),
            refusals: std::array::from_fn(|_| Counter::default()),
            rate_limited_reports: Counter::default(),
            shortened_events: Counter::default(),
            discarded_events: Counter::default(),
        }))
    }

    pub async fn usage(&self, user: &OwnerId) -> Result<UsageReport, AppError> {
        let usage = self.read(&Scope::Owner(user.clone()), user).await?;
        Ok(UsageReport {
            usage,
            limits: self.limits(),
        })
    }

    /// The limits in force, including fixed ones.
    fn limits(&self) -> QuotaLimits {
        let limits = self.0.limits.get();
        let max_secrets = MAX_SECRETS_PER_USER as u64;
        let secrets = limits
            .of(Quota::Secrets)
            .unwrap_or(max_secrets)
            .min(max_secrets);
        limits.with(Quota::Secrets, Some(secrets))
    }

    /// Replaces the quotas. Stored data above the new quotas stays.
    pub(crate) fn set_limits(&self, limits: QuotaLimits) {
        self.0.limits.set(limits);
    }

    /// Refuses a request that would exceed a quota.
    pub(crate) async fn check(
        &self,
        user: &OwnerId,
        additional: &[(Quota, u64)],
    ) -> Result<(), AppError> {
        let limits = self.0.limits.get();
        let is_limited = |(quota, _): &&(Quota, u64)| limits.of(*quota).is_some();
        if !additional.iter().any(|it| is_limited(&it)) {
            return Ok(());
        }
        let exceeded = |usage: &Usage| {
            let mut additional = additional.iter();
            let found = additional.find(|(quota, more)| {
                let limit = limits.of(*quota);
                limit.is_some_and(|limit| usage.of(*quota).saturating_add(*more) > limit)
            });
            found.map(|(quota, _)| *quota)
        };
        if self
            .cached_usage(user)
            .is_some_and(|usage| exceeded(&usage).is_none())
        {
            return Ok(());
        }
        let usage = self.read(&Scope::Owner(user.clone()), user).await?;
        let Some(quota) = exceeded(&usage) else {
            return Ok(());
        };
        self.0.refusals[quota as usize].add(1);
        let limit = limits.of(quota).unwrap_or_default();
        Err(AppError::refused(
            ErrorClass::QuotaExceeded,
            quota_exceeded_message(quota, usage.of(quota), limit),
        ))
    }

    /// Refuses a new conversation above a quota; `request_bytes` is the size of its request.
    pub(crate) async fn check_new_conversation(
        &self,
        user: &OwnerId,
        request_bytes: u64,
    ) -> Result<(), AppError> {
        let wanted = [
            (Quota::Conversations, 1),
            (Quota::Events, 1),
            (Quota::RequestBytes, request_bytes),
        ];
        self.check(user, &wanted).await
    }

    /// Adds stored data to the cached usage.
    pub(crate) fn add_usage(&self, user: &OwnerId, stored: &[(Quota, u64)]) {
        if let Some(known) = self.lock().get_mut(user) {
            for (quota, more) in stored {
                known.usage.add(*quota, *more);
            }
        }
    }

    /// Decides how new events of a user are stored: complete, shortened, or not at all. `bytes` is their size.
    pub(crate) async fn admit(
        &self,
        user: &OwnerId,
        mut events: Vec<Event>,
        bytes: u64,
    ) -> AdmittedEvents {
        let limits = self.0.limits.get();
        let is_limited = [Quota::Events, Quota::EventBytes].map(|it| limits.of(it).is_some());
        if events.is_empty() || is_limited == [false; 2] {
            return AdmittedEvents { events, bytes };
        }
        let Some(usage) = self.usage_for_report(user, limits).await else {
            return AdmittedEvents { events, bytes };
        };
        let storage = limits.event_storage(&usage);
        let limit = limits.of(Quota::EventBytes);
        if limit.is_some_and(|limit| usage.event_bytes >= limit) {
            self.shorten_stored(user);
        }
        let bytes = match storage {
            EventStorage::Complete => bytes,
            EventStorage::Shortened => {
                for event in events.iter_mut().filter(|it| it.is_bulky()) {
                    event.shorten();
                    self.0.shortened_events.add(1);
                }
                event_bytes(&events)
            }
            EventStorage::Stopped => {
                self.0.discarded_events.add(events.len() as u64);
                events.clear();
                0
            }
        };
        AdmittedEvents { events, bytes }
    }

    /// Adds stored events, of which `new` were new. Returns their bytes.
    pub(crate) fn count_stored(
        &self,
        user: &OwnerId,
        admitted: &AdmittedEvents,
        new: usize,
    ) -> u64 {
        let (all, new) = (admitted.events.len().max(1) as u64, new as u64);
        // Which events were new is not known; mostly all are.
        let bytes = admitted.bytes / all * new;
        self.add_usage(user, &[(Quota::Events, new), (Quota::EventBytes, bytes)]);
        bytes
    }

    /// Whether a sandbox is above its report rate.
    pub(crate) fn is_rate_exceeded(&self, sandbox: &SandboxId) -> bool {
        let rate = self.0.limits.get().report_bytes_per_minute;
        rate.is_some_and(|rate| self.0.report_rate.retry_after(sandbox, rate).is_some())
    }

    /// Refuses a report of a sandbox above its report rate.
    pub(crate) fn check_report(&self, sandbox: &SandboxId) -> Result<(), AppError> {
        let Some(bytes_per_minute) = self.0.limits.get().report_bytes_per_minute else {
            return Ok(());
        };
        match self.0.report_rate.retry_after(sandbox, bytes_per_minute) {
            None => Ok(()),
            Some(wait) => {
                self.0.rate_limited_reports.add(1);
                Err(AppError::ReportRate {
                    bytes_per_minute,
                    wait,
                })
            }
        }
    }

    /// Counts the bytes of a report.
    pub(crate) fn count_report(&self, sandbox: &SandboxId, bytes: u64) {
        if let Some(bytes_per_minute) = self.0.limits.get().report_bytes_per_minute {
            self.0
                .report_rate
                .withdraw(sandbox, bytes, bytes_per_minute);
        }
    }

    pub(crate) fn counts(&self) -> QuotaCounts {
        let limits = self.limits();
        let (mut near, mut exceeded) = (0, 0);
        for known in self
            .lock()
            .values()
            .filter(|it| !it.is_older_than(USAGE_TTL))
        {
            let uses = |share: u64| {
                let quotas = Quota::ALL.into_iter();
                quotas
                    .filter_map(|(_, quota)| Some((known.usage.of(quota), limits.of(quota)?)))
                    .any(|(used, limit)| used.saturating_mul(100) >= limit.saturating_mul(share))
            };
            if uses(100) {
                exceeded += 1;
            } else if uses(80) {
                near += 1;
            }
        }
        let refusals =
            Quota::ALL.map(|(name, quota)| (name, self.0.refusals[quota as usize].get()));
        QuotaCounts {
            refusals,
            rate_limited_reports: self.0.rate_limited_reports.get(),
            shortened_events: self.0.shortened_events.get(),
            discarded_events: self.0.discarded_events.get(),
            users: [("near", near), ("exceeded", exceeded)],
        }
    }

    /// The cached usage, unless it has expired.
    fn cached_usage(&self, user: &OwnerId) -> Option<Usage> {
        let users = self.lock();
        let known = users.get(user).filter(|it| !it.is_older_than(USAGE_TTL));
        known.map(|it| it.usage)
    }

    /// The usage for a report. It waits for the store only if nothing is cached. One of many reports refreshes expired
    /// usage; the others continue with the cached one.
    async fn usage_for_report(&self, user: &OwnerId, limits: QuotaLimits) -> Option<Usage> {
        let known = {
            let mut users = self.lock();
            let known = users.get_mut(user);
            if let Some(known) = known {
                let is_exceeded = limits.event_storage(&known.usage) != EventStorage::Complete;
                let ttl = if is_exceeded {
                    EXCEEDED_USAGE_TTL
                } else {
                    USAGE_TTL
                };
                if !known.is_older_than(ttl) {
                    return Some(known.usage);
                }
                known.read_at = Instant::now();
                Some(known.usage)
            } else {
                None
            }
        };
        match self.read(&Scope::System, user).await {
            Ok(usage) => {
                let now = limits.event_storage(&usage);
                let before = known.map_or(EventStorage::Complete, |it| limits.event_storage(&it));
                if now > before {
                    let effect = if now == EventStorage::Stopped {
                        "not stored"
                    } else {
                        "stored without their long texts"
                    };
                    tracing::warn!(user = %user, events = usage.events, event_bytes = usage.event_bytes, storage = now.as_str(), "the quota of events of {user} is used up, and further events are {effect}: the user can delete conversations, or the operator can raise quota.events and quota.event_bytes");
                }
                Some(usage)
            }
            Err(error) => {
                tracing::debug!(user = %user, error = %chain(&error), "cannot read the usage of {user}; continuing with the cached usage");
                known
            }
        }
    }

    async fn read(&self, scope: &Scope, user: &OwnerId) -> Result<Usage, AppError> {
        let read_at = Instant::now();
        let usage = self.0.usage.usage(scope, user).await?;
        let mut users = self.lock();
        if users.len() >= MAX_USERS && !users.contains_key(user) {
            users.retain(|_, it| !it.is_older_than(USAGE_TTL));
            if users.len() >= MAX_USERS {
                users.clear();
            }
        }
        let no_shortening_before = users.get(user).and_then(|it| it.no_shortening_before);
        let known = CachedUsage {
            usage,
            read_at,
            no_shortening_before,
        };
        users.insert(user.clone(), known);
        Ok(usage)
    }

    /// Shortens stored events of the user to nine tenths of the quota, in one background task. A later report starts
    /// it again if it is interrupted.
    fn shorten_stored(&self, user: &OwnerId) {
        {
            let (mut users, now) = (self.lock(), Instant::now());
            let Some(known) = users.get_mut(user) else {
                return;
            };
            if known.no_shortening_before.is_some_and(|at| now < at) {
                return;
            }
            known.no_shortening_before = Some(now + SHORTENING_INTERVAL);
        }
        let (this, user) = (self.clone(), user.clone());
        self.0.tasks.spawn(async move {
            if let Err(error) = this.shorten_below_quota(&user).await {
                tracing::warn!(user = %user, error = %chain(&error), "cannot shorten the events of {user}; trying again later");
            }
        });
    }

    async fn shorten_below_quota(&self, user: &OwnerId) -> Result<(), AppError> {
        loop {
            let usage = self.read(&Scope::System, user).await?;
            let limit = self.0.limits.get().of(Quota::EventBytes);
            if limit.is_none_or(|limit| usage.event_bytes <= limit / 10 * 9) {
                self.set_no_shortening_before(user, None);
                return Ok(());
            }
            // A hundred batches between two queries of the usage.
            for _ in 0..100 {
                let done = self.0.usage.shorten_events(user).await?;
                self.0.shortened_events.add(done.events);
                if done.events == 0 {
                    return Ok(());
                }
                // Still running: no other task may start.
                self.set_no_shortening_before(user, Some(Instant::now() + SHORTENING_INTERVAL));
            }
        }
    }

    fn set_no_shortening_before(&self, user: &OwnerId, time: Option<Instant>) {
        if let Some(known) = self.lock().get_mut(user) {
            known.no_shortening_before = time;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<OwnerId, CachedUsage>> {
        self.0.users.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CachedUsage {
    fn is_older_than(&self, ttl: Duration) -> bool {
        self.read_at.elapsed() >= ttl
    }
}

/// The message for the client: current usage, and how to reduce it.
fn quota_exceeded_message(quota: Quota, used: u64, limit: u64) -> String {
    match quota {
        Quota::Conversations => format!(
            "You have {used} conversations, and {limit} is the most one user may have. Delete some that you no longer need."
        ),
        Quota::Events => format!(
            "Your conversations have {used} events, and {limit} is the most one user may have. Delete conversations that you no \
             longer need."
        ),
        Quota::EventBytes => format!(
            "The events of your conversations take {used} bytes, and {limit} is the most one user may store. Delete conversations \
             that you no longer need."
        ),
        Quota::RequestBytes => format!(
            "Your start requests and pending messages take {used} bytes, and with this one it would be more than {limit}, the most \
             one user may store. Delete conversations that you no longer need: their requests go with them."
        ),
        Quota::Secrets => format!(
            "You have {used} secrets, and {limit} is the most one user may have. Delete some that you no longer need."
        ),
        Quota::PendingMessages => format!(
            "{used} of your messages wait for their conversations, and {limit} is the most one user may have waiting. Wait until \
             some are delivered, or delete their conversations."
        ),
    }
}
