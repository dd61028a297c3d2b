//! Decides which waiting job gets a free slot. A pure data structure without threads and clocks.
//!
//! A slot goes to the waiting tenant that holds the fewest slots; ties are served round-robin. So a tenant never gets more than
//! half of the slots (rounded up) while another waits. With a single slot the tenants alternate, regardless of queue lengths.
//! No slot stays free while a job waits.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// Slots, and the waiting items of each tenant.
pub(super) struct FairQueue<K, T> {
    size: usize,
    free: usize,
    /// Grows with each item and each turn.
    next: u64,
    /// Tenants that hold a slot or wait for one.
    tenants: HashMap<K, TenantQueue<T>>,
    /// Waiting tenants by rank.
    waiting: BTreeMap<Rank, K>,
}

/// Slots that a tenant holds, and its position in the round-robin order.
type Rank = (usize, u64);

struct TenantQueue<T> {
    held: usize,
    /// Position in the round-robin order.
    turn: u64,
    /// In the order of arrival.
    items: BTreeMap<u64, T>,
}

impl<K: Clone + Eq + Hash, T> FairQueue<K, T> {
    pub(super) fn new(size: usize) -> Self {
        Self {
            size,
            free: size,
            next: 0,
            tenants: HashMap::new(),
            waiting: BTreeMap::new(),
        }
    }

    /// Number of slots, and of free slots.
    pub(super) fn slots(&self) -> (usize, usize) {
        (self.size, self.free)
    }

    /// Takes a free slot for the tenant, if there is one. A free slot implies that no item waits.
    pub(super) fn try_take(&mut self, tenant: &K) -> bool {
        if self.free == 0 {
            return false;
        }
        self.free -= 1;
        self.tenant(tenant).held += 1;
        true
    }

    /// Adds an item to the end of the tenant's queue and returns its number.
    pub(super) fn push(&mut self, tenant: &K, item: T) -> u64 {
        self.next += 1;
        let number = self.next;
        let entry = self.tenant(tenant);
        let is_first = entry.items.is_empty();
        entry.items.insert(number, item);
        if is_first {
            entry.turn = number;
            let rank = (entry.held, number);
            self.waiting.insert(rank, tenant.clone());
        }
        number
    }

    /// Removes a waiting item. `None`: it already has a slot.
    pub(super) fn remove(&mut self, tenant: &K, number: u64) -> Option<T> {
        let entry = self.tenants.get_mut(tenant)?;
        let item = entry.items.remove(&number)?;
        if entry.items.is_empty() {
            self.waiting.remove(&(entry.held, entry.turn));
            self.forget_idle(tenant);
        }
        Some(item)
    }

    /// Returns a slot of the tenant; the result is the next tenant and its item.
    pub(super) fn release(&mut self, tenant: &K) -> Option<(K, T)> {
        if let Some(entry) = self.tenants.get_mut(tenant) {
            let rank = (entry.held, entry.turn);
            entry.held -= 1;
            if let Some(waiting) = self.waiting.remove(&rank) {
                self.waiting.insert((entry.held, entry.turn), waiting);
            }
        }
        self.forget_idle(tenant);
        let next = self.pop();
        self.free += usize::from(next.is_none());
        next
    }

    fn pop(&mut self) -> Option<(K, T)> {
        let (_, tenant) = self.waiting.pop_first()?;
        let entry = self.tenants.get_mut(&tenant)?;
        let (_, item) = entry.items.pop_first()?;
        entry.held += 1;
        if !entry.items.is_empty() {
            self.next += 1;
            entry.turn = self.next;
            self.waiting
                .insert((entry.held, entry.turn), tenant.clone());
        }
        Some((tenant, item))
    }

    fn tenant(&mut self, tenant: &K) -> &mut TenantQueue<T> {
        self.tenants
            .entry(tenant.clone())
            .or_insert_with(|| TenantQueue {
                held: 0,
                turn: 0,
                items: BTreeMap::new(),
            })
    }

    fn forget_idle(&mut self, tenant: &K) {
        let is_idle = |queue: &TenantQueue<T>| queue.held == 0 && queue.items.is_empty();
        if self.tenants.get(tenant).is_some_and(is_idle) {
            self.tenants.remove(tenant);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Queues so many jobs of each tenant for a single slot. Returns the tenants in the order in which they get it.
    fn serving_order(queued: &[(&'static str, usize)]) -> Vec<&'static str> {
        let mut queue = FairQueue::new(1);
        assert!(queue.try_take(&"holder"));
        for (tenant, jobs) in queued {
            for _ in 0..*jobs {
                queue.push(tenant, ());
            }
        }
        let mut order = Vec::new();
        let mut holder = "holder";
        while let Some((tenant, ())) = queue.release(&holder) {
            order.push(tenant);
            holder = tenant;
        }
        assert_eq!(queue.slots(), (1, 1));
        assert!(queue.tenants.is_empty() && queue.waiting.is_empty());
        order
    }

    #[test]
    fn tenants_take_turns_at_a_single_slot() {
        assert_eq!(
            serving_order(&[("a", 4), ("b", 2), ("c", 1)]),
            ["a", "b", "c", "a", "b", "a", "a"]
        );
    }

    #[test]
    fn a_removed_item_is_not_served() {
        let mut queue = FairQueue::new(1);
        assert!(queue.try_take(&"a"));
        let first = queue.push(&"b", 1);
        queue.push(&"b", 2);
        let other = queue.push(&"c", 3);
        assert_eq!(queue.remove(&"b", first), Some(1));
        assert_eq!(queue.remove(&"b", first), None);
        assert_eq!(queue.remove(&"c", other), Some(3));
        assert_eq!(queue.release(&"a"), Some(("b", 2)));
        assert_eq!(queue.release(&"b"), None);
        assert_eq!(queue.slots(), (1, 1));
    }

    #[derive(Debug, Clone)]
    enum Step {
        Enqueue(u16),
        Withdraw(usize),
        Finish(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0..5_u16).prop_map(Step::Enqueue),
            any::<usize>().prop_map(Step::Withdraw),
            any::<usize>().prop_map(Step::Finish),
        ];
        proptest::collection::vec(step, 0..200)
    }

    /// The queue, and its expected state.
    struct Model {
        queue: FairQueue<u16, ()>,
        waiting: Vec<(u16, u64)>,
        running: Vec<u16>,
    }

    impl Model {
        fn held(&self, tenant: u16) -> usize {
            self.running.iter().filter(|it| **it == tenant).count()
        }

        fn finish(&mut self, tenant: u16) {
            let Some((next, ())) = self.queue.release(&tenant) else {
                assert!(self.waiting.is_empty(), "a slot is free while a job waits");
                return;
            };
            let fewest = self.waiting.iter().map(|(it, _)| self.held(*it)).min();
            assert_eq!(Some(self.held(next)), fewest);
            // The tenant's own jobs keep their order.
            let first = self.waiting.iter().position(|(it, _)| *it == next);
            self.waiting.remove(first.expect("the tenant was waiting"));
            self.running.push(next);
            let others_wait = self.waiting.iter().any(|(it, _)| *it != next);
            let half = self.queue.slots().0.div_ceil(2);
            assert!(
                !others_wait || self.held(next) <= half,
                "more than half of the slots while another tenant waits"
            );
        }
    }

    proptest! {
        #[test]
        fn a_tenant_gets_at_most_half_of_the_slots_while_others_wait(size in 1..7_usize, steps in steps()) {
            let mut model = Model {
                queue: FairQueue::new(size),
                waiting: Vec::new(),
                running: Vec::new(),
            };
            for step in steps {
                match step {
                    Step::Enqueue(tenant) if model.queue.try_take(&tenant) => model.running.push(tenant),
                    Step::Enqueue(tenant) => {
                        let number = model.queue.push(&tenant, ());
                        model.waiting.push((tenant, number));
                    }
                    Step::Withdraw(at) if !model.waiting.is_empty() => {
                        let (tenant, number) = model.waiting.remove(at % model.waiting.len());
                        prop_assert!(model.queue.remove(&tenant, number).is_some());
                    }
                    Step::Finish(at) if !model.running.is_empty() => {
                        let tenant = model.running.swap_remove(at % model.running.len());
                        model.finish(tenant);
                    }
                    Step::Withdraw(_) | Step::Finish(_) => {}
                }
                prop_assert_eq!(model.running.len() + model.queue.slots().1, size);
            }
            while let Some(tenant) = model.running.pop() {
                model.finish(tenant);
            }
            prop_assert!(model.queue.tenants.is_empty() && model.queue.waiting.is_empty());
        }
    }
}
