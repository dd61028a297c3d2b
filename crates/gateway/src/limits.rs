//! How much, how long and how many.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::Failure;

/// Bounds on what is forwarded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Longest wait for a connection.
    pub connect: Duration,
    /// Longest wait for the head of an answer once the whole request is sent. Servers behind may work long before they say
    /// anything: commands of a shell are waited for.
    pub head: Duration,
    /// Longest time in which no byte of a body comes or is taken, in either direction.
    pub idle: Duration,
    /// Connections that nobody uses are closed after this time. Shorter than what the servers behind allow (uvicorn: 5 s), so
    /// that it is not they who close one while a request is on its way.
    pub idle_connection: Duration,
    /// Connections for each server and worker that may wait for use.
    pub idle_connections: usize,
    /// How often the other side of a silent connection is asked whether it is there.
    pub tcp_keep_alive: Duration,
    /// Largest body of a request in bytes; `None`: any.
    pub upload: Option<u64>,
    /// Pieces of an upload that wait to be sent. Each is at most as large as what the listener reads at once.
    pub chunks: usize,
    /// Most that is read of an answer at once, in bytes; also its largest head.
    pub read_buffer: usize,
    /// Requests under way in all.
    pub requests: usize,
    /// Requests under way of one lane.
    pub requests_per_lane: usize,
    /// Open tunnels in all.
    pub tunnels: usize,
    /// Open tunnels of one lane.
    pub tunnels_per_lane: usize,
    /// How long a tunnel may go on in one direction once the other one is at its end.
    pub half_open: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            head: Duration::from_secs(600),
            idle: Duration::from_secs(300),
            idle_connection: Duration::from_secs(3),
            idle_connections: 32,
            tcp_keep_alive: Duration::from_secs(60),
            upload: None,
            chunks: 4,
            read_buffer: 64 * 1024,
            requests: 1_024,
            requests_per_lane: 128,
            tunnels: 4_096,
            tunnels_per_lane: 2_048,
            half_open: Duration::from_secs(30),
        }
    }
}

/// What is counted apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Request,
    Tunnel,
}

/// The places that are taken.
#[derive(Debug)]
pub(crate) struct Places {
    /// In all, and of one lane.
    requests: (usize, usize),
    tunnels: (usize, usize),
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    requests: usize,
    tunnels: usize,
    /// Only lanes that have something under way.
    lanes: HashMap<(Kind, String), usize>,
}

impl Taken {
    fn all(&mut self, kind: Kind) -> &mut usize {
        match kind {
            Kind::Request => &mut self.requests,
            Kind::Tunnel => &mut self.tunnels,
        }
    }
}

/// One place, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    lane: (Kind, String),
}

impl Places {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            requests: (limits.requests, limits.requests_per_lane),
            tunnels: (limits.tunnels, limits.tunnels_per_lane),
            taken: Mutex::default(),
        }
    }

    /// Takes a place, if there is one. Nobody waits: a client that is told when to come back costs nothing meanwhile.
    pub(crate) fn take(self: &Arc<Self>, kind: Kind, lane: &str) -> Result<Place, Failure> {
        let (most, most_of_lane) = match kind {
            Kind::Request => self.requests,
            Kind::Tunnel => self.tunnels,
        };
        let lane = (kind, lane.to_owned());
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if *taken.all(kind) >= most {
            return Err(Failure::Full);
        }
        let of_lane = taken.lanes.get(&lane).copied().unwrap_or_default();
        if of_lane >= most_of_lane {
            return Err(Failure::LaneFull);
        }
        taken.lanes.insert(lane.clone(), of_lane + 1);
        *taken.all(kind) += 1;
        drop(taken);
        Ok(Place {
            places: Arc::clone(self),
            lane,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self
            .places
            .taken
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *taken.all(self.lane.0) -= 1;
        if let Some(of_lane) = taken.lanes.get_mut(&self.lane) {
            *of_lane -= 1;
            if *of_lane == 0 {
                taken.lanes.remove(&self.lane);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_lane_takes_its_own_places_and_all_of_them_the_rest() {
        let limits = Limits {
            requests: 3,
            requests_per_lane: 2,
            tunnels: 1,
            ..Limits::default()
        };
        let places = Arc::new(Places::new(&limits));
        let take = |kind, lane| places.take(kind, lane);
        let first = take(Kind::Request, "a").unwrap();
        let _second = take(Kind::Request, "a").unwrap();
        assert!(matches!(take(Kind::Request, "a"), Err(Failure::LaneFull)));
        let third = take(Kind::Request, "b").unwrap();
        assert!(matches!(take(Kind::Request, "b"), Err(Failure::Full)));
        let _tunnel = take(Kind::Tunnel, "a").unwrap();
        assert!(matches!(take(Kind::Tunnel, "b"), Err(Failure::Full)));
        drop((first, third));
        let _again = take(Kind::Request, "a").unwrap();
        assert_eq!(
            places.taken.lock().unwrap().lanes.len(),
            2,
            "b is forgotten"
        );
    }
}
