//! Limits of what users hold open in this process: streams, logs, exports.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::id::OwnerId;

/// Slots by user and by what is held. Cheap to clone.
#[derive(Debug)]
pub(crate) struct UserSlots<K> {
    held: Arc<Mutex<Vec<(OwnerId, K)>>>,
    per_user: usize,
    overall: usize,
    is_exclusive: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoSlot {
    /// The user holds this already, and the slots are exclusive.
    Held,
    PerUser,
    /// All users together hold as many as they may.
    Overall,
}

#[derive(Debug)]
pub(crate) struct UserSlot<K: PartialEq> {
    slots: UserSlots<K>,
    held: (OwnerId, K),
}

impl<K> Clone for UserSlots<K> {
    fn clone(&self) -> Self {
        Self {
            held: Arc::clone(&self.held),
            ..*self
        }
    }
}

impl<K> UserSlots<K> {
    pub(crate) fn new(per_user: usize, overall: usize) -> Self {
        Self {
            held: Arc::default(),
            per_user,
            overall,
            is_exclusive: false,
        }
    }

    /// Refuses a second slot of a user for the same thing.
    pub(crate) fn exclusive(self) -> Self {
        Self {
            is_exclusive: true,
            ..self
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(OwnerId, K)>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: PartialEq + Clone> UserSlots<K> {
    pub(crate) fn acquire(&self, user: &OwnerId, what: K) -> Result<UserSlot<K>, NoSlot> {
        let (mut held, new) = (self.lock(), (user.clone(), what));
        if self.is_exclusive && held.contains(&new) {
            return Err(NoSlot::Held);
        }
        if held.iter().filter(|(of, _)| of == user).count() >= self.per_user {
            return Err(NoSlot::PerUser);
        }
        if held.len() >= self.overall {
            return Err(NoSlot::Overall);
        }
        held.push(new.clone());
        Ok(UserSlot {
            slots: self.clone(),
            held: new,
        })
    }
}

impl<K: PartialEq> Drop for UserSlot<K> {
    fn drop(&mut self) {
        let mut held = self.slots.lock();
        if let Some(at) = held.iter().position(|it| *it == self.held) {
            held.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_limited_per_user_and_in_total() {
        let slots = UserSlots::new(2, 3);
        let acquire = |name: &str, what| slots.acquire(&OwnerId::parse(name).unwrap(), what);
        let mut held = vec![acquire("ada", 1).unwrap(), acquire("ada", 1).unwrap()];
        assert_eq!(acquire("ada", 2).unwrap_err(), NoSlot::PerUser);
        held.pop();
        held.push(acquire("ada", 2).unwrap());
        held.push(acquire("bob", 1).unwrap());
        assert_eq!(acquire("bob", 2).unwrap_err(), NoSlot::Overall);
        drop(held);
        assert_eq!(slots.count(), 0);
    }

    #[test]
    fn an_exclusive_slot_is_held_once() {
        let slots = UserSlots::new(2, 3).exclusive();
        let acquire = |name: &str, what| slots.acquire(&OwnerId::parse(name).unwrap(), what);
        let held = acquire("ada", 1).unwrap();
        assert_eq!(acquire("ada", 1).unwrap_err(), NoSlot::Held);
        assert!(acquire("bob", 1).is_ok() && acquire("ada", 2).is_ok());
        drop(held);
        assert!(acquire("ada", 1).is_ok());
    }
}
