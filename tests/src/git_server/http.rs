//! TLS, authentication, and CGI.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::Host;

/// A clone's requests are small.
const MAX_BODY_BYTES: usize = 1 << 20;

/// A request.
#[derive(Default)]
struct Request {
    method: String,
    path: String,
    query: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Request {
    fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value)
    }
}

/// Serves until it is dropped.
pub(super) async fn serve(listener: TcpListener, acceptor: TlsAcceptor, host: Arc<Host>) {
    let mut open = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while open.try_join_next().is_some() {}
        host.arrivals.fetch_add(1, Ordering::SeqCst);
        let (acceptor, host) = (acceptor.clone(), Arc::clone(&host));
        open.spawn(async move {
            // Whoever does not trust the certificate goes away.
            let _ = answer(stream, &acceptor, &host).await;
        });
    }
}

async fn answer(stream: TcpStream, acceptor: &TlsAcceptor, host: &Host) -> std::io::Result<()> {
    let mut stream = BufReader::new(acceptor.accept(stream).await?);
    let request = read(&mut stream).await?;
    let answer = respond(&request, host).await?;
    stream.write_all(&answer).await?;
    stream.shutdown().await
}

async fn read(stream: &mut (impl AsyncRead + Unpin + AsyncBufReadExt)) -> std::io::Result<Request> {
    let mut request = Request::default();
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    let mut words = line.split(' ');
    request.method = words.next().unwrap_or_default().to_owned();
    let target = words.next().unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    (request.path, request.query) = (path.to_owned(), query.to_owned());
    loop {
        line.clear();
        stream.read_line(&mut line).await?;
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            break;
        };
        let name = name.to_ascii_lowercase();
        request.headers.push((name, value.to_owned()));
    }
    let length: usize = request.header("content-length").parse().unwrap_or(0);
    request.body = vec![0; length.min(MAX_BODY_BYTES)];
    stream.read_exact(&mut request.body).await?;
    Ok(request)
}

async fn respond(request: &Request, host: &Host) -> std::io::Result<Vec<u8>> {
    let expected = BASE64_STANDARD.encode(format!("x-access-token:{}", host.token));
    if request.header("authorization") != format!("Basic {expected}") {
        return Ok(plain(
            "401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"git\"",
            "who are you?",
        ));
    }
    let elsewhere = host.sends_to.lock().expect("no panic before").clone();
    if let Some(other) = elsewhere {
        let (path, query) = (&request.path, &request.query);
        let head = format!("302 Found\r\nLocation: {other}{path}?{query}");
        return Ok(plain(&head, "over there"));
    }
    if !request.path.starts_with("/acme/tools.git/") {
        return Ok(plain("404 Not Found", "Repository not found"));
    }
    if request.path.ends_with("/git-upload-pack") {
        host.packs.fetch_add(1, Ordering::SeqCst);
        let released = host.released.notified();
        tokio::pin!(released);
        released.as_mut().enable();
        if host.holds.load(Ordering::SeqCst) {
            released.await;
        }
    }
    backend(request, host).await
}

/// `git http-backend`, as a CGI program.
async fn backend(request: &Request, host: &Host) -> std::io::Result<Vec<u8>> {
    let mut child = Command::new("git")
        .arg("http-backend")
        .env("GIT_PROJECT_ROOT", &host.root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("REQUEST_METHOD", &request.method)
        .env("PATH_INFO", &request.path)
        .env("QUERY_STRING", &request.query)
        .env("CONTENT_TYPE", request.header("content-type"))
        .env("CONTENT_LENGTH", request.body.len().to_string())
        .env("HTTP_CONTENT_ENCODING", request.header("content-encoding"))
        .env("GIT_PROTOCOL", request.header("git-protocol"))
        .env("REMOTE_USER", "test")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut input = child.stdin.take().expect("a piped input");
    input.write_all(&request.body).await?;
    drop(input);
    let output = child.wait_with_output().await?.stdout;
    let end = output.windows(4).position(|four| four == b"\r\n\r\n");
    let end = end.map_or(output.len(), |end| end + 4);
    let (head, body) = output.split_at(end);
    let head = String::from_utf8_lossy(head).into_owned();
    let mut status = "200 OK".to_owned();
    let mut headers = String::new();
    for line in head.lines().filter(|line| !line.is_empty()) {
        match line.strip_prefix("Status: ") {
            Some(named) => named.clone_into(&mut status),
            None => headers.extend([line, "\r\n"]),
        }
    }
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    Ok([head.as_bytes(), body].concat())
}

fn plain(status: &str, text: &str) -> Vec<u8> {
    let length = text.len();
    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{text}")
        .into_bytes()
}
