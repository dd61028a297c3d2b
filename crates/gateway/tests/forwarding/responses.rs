//! Responses of many forms.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gateway::GatewayLimits;
use tokio::time::sleep;

use crate::fixture::{Client, GatewayFixture, get_request, status, wait_until};

#[derive(Default)]
struct UpstreamCounts {
    connections: AtomicUsize,
    /// Sent parts of responses.
    sent: AtomicUsize,
}

/// An upstream that sends these responses one after the other, with a pause between the parts of a response.
async fn responding_with(answers: Vec<Vec<String>>) -> (GatewayFixture, Arc<UpstreamCounts>) {
    let done = Arc::new(UpstreamCounts::default());
    let count = Arc::clone(&done);
    let next = Arc::new(AtomicUsize::new(0));
    let fixture = GatewayFixture::with_upstream(GatewayLimits::default(), move |stream| {
        count.connections.fetch_add(1, Ordering::Relaxed);
        let (answers, next, count) = (answers.clone(), Arc::clone(&next), Arc::clone(&count));
        async move {
            let mut upstream = Client(stream);
            loop {
                upstream.read_head().await;
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(response) = answers.get(index) else {
                    return;
                };
                for (position, part) in response.iter().enumerate() {
                    if position > 0 {
                        sleep(Duration::from_millis(100)).await;
                    }
                    upstream.send(part.as_bytes()).await;
                    count.sent.fetch_add(1, Ordering::Relaxed);
                }
                if index + 1 == answers.len() {
                    return;
                }
            }
        }
    })
    .await;
    (fixture, done)
}

fn parts(response: &[&str]) -> Vec<String> {
    response.iter().map(|part| (*part).to_owned()).collect()
}

/// The status and the decoded body of the response that a client gets.
async fn get_response(fixture: &GatewayFixture) -> (u16, String) {
    let response = fixture.send_request(&get_request("/some")).await;
    let (head, body) = response.split_once("\r\n\r\n").expect("a head");
    assert!(!head.to_ascii_lowercase().contains("x-hop"), "{head}");
    let is_chunked = head.contains("transfer-encoding: chunked");
    let body = if is_chunked {
        let lines: Vec<&str> = body.split("\r\n").collect();
        lines.iter().skip(1).step_by(2).copied().collect()
    } else {
        body.to_owned()
    };
    (status(&response), body)
}

const HELLO: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Own: 1\r\n\r\nhello";

#[actix_web::test]
async fn short_responses_share_one_connection() {
    let head = "HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\nConnection: Keep-Alive\r\nKeep-Alive: timeout=5\r\n\r\n";
    let empty = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    // The pause within the fifth response is longer than the grace for a body.
    let table = vec![
        parts(&[HELLO]),
        parts(&[&format!("{head}gone")]),
        parts(&[empty]),
        parts(&["HTTP/1.1 200 OK\r\nContent-", "Length: 3\r\n\r\nyes"]),
        parts(&["HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nha", "lf"]),
        parts(&[HELLO]),
    ];
    let (fixture, done) = responding_with(table).await;
    for expected in [
        (200, "hello"),
        (404, "gone"),
        (200, ""),
        (200, "yes"),
        (200, "half"),
        (200, "hello"),
    ] {
        let (status, body) = get_response(&fixture).await;
        assert_eq!((status, body.as_str()), expected);
    }
    assert_eq!(done.connections.load(Ordering::Relaxed), 1);
    let counts = fixture.shared.meter().counts();
    assert_eq!((counts.answered, counts.bytes_down), (6, 21));
    wait_until("no request is open", || {
        fixture.shared.meter().counts().requests_open == 0
    })
    .await;
    fixture.stop().await;
}

#[actix_web::test]
async fn other_responses_are_complete_and_their_connections_reused() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let table = vec![
        parts(&[HELLO]),
        parts(&[&format!("{chunked}3\r\nabc\r\n0\r\n\r\n")]),
        parts(&[HELLO]),
        parts(&[&format!("{chunked}3\r\nabc\r\n"), "2\r\nde\r\n0\r\n\r\n"]),
        parts(&[&format!("HTTP/1.1 100 Continue\r\n\r\n{HELLO}")]),
        parts(&["HTTP/1.1 103 Early Hints\r\n\r\n", HELLO]),
        parts(&["HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n"]),
        // The end of the connection ends the body.
        parts(&["HTTP/1.1 200 OK\r\n\r\nto the ", "end"]),
    ];
    let (fixture, done) = responding_with(table).await;
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
        let (status, body) = get_response(&fixture).await;
        assert_eq!((status, body.as_str()), expected);
    }
    assert_eq!(done.connections.load(Ordering::Relaxed), 1);
    fixture.stop().await;
}

#[actix_web::test]
async fn the_first_response_may_take_either_path() {
    for first in [
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close, x-hop\r\nX-Hop: 1\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    ] {
        let (fixture, _) = responding_with(vec![parts(&[first])]).await;
        assert_eq!(
            get_response(&fixture).await,
            (200, "hello".to_owned()),
            "{first}"
        );
        fixture.stop().await;
    }
    let large = "x".repeat(1 << 20);
    let response = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{large}",
        large.len()
    );
    let (fixture, _) = responding_with(vec![parts(&[&response])]).await;
    let (status, body) = get_response(&fixture).await;
    assert_eq!(status, 200);
    assert!(body == large, "{} bytes", body.len());
    fixture.stop().await;
}

#[actix_web::test]
async fn unsolicited_bytes_close_the_connection() {
    let smuggled = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nsmuggle";
    for sent in [
        parts(&[&format!("{HELLO}{smuggled}")]),
        // After the first response was read.
        parts(&[HELLO, smuggled]),
    ] {
        let parts_sent = sent.len();
        let (fixture, done) = responding_with(vec![sent, parts(&[HELLO])]).await;
        assert_eq!(get_response(&fixture).await, (200, "hello".to_owned()));
        wait_until("all parts are sent", || {
            done.sent.load(Ordering::Relaxed) == parts_sent
        })
        .await;
        assert_eq!(get_response(&fixture).await, (200, "hello".to_owned()));
        assert_eq!(done.connections.load(Ordering::Relaxed), 2);
        fixture.stop().await;
    }
}
