//! The most frequent exchange, written and read here: a GET without a body, and an answer that is short and whole.
//!
//! Nothing is read leniently. Whatever is not plainly such an answer (no single `Content-Length`, another version, a coding, an
//! interim answer, anything more than was announced, a mistake) is left to hyper, which gets to see all that came
//! ([`ReplayStream`](crate::replay_stream::ReplayStream)) and treats it as if it had asked by itself.

use std::io;
use std::ops::Range;

use actix_web::HttpRequest;
use actix_web::http::header::HeaderName;
use actix_web::http::{Method, StatusCode};
use actix_web::web::{Bytes, BytesMut};
use httparse::{EMPTY_HEADER, Response, Status};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Duration, timeout};

use crate::{ForwardError, ForwardTarget, forward, headers};

/// Longest answer, with its head.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;
/// Room for what is read at once, and what a connection has from its beginning.
const READ_BYTES: usize = 4 * 1024;
const BUFFER_BYTES: usize = 8 * 1024;
/// Headers of an answer; hyper takes a few more.
const MAX_HEADERS: usize = 64;
/// Longest path with its query: hyper, which may have to ask again, takes a few bytes more.
const MAX_PATH_BYTES: usize = 60_000;
/// Longest wait for the rest of an answer whose head is there: many servers send the two spawn_connection_task. What takes longer is passed on
/// as it comes.
const BODY_GRACE: Duration = Duration::from_millis(20);

/// A connection on which nothing is under way.
pub(crate) struct FastPathConnection {
    io: TcpStream,
    buffer: BytesMut,
}

/// An answer that is whole.
pub(crate) struct CompleteResponse {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
    headers: Vec<(HeaderName, Range<usize>)>,
    head: Bytes,
}

impl CompleteResponse {
    /// All of its headers, as they came.
    pub(crate) fn headers(&mut self) -> impl Iterator<Item = (HeaderName, Bytes)> {
        let headers = std::mem::take(&mut self.headers);
        let head = &self.head;
        headers.into_iter().map(|(name, at)| (name, head.slice(at)))
    }
}

/// How it went.
pub(crate) enum ExchangeOutcome {
    /// The connection is free again.
    Complete(CompleteResponse, FastPathConnection),
    /// The request is sent, and this much of the answer is there, which is not for us.
    Handoff(TcpStream, Bytes),
}

impl FastPathConnection {
    pub(crate) fn new(io: TcpStream) -> Self {
        let buffer = BytesMut::with_capacity(BUFFER_BYTES);
        Self { io, buffer }
    }

    /// Whether nothing came since its last answer, not even its end. The kernel is asked: the runtime may not have looked since.
    pub(crate) fn is_quiet(&self) -> bool {
        let mut some = [0];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        recv(&self.io, &mut some, flags).is_err_and(|error| error == Errno::AGAIN)
    }

    /// Sends this head and waits for the answer.
    ///
    /// # Errors
    /// [`ForwardError::Broken`] if the connection ended before anything of it came.
    pub(crate) async fn exchange(mut self, head: &[u8]) -> Result<ExchangeOutcome, ForwardError> {
        let broken = |error: io::Error| ForwardError::Broken(error.into());
        self.io.write_all(head).await.map_err(broken)?;
        loop {
            self.buffer.reserve(READ_BYTES);
            if self.io.read_buf(&mut self.buffer).await.map_err(broken)? == 0 {
                if self.buffer.is_empty() {
                    return Err(broken(io::ErrorKind::UnexpectedEof.into()));
                }
                return Ok(self.other());
            }
            match ParsedHead::of(&self.buffer) {
                ParsedHead::Partial => {}
                ParsedHead::Unsupported => return Ok(self.other()),
                ParsedHead::Short(short) => return Ok(self.finish(short).await),
            }
        }
    }

    /// Waits for the rest of the body, but not for long.
    async fn finish(mut self, short: ShortResponseHead) -> ExchangeOutcome {
        let length = short.head + short.body;
        if self.buffer.len() < length {
            self.buffer.reserve(length - self.buffer.len());
            let rest = async {
                while self.buffer.len() < length {
                    if self.io.read_buf(&mut self.buffer).await? == 0 {
                        break;
                    }
                }
                io::Result::Ok(())
            };
            // A mistake comes again.
            let _ = timeout(BODY_GRACE, rest).await;
        }
        if self.buffer.len() != length {
            return self.other();
        }
        let head = self.buffer.split_to(short.head).freeze();
        let body = self.buffer.split_to(short.body).freeze();
        if length > BUFFER_BYTES {
            // Else it would hold that of the answer for as long as nobody asks again.
            self.buffer = BytesMut::new();
        }
        let whole = CompleteResponse {
            status: short.status,
            body,
            headers: short.headers,
            head,
        };
        ExchangeOutcome::Complete(whole, self)
    }

    fn other(self) -> ExchangeOutcome {
        ExchangeOutcome::Handoff(self.io, self.buffer.freeze())
    }
}

/// What the beginning of an answer is.
enum ParsedHead {
    /// Its head is not whole yet.
    Partial,
    Short(ShortResponseHead),
    Unsupported,
}

/// The head of an answer that is short, if it keeps its word.
struct ShortResponseHead {
    status: StatusCode,
    headers: Vec<(HeaderName, Range<usize>)>,
    /// Bytes of each.
    head: usize,
    body: usize,
}

impl ParsedHead {
    fn of(read: &[u8]) -> Self {
        let mut headers = [EMPTY_HEADER; MAX_HEADERS];
        let mut answer = Response::new(&mut headers);
        match answer.parse(read) {
            Ok(Status::Partial) if read.len() < BUFFER_BYTES => Self::Partial,
            Ok(Status::Complete(head)) => {
                let short = short(read, head, &answer);
                short.map_or(Self::Unsupported, Self::Short)
            }
            _ => Self::Unsupported,
        }
    }
}

fn short(read: &[u8], head: usize, answer: &Response<'_, '_>) -> Option<ShortResponseHead> {
    let status = StatusCode::from_u16(answer.code?).ok()?;
    // Others have no body, whatever they say.
    let has_body = status.as_u16() >= 200
        && !matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if answer.version != Some(1) || !has_body {
        return None;
    }
    let mut length = None;
    let mut headers = Vec::with_capacity(answer.headers.len());
    for header in answer.headers.iter() {
        let name = HeaderName::from_bytes(header.name.as_bytes()).ok()?;
        match name.as_str() {
            "content-length" => {
                let earlier = length.replace(self::length(header.value)?);
                if earlier.is_some() {
                    return None;
                }
            }
            "connection" if !header.value.eq_ignore_ascii_case(b"keep-alive") => return None,
            "transfer-encoding" | "upgrade" | "trailer" => return None,
            _ => {}
        }
        // Values are parts of what was read.
        let from = (header.value.as_ptr() as usize).checked_sub(read.as_ptr() as usize)?;
        // An empty one may be none.
        let at = match header.value.len() {
            0 => 0..0,
            length => from..from + length,
        };
        headers.push((name, at));
    }
    let body = length?;
    (head + body <= MAX_RESPONSE_BYTES && read.len() <= head + body).then_some(ShortResponseHead {
        status,
        headers,
        head,
        body,
    })
}

/// Nothing but digits, and not many of them.
fn length(value: &[u8]) -> Option<usize> {
    let is_plain = (1..=6).contains(&value.len()) && value.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(value).ok().filter(|_| is_plain)?;
    text.parse().ok()
}

/// The head of a request as it goes on the wire, if it can be written here. The caller has seen that it has no body.
pub(crate) fn head(req: &HttpRequest, target: &ForwardTarget) -> Option<Vec<u8>> {
    let (path, server) = (target.path_and_query.as_str(), forward::server(target));
    let is_plain =
        |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/%?=&:@!$'()*+,;".contains(&byte);
    let is_server = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    if *req.method() != Method::GET
        || target.base_url.scheme() != "http"
        || !path.starts_with('/')
        || path.len() > MAX_PATH_BYTES
        || !path.bytes().all(is_plain)
        || !server.bytes().all(is_server)
    {
        return None;
    }
    let mut head = Vec::with_capacity(1024);
    for part in ["GET ", path, " HTTP/1.1\r\nhost: ", server, "\r\n"] {
        head.extend_from_slice(part.as_bytes());
    }
    for (name, value) in headers::forwarded_headers(req.headers(), target) {
        head.extend_from_slice(name.as_str().as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"\r\n");
    Some(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(read: &str) -> &'static str {
        match ParsedHead::of(read.as_bytes()) {
            ParsedHead::Partial => "partial",
            ParsedHead::Unsupported => "other",
            ParsedHead::Short(_) => "short",
        }
    }

    #[test]
    fn only_what_has_one_meaning_is_short() {
        let table = [
            ("", "short"),
            ("Content-Type: a/b\r\nConnection: Keep-Alive\r\n", "short"),
            ("Content-Length: 5\r\n", "other"),
            ("Content-Length: 6\r\n", "other"),
            ("Transfer-Encoding: chunked\r\n", "other"),
            ("transfer-encoding: identity\r\n", "other"),
            ("Connection: close\r\n", "other"),
            ("Connection: keep-alive, x\r\n", "other"),
            ("Upgrade: h2c\r\n", "other"),
            ("Bad Name: x\r\n", "other"),
            ("Folded: a\r\n b\r\n", "other"),
            ("X: a\x01b\r\n", "other"),
        ];
        for (more, expected) in table {
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n{more}\r\nhello");
            assert_eq!(parsed(&answer), expected, "{more:?}");
        }
        for length in [
            "", "x", "+5", "-5", "5,5", "5 5", "0x5", "5000000", "70000", "4",
        ] {
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\nhello");
            assert_eq!(parsed(&answer), "other", "{length:?}");
        }
        for line in [
            "HTTP/1.0 200 OK",
            "HTTP/1.1 100 Continue",
            "HTTP/1.1 101 Switching Protocols",
            "HTTP/1.1 204 No Content",
            "HTTP/1.1 304 Not Modified",
            "HTTP/2 200 OK",
            "garbage",
        ] {
            let answer = format!("{line}\r\nContent-Length: 5\r\n\r\nhello");
            assert_eq!(parsed(&answer), "other", "{line}");
        }
        assert_eq!(parsed("HTTP/1.1 200 OK\r\nContent-Le"), "partial");
        assert_eq!(
            parsed("HTTP/1.1 500 Oh\r\nContent-Length: 5\r\n\r\nhe"),
            "short"
        );
        assert_eq!(parsed("HTTP/1.1 200 OK\r\n\r\nhello"), "other", "no length");
        let endless = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(BUFFER_BYTES));
        assert_eq!(parsed(&endless), "other");
    }
}
