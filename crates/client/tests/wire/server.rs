//! A scripted service. It serves one connection after the other.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// What to do on a connection, once a request has been read.
pub(crate) enum Step {
    /// Send this and close.
    Respond(String),
    /// Send this, and hold the connection without another word.
    Hold(String),
}

/// The service.
pub(crate) struct ScriptedServer {
    pub(crate) url: String,
    requests: Receiver<String>,
}

impl ScriptedServer {
    /// Each step is for one connection; then nothing listens.
    pub(crate) fn new(steps: Vec<Step>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (seen, requests) = channel();
        std::thread::spawn(move || {
            let mut held = Vec::new();
            for step in steps {
                let (stream, _) = listener.accept().unwrap();
                held.extend(serve(stream, step, &seen));
            }
            drop(listener);
            // Until the test is over.
            std::thread::park_timeout(Duration::from_secs(60));
        });
        Self { url, requests }
    }

    /// The next request: its head in lower case, then its body.
    pub(crate) fn request(&self) -> String {
        self.requests.recv_timeout(Duration::from_secs(30)).unwrap()
    }
}

fn serve(mut stream: TcpStream, step: Step, seen: &Sender<String>) -> Option<TcpStream> {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let line = line.to_lowercase();
        if let Some(number) = line.strip_prefix("content-length:") {
            length = number.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
        head += &line;
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    // The test may be over.
    let _ = seen.send(format!("{head}\n{}", String::from_utf8(body).unwrap()));
    match step {
        Step::Respond(text) => {
            let _ = stream.write_all(text.as_bytes());
            None
        }
        Step::Hold(text) => {
            let _ = stream.write_all(text.as_bytes());
            Some(stream)
        }
    }
}

/// A whole answer, which says that nothing more comes on its connection.
pub(crate) fn http_response(status: &str, headers: &str, body: &str) -> Step {
    let length = body.len();
    Step::Respond(format!(
        "HTTP/1.1 {status}\r\nConnection: close\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
    ))
}

/// The beginning of a stream of events, which is cut after this.
pub(crate) fn stream(text: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n{text}")
}
