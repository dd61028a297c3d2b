//! Settings that can change while the service runs.

use std::sync::{Arc, PoisonError, RwLock};

/// A small value behind a handle. All clones see a change at once, and readers get the value as a whole. Read it on
/// each use and do not keep it.
#[derive(Debug, Default)]
pub struct LiveSetting<T>(Arc<RwLock<T>>);

impl<T> Clone for LiveSetting<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Copy> LiveSetting<T> {
    pub fn new(value: T) -> Self {
        Self(Arc::new(RwLock::new(value)))
    }

    pub fn get(&self) -> T {
        *self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set(&self, value: T) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = value;
    }

    pub fn change(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_see_a_change() {
        let one = LiveSetting::new((1, 2));
        let other = one.clone();
        one.change(|it| it.0 = 7);
        assert_eq!(other.get(), (7, 2));
        other.set((3, 4));
        assert_eq!(one.get(), (3, 4));
    }
}
