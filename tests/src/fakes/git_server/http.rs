//! TLS, authentication and CGI of the git host.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::GitHost;

/// Requests of a clone are small.
const MAX_BODY_BYTES: usize = 1 << 20;

#[derive(Default)]
struct GitRequest {
    method: String,
    path: String,
    query: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl GitRequest {
    fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value)
    }
}

/// The first byte of a connection with TLS (RFC 8446, section 5.1).
const TLS_HANDSHAKE: u8 = 22;

/// Serves until it is dropped.
pub(super) async fn serve(listener: TcpListener, acceptor: TlsAcceptor, host: Arc<GitHost>) {
    let mut open = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while open.try_join_next().is_some() {}
        let (acceptor, host) = (acceptor.clone(), Arc::clone(&host));
        open.spawn(async move {
            // Clients that do not trust the certificate disconnect.
            let _ = serve_connection(stream, &acceptor, &host).await;
        });
    }
}

async fn serve_connection(
    stream: TcpStream,
    acceptor: &TlsAcceptor,
    host: &GitHost,
) -> std::io::Result<()> {
    // A stray client of another test, which had this port, does not speak TLS.
    let mut first = [0];
    if stream.peek(&mut first).await? == 1 && first[0] == TLS_HANDSHAKE {
        host.connections.fetch_add(1, Ordering::SeqCst);
    }
    let mut stream = BufReader::new(acceptor.accept(stream).await?);
    let request = read_request(&mut stream).await?;
    let answer = respond(&request, host).await?;
    stream.write_all(&answer).await?;
    stream.shutdown().await
}

async fn read_request(
    stream: &mut (impl AsyncRead + Unpin + AsyncBufReadExt),
) -> std::io::Result<GitRequest> {
    let mut request = GitRequest::default();
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

async fn respond(request: &GitRequest, host: &GitHost) -> std::io::Result<Vec<u8>> {
    let expected = BASE64_STANDARD.encode(format!("x-access-token:{}", host.token));
    if request.header("authorization") != format!("Basic {expected}") {
        return Ok(text_response(
            "401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"git\"",
            "authentication required",
        ));
    }
    let redirect = host
        .redirect_to
        .lock()
        .expect("the lock is poisoned")
        .clone();
    if let Some(other) = redirect {
        let (path, query) = (&request.path, &request.query);
        let head = format!("302 Found\r\nLocation: {other}{path}?{query}");
        return Ok(text_response(&head, "redirected"));
    }
    if !request.path.starts_with("/acme/tools.git/") {
        return Ok(text_response("404 Not Found", "Repository not found"));
    }
    if request.path.ends_with("/git-upload-pack") {
        host.pack_requests.fetch_add(1, Ordering::SeqCst);
        let released = host.released.notified();
        tokio::pin!(released);
        released.as_mut().enable();
        if host.is_holding.load(Ordering::SeqCst) {
            released.await;
        }
    }
    run_backend(request, host).await
}

/// Runs `git http-backend` as a CGI program.
async fn run_backend(request: &GitRequest, host: &GitHost) -> std::io::Result<Vec<u8>> {
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
    let mut input = child.stdin.take().expect("git has no pipe");
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
            Some(found) => found.clone_into(&mut status),
            None => headers.extend([line, "\r\n"]),
        }
    }
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    Ok([head.as_bytes(), body].concat())
}

fn text_response(status: &str, text: &str) -> Vec<u8> {
    let length = text.len();
    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{text}")
        .into_bytes()
}
