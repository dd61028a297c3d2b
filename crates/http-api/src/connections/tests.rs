//! Connections, with a test clock.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

struct ConnectionFixture {
    connections: Connections,
    ended: Arc<AtomicUsize>,
}

impl ConnectionFixture {
    fn new(most: usize, per_address: usize) -> Self {
        let connections = Connections::new(ConnectionLimits {
            max_connections: most,
            max_per_address: per_address,
            idle_timeout: Duration::from_secs(85),
            trusted_proxies: vec!["192.0.2.0/24".parse().unwrap()],
        });
        let ended = Arc::default();
        Self { connections, ended }
    }

    fn accept(&self, seconds: u64, address: &str) -> ClientConnection {
        self.accept_at(Duration::from_secs(seconds), address)
    }

    fn accept_at(&self, now: Duration, address: &str) -> ClientConnection {
        let ended = Arc::clone(&self.ended);
        let end = move || {
            ended.fetch_add(1, Ordering::Relaxed);
        };
        let address = address.parse().unwrap();
        self.connections.accept_at(now, address, Box::new(end))
    }

    fn ended(&self) -> usize {
        self.ended.load(Ordering::Relaxed)
    }
}

#[test]
fn the_longest_idle_make_room() {
    let world = ConnectionFixture::new(3, 0);
    let first = world.accept(0, "127.0.0.1");
    let busy = world.accept(0, "127.0.0.1");
    let _request = busy.begin_request(false).unwrap();
    let third = world.accept(10, "127.0.0.1");
    let fourth = world.accept(20, "127.0.0.1");
    assert_eq!(world.ended(), 1);
    assert!(
        first.begin_request(true).is_none(),
        "its request is not served"
    );
    for kept in [&busy, &third, &fourth] {
        assert!(kept.begin_request(false).is_some() && !kept.is_surplus());
    }
    assert_eq!(world.connections.0.open().live, 3);
    drop((first, third, fourth));
    assert_eq!(world.connections.0.open().live, 1);
}

#[test]
fn requests_are_served_during_a_flood_of_silent_connections() {
    let world = ConnectionFixture::new(64, 0);
    let mut kept = Vec::new();
    // 320 in a second, none of which sends a request.
    for number in 0..640 {
        let now = Duration::from_micros(number * 3_125);
        kept.push(world.accept_at(now, "127.0.0.1"));
        let last = kept.last().unwrap();
        assert!(!last.is_surplus(), "{number}");
    }
    assert!(kept.last().unwrap().begin_request(false).is_some());
    assert_eq!(world.connections.0.open().live, 64);
}

#[test]
fn only_essential_requests_are_served_when_all_connections_are_busy() {
    let world = ConnectionFixture::new(4, 0);
    let busy: Vec<ClientConnection> = (0..4).map(|_| world.accept(0, "127.0.0.1")).collect();
    let requests: Vec<_> = busy
        .iter()
        .map(|it| it.begin_request(false).unwrap())
        .collect();
    let more = world.accept(50, "127.0.0.1");
    assert!(more.is_surplus() && more.begin_request(false).is_none());
    let is_essential = more.begin_request(true).unwrap();
    let flood: Vec<ClientConnection> = (0..100).map(|_| world.accept(50, "127.0.0.1")).collect();
    assert!(world.connections.0.open().live <= 4 + 1 + 16);
    assert_eq!(world.ended(), 100 + 5 - (4 + 1 + 16));
    assert!(
        flood.last().unwrap().begin_request(true).is_some(),
        "the latest"
    );
    drop((is_essential, requests, more, flood, busy));
    let open = world.connections.0.open();
    assert_eq!((open.live, open.all.len()), (0, 0));
}

#[test]
fn connections_per_address_are_bounded_except_for_proxies() {
    let world = ConnectionFixture::new(100, 2);
    let mut kept = Vec::new();
    for (address, surplus) in [
        ("198.51.100.1", false),
        ("::ffff:198.51.100.1", false),
        ("198.51.100.1", true),
        ("198.51.100.2", false),
        ("2001:db8::1", false),
        ("2001:db8::2", false),
        ("2001:db8::3", true),
        ("2001:db8:0:1::1", false),
    ] {
        kept.push(world.accept(0, address));
        let last = kept.last().unwrap();
        assert_eq!(last.begin_request(true).is_none(), surplus, "{address}");
    }
    assert_eq!(world.ended(), 2);
    for address in ["127.0.0.1", "::1", "192.0.2.7"] {
        for _ in 0..5 {
            kept.push(world.accept(0, address));
        }
    }
    assert_eq!(world.ended(), 2);
    kept.clear();
    assert!(world.connections.0.open().per_address.is_empty());
    assert!(!world.accept(0, "198.51.100.1").is_surplus());
}

#[test]
fn a_connection_with_a_new_request_is_not_closed() {
    let world = ConnectionFixture::new(10, 0);
    let connection = world.accept(0, "127.0.0.1");
    let seen = connection.entry.idle(Duration::from_secs(5)).unwrap();
    let request = connection.begin_request(false).unwrap();
    assert!(!connection.entry.close(&seen), "it is busy");
    drop(request);
    assert!(
        !connection.entry.close(&seen),
        "its answer may be under way"
    );
    let seen = connection.entry.idle(Duration::from_secs(5)).unwrap();
    assert!(connection.entry.close(&seen) && !connection.entry.close(&seen));
    assert_eq!(world.ended(), 1);
    assert!(connection.begin_request(true).is_none());
    assert!(connection.entry.idle(Duration::from_secs(9)).is_none());
}

#[test]
fn room_is_looked_for_again_after_a_while() {
    let world = ConnectionFixture::new(2, 0);
    let busy: Vec<ClientConnection> = (0..2).map(|_| world.accept(0, "127.0.0.1")).collect();
    let requests: Vec<_> = busy
        .iter()
        .map(|it| it.begin_request(false).unwrap())
        .collect();
    assert!(world.accept(5, "127.0.0.1").is_surplus());
    drop(requests);
    assert!(world.accept(5, "127.0.0.1").is_surplus(), "not at once");
    assert!(!world.accept(6, "127.0.0.1").is_surplus());
    assert_eq!(world.ended(), 1);
}

#[test]
fn idle_connections_are_closed_after_the_timeout() {
    let world = ConnectionFixture::new(100, 0);
    let slow = world.accept(0, "127.0.0.1");
    let stream = world.accept(0, "127.0.0.1");
    let _answer = stream.begin_request(false).unwrap();
    let _later = world.accept(84, "127.0.0.1");
    assert_eq!(world.ended(), 0);
    let _later = world.accept(85, "127.0.0.1");
    assert_eq!(world.ended(), 1);
    assert!(slow.begin_request(true).is_none());
    assert!(stream.begin_request(false).is_some());
}
