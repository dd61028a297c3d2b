//! Short answers, which are read without hyper, and what follows when an answer turns out to be another.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gateway::GatewayLimits;
use tokio::time::sleep;

use crate::fixture::{Client, GatewayFixture, eventually, get, status};

/// What a server has done.
#[derive(Default)]
struct ExchangeResult {
    connections: AtomicUsize,
    /// Parts of answers that were sent.
    sent: AtomicUsize,
}

/// In front of a server that says these one after the other, over each of its connections, with a pause between the parts of
/// each.
async fn saying(answers: Vec<Vec<String>>) -> (GatewayFixture, Arc<ExchangeResult>) {
    let done = Arc::new(ExchangeResult::default());
    let count = Arc::clone(&done);
    let next = Arc::new(AtomicUsize::new(0));
    let fixture = GatewayFixture::before(GatewayLimits::default(), move |stream| {
        count.connections.fetch_add(1, Ordering::Relaxed);
        let (answers, next, count) = (answers.clone(), Arc::clone(&next), Arc::clone(&count));
        async move {
            let mut behind = Client(stream);
            loop {
                behind.head().await;
                let which = next.fetch_add(1, Ordering::Relaxed);
                let Some(answer) = answers.get(which) else {
                    return;
                };
                for (at, part) in answer.iter().enumerate() {
                    if at > 0 {
                        sleep(Duration::from_millis(100)).await;
                    }
                    behind.send(part.as_bytes()).await;
                    count.sent.fetch_add(1, Ordering::Relaxed);
                }
                if which + 1 == answers.len() {
                    return;
                }
            }
        }
    })
    .await;
    (fixture, done)
}

fn parts(answer: &[&str]) -> Vec<String> {
    answer.iter().map(|it| (*it).to_owned()).collect()
}

/// What a client gets of it: the status and the body, which comes in chunks where its length was not announced.
async fn asked(fixture: &GatewayFixture) -> (u16, String) {
    let answer = fixture.ask(&get("/some")).await;
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(!head.to_ascii_lowercase().contains("x-hop"), "{head}");
    let is_chunked = head.contains("transfer-encoding: chunked");
    let body = if is_chunked {
        let lines: Vec<&str> = body.split("\r\n").collect();
        lines.iter().skip(1).step_by(2).copied().collect()
    } else {
        body.to_owned()
    };
    (status(&answer), body)
}

const HELLO: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Own: 1\r\n\r\nhello";

#[actix_web::test]
async fn short_answers_follow_each_other_over_one_connection() {
    let head = "HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\nConnection: Keep-Alive\r\nKeep-Alive: timeout=5\r\n\r\n";
    let empty = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    // The last waits for its other half longer than we do.
    let table = vec![
        parts(&[HELLO]),
        parts(&[&format!("{head}gone")]),
        parts(&[empty]),
        parts(&["HTTP/1.1 200 OK\r\nContent-", "Length: 3\r\n\r\nyes"]),
        parts(&["HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nha", "lf"]),
        parts(&[HELLO]),
    ];
    let (fixture, done) = saying(table).await;
    for expected in [
        (200, "hello"),
        (404, "gone"),
        (200, ""),
        (200, "yes"),
        (200, "half"),
        (200, "hello"),
    ] {
        let (status, body) = asked(&fixture).await;
        assert_eq!((status, body.as_str()), expected);
    }
    assert_eq!(done.connections.load(Ordering::Relaxed), 1);
    let counts = fixture.shared.meter().counts();
    assert_eq!((counts.answered, counts.bytes_down), (6, 21));
    eventually("no request is open", || {
        fixture.shared.meter().counts().requests_open == 0
    })
    .await;
    fixture.stop().await;
}

#[actix_web::test]
async fn other_answers_come_whole_and_their_connections_go_on() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let table = vec![
        parts(&[HELLO]),
        parts(&[&format!("{chunked}3\r\nabc\r\n0\r\n\r\n")]),
        parts(&[HELLO]),
        parts(&[&format!("{chunked}3\r\nabc\r\n"), "2\r\nde\r\n0\r\n\r\n"]),
        parts(&[&format!("HTTP/1.1 100 Continue\r\n\r\n{HELLO}")]),
        parts(&["HTTP/1.1 103 Early Hints\r\n\r\n", HELLO]),
        parts(&["HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n"]),
        // Its end is the connection's.
        parts(&["HTTP/1.1 200 OK\r\n\r\nto the ", "end"]),
    ];
    let (fixture, done) = saying(table).await;
    for expected in [
        (200, "hello"),
        (200, "abc"),
        (200, "hello"),
        (200, "abcde"),
        (200, "hello"),
        (200, "hello"),
        (304, ""),
        (200, "to the end"),
    ] {
        let (status, body) = asked(&fixture).await;
        assert_eq!((status, body.as_str()), expected);
    }
    assert_eq!(done.connections.load(Ordering::Relaxed), 1);
    fixture.stop().await;
}

#[actix_web::test]
async fn the_first_answer_may_be_of_the_other_kind() {
    for first in [
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close, x-hop\r\nX-Hop: 1\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    ] {
        let (fixture, _) = saying(vec![parts(&[first])]).await;
        assert_eq!(asked(&fixture).await, (200, "hello".to_owned()), "{first}");
        fixture.stop().await;
    }
    let large = "x".repeat(1 << 20);
    let answer = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{large}",
        large.len()
    );
    let (fixture, _) = saying(vec![parts(&[&answer])]).await;
    let (status, body) = asked(&fixture).await;
    assert_eq!(status, 200);
    assert!(body == large, "{} bytes", body.len());
    fixture.stop().await;
}

#[actix_web::test]
async fn unsolicited_bytes_close_the_connection() {
    let smuggled = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nsmuggle";
    for sent in [
        parts(&[&format!("{HELLO}{smuggled}")]),
        // After the answer was taken.
        parts(&[HELLO, smuggled]),
    ] {
        let parts_sent = sent.len();
        let (fixture, done) = saying(vec![sent, parts(&[HELLO])]).await;
        assert_eq!(asked(&fixture).await, (200, "hello".to_owned()));
        eventually("it was sent", || {
            done.sent.load(Ordering::Relaxed) == parts_sent
        })
        .await;
        assert_eq!(asked(&fixture).await, (200, "hello".to_owned()));
        assert_eq!(done.connections.load(Ordering::Relaxed), 2);
        fixture.stop().await;
    }
}
