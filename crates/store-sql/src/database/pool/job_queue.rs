//! Jobs that wait for a slot of a partition, and the threads that run them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::id::{OrganizationId, SandboxId, UserId};
use tokio::runtime::Handle;

use super::fair_queue::FairQueue;

/// The unit of fairness: tenants share the slots of a partition.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Tenant {
    User(UserId),
    /// All members of a shared organization.
    Organization(OrganizationId),
    Sandbox(SandboxId),
    /// A job that is its own tenant, by number: background work, and requests before authentication.
    Single(u64),
}

/// Runs with a slot.
pub(super) type Job = Box<dyn FnOnce(Slot) + Send>;

/// The waiting jobs of a partition, at most one per caller.
pub(super) struct JobQueue {
    runtime: Handle,
    queue: Mutex<FairQueue<Tenant, Job>>,
}

/// The right to run a job. On drop it passes to the next queued job.
pub(super) struct Slot {
    queue: Arc<JobQueue>,
    tenant: Tenant,
}

/// A queued job. Dropping this removes it from the queue.
pub(super) struct QueuedJob {
    queue: Arc<JobQueue>,
    tenant: Tenant,
    number: u64,
}

impl JobQueue {
    pub(super) fn new(slots: usize, runtime: Handle) -> Self {
        Self {
            runtime,
            queue: Mutex::new(FairQueue::new(slots)),
        }
    }

    /// Number of slots, and of free slots.
    pub(super) fn slots(&self) -> (usize, usize) {
        self.lock().slots()
    }

    /// Starts the job if a slot is free and returns `None`; otherwise queues it.
    pub(super) fn enqueue(self: &Arc<Self>, tenant: Tenant, job: Job) -> Option<QueuedJob> {
        let mut queue = self.lock();
        if queue.try_take(&tenant) {
            drop(queue);
            self.start(tenant, job);
            return None;
        }
        let number = queue.push(&tenant, job);
        drop(queue);
        Some(QueuedJob {
            queue: Arc::clone(self),
            tenant,
            number,
        })
    }

    /// Spawns a thread that runs this job. A runtime that shuts down drops the closure, and dropping a
    /// slot starts the next job. So the slot is created inside the closure; otherwise the drops of all queued jobs would nest.
    fn start(self: &Arc<Self>, tenant: Tenant, job: Job) {
        let queue = Arc::clone(self);
        self.runtime
            .spawn_blocking(move || job(Slot { queue, tenant }));
    }

    fn lock(&self) -> MutexGuard<'_, FairQueue<Tenant, Job>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let next = self.queue.lock().release(&self.tenant);
        if let Some((tenant, job)) = next {
            self.queue.start(tenant, job);
        }
    }
}

impl QueuedJob {
    /// Removes the job from the queue. `None`: it has started.
    pub(super) fn withdraw(&self) -> Option<Job> {
        self.queue.lock().remove(&self.tenant, self.number)
    }
}

impl Drop for QueuedJob {
    fn drop(&mut self) {
        // The caller was cancelled before the job started.
        drop(self.withdraw());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// A queue whose only slot a job holds until the sender is dropped.
    fn occupied() -> (Arc<JobQueue>, mpsc::Sender<()>) {
        let queue = Arc::new(JobQueue::new(1, Handle::current()));
        let (end, ended) = mpsc::channel();
        let first: Job = Box::new(move |_slot| {
            let _ = ended.recv();
        });
        assert!(queue.enqueue(Tenant::Single(0), first).is_none());
        (queue, end)
    }

    #[tokio::test]
    async fn one_slot_runs_all_queued_jobs_except_withdrawn_ones() {
        let (queue, end) = occupied();
        let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
        let jobs = 100;
        let mut queued: Vec<_> = (1..=jobs)
            .map(|number| {
                let sender = sender.clone();
                let job: Job = Box::new(move |_slot| sender.send(number).unwrap());
                queue.enqueue(Tenant::Single(number), job)
            })
            .collect();
        drop(queued.remove(1));
        drop((end, sender));
        let mut done = Vec::new();
        while let Some(number) = receiver.recv().await {
            done.push(number);
        }
        assert_eq!(done, (1..=jobs).filter(|it| *it != 2).collect::<Vec<_>>());
        assert!(queued.iter().flatten().all(|it| it.withdraw().is_none()));
    }

    #[tokio::test]
    async fn a_held_slot_passes_on_when_it_is_dropped() {
        let queue = Arc::new(JobQueue::new(1, Handle::current()));
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let keep: Job = Box::new(|slot| {
            let _ = sender.send(slot);
        });
        assert!(queue.enqueue(Tenant::Single(1), keep).is_none());
        let slot = receiver.await.unwrap();
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let next: Job = Box::new(|_slot| {
            let _ = sender.send(());
        });
        let _queued = queue.enqueue(Tenant::Single(2), next).unwrap();
        assert_eq!(queue.slots(), (1, 0));
        drop(slot);
        receiver.await.unwrap();
    }

    #[tokio::test]
    async fn a_panicking_job_releases_its_slot() {
        let (queue, end) = occupied();
        let panics: Job = Box::new(|_slot| panic!("on purpose"));
        let _first = queue.enqueue(Tenant::Single(1), panics);
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let job: Job = Box::new(|_slot| {
            let _ = sender.send(());
        });
        let _second = queue.enqueue(Tenant::Single(2), job);
        drop(end);
        receiver.await.unwrap();
    }
}
