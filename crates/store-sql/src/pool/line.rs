//! Jobs in line for a turn at a pool. A thread that has done a job goes on with the next one in line, with the same turn:
//! else each job of a busy pool would wake its caller to be told of its turn, and then a thread that has just fallen asleep,
//! which together is as much work as a small query.
//!
//! A job is in line and its caller waits for a permit as well, in the same order. Whoever takes the job out of the line first
//! runs it, so it runs once; a caller that gets a permit for a job that is under way gives it to the next one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::OwnedSemaphorePermit as Turn;

/// Jobs that one thread does in a row. Then it queues for a thread with all others: threads are fewer than turns of all pools
/// may be, and one whose line never ends must not keep another's from its turn.
const IN_A_ROW: usize = 64;

/// A job: takes a turn, and gives it back unless it is to be repeated with it.
pub(super) type Job = Box<dyn FnOnce(Turn) -> Option<Turn> + Send>;

/// The jobs that wait: no more than there are callers.
#[derive(Default)]
pub(super) struct Line(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    next: u64,
    jobs: BTreeMap<u64, Job>,
}

/// A job's place in line; with this it leaves.
pub(super) struct Place(Arc<Line>, u64);

impl Line {
    /// Adds a job at the end.
    pub(super) fn enter(self: &Arc<Self>, job: Job) -> Place {
        let mut waiting = self.lock();
        waiting.next += 1;
        let number = waiting.next;
        waiting.jobs.insert(number, job);
        Place(Arc::clone(self), number)
    }

    /// Runs a job, and then those in line; what is left to another thread. Blocking. A job that panics ends this and lets go of
    /// the turn: then callers get permits.
    pub(super) fn serve(&self, mut job: Job, mut turn: Turn) -> Option<(Job, Turn)> {
        for _ in 0..IN_A_ROW {
            let free = job(turn)?;
            (job, turn) = (self.first()?, free);
        }
        Some((job, turn))
    }

    fn first(&self) -> Option<Job> {
        self.lock().jobs.pop_first().map(|(_, job)| job)
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Takes the job out; `None`: it is under way.
    pub(super) fn leave(&self) -> Option<Job> {
        self.0.lock().jobs.remove(&self.1)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // The caller went away before its turn came.
        let job = self.leave();
        drop(job);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tokio::sync::Semaphore;

    use super::*;

    #[test]
    fn one_turn_does_for_all_in_line_but_for_those_who_left() {
        let permits = Arc::new(Semaphore::new(1));
        let turn = || Arc::clone(&permits).try_acquire_owned();
        let (tell, told) = mpsc::channel();
        let line = Arc::new(Line::default());
        let job = |name: &'static str| -> Job {
            let tell = tell.clone();
            Box::new(move |turn| {
                tell.send(name).unwrap();
                Some(turn)
            })
        };
        let [second, third, fourth] = ["second", "third", "fourth"].map(|it| line.enter(job(it)));
        drop(third);
        assert!(line.serve(job("first"), turn().unwrap()).is_none());
        assert_eq!(
            told.try_iter().collect::<Vec<_>>(),
            ["first", "second", "fourth"]
        );
        assert!(second.leave().is_none() && fourth.leave().is_none());
        assert!(turn().is_ok(), "nobody has the turn");
    }

    #[test]
    fn a_line_without_end_is_left_to_another_thread_with_the_turn() {
        let permits = Arc::new(Semaphore::new(1));
        let turn = Arc::clone(&permits).try_acquire_owned().unwrap();
        let line = Arc::new(Line::default());
        let places: Vec<_> = (0..2 * IN_A_ROW)
            .map(|_| line.enter(Box::new(Some)))
            .collect();
        let (next, turn) = line.serve(Box::new(Some), turn).unwrap();
        assert_eq!(permits.available_permits(), 0);
        let done = |places: &[Place]| places.iter().all(|it| it.leave().is_none());
        assert!(done(&places[..IN_A_ROW]) && places[IN_A_ROW].leave().is_some());
        assert!(line.serve(next, turn).is_none());
        assert!(done(&places));
        assert_eq!(permits.available_permits(), 1);
    }

    #[test]
    fn a_turn_that_is_kept_ends_it() {
        let permits = Arc::new(Semaphore::new(1));
        let turn = Arc::clone(&permits).try_acquire_owned().unwrap();
        let line = Arc::new(Line::default());
        let waiting = line.enter(Box::new(Some));
        assert!(line.serve(Box::new(|_kept| None), turn).is_none());
        assert!(waiting.leave().is_some(), "it still waits");
    }
}
