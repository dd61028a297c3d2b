//! The fast path for the most frequent exchange: a GET without a body, and a short response that arrives whole.
//!
//! The parser is strict. hyper handles every response that does not clearly qualify: one without a single `Content-Length`,
//! with another version, a transfer coding, an interim response, excess bytes or a syntax error. hyper then reads
//! everything that arrived through [`ReplayStream`](crate::upstream::replay_stream::ReplayStream), as if it had sent the request
//! itself.

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

use crate::error::ForwardError;
use crate::headers;
use crate::target::ForwardTarget;

/// Longest response including its head, in bytes.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;
/// Bytes reserved for one read, and the initial buffer of a connection.
const READ_BYTES: usize = 4 * 1024;
const BUFFER_BYTES: usize = 8 * 1024;
/// Headers of a response. hyper's own limit is slightly higher.
const MAX_HEADERS: usize = 64;
/// Longest path with its query. hyper, which may have to repeat the request, accepts slightly more.
const MAX_PATH_BYTES: usize = 60_000;
/// Longest wait for the body once the head has arrived: many servers send them separately. A slower body is streamed.
const BODY_GRACE: Duration = Duration::from_millis(20);

/// An idle connection.
pub(crate) struct FastPathConnection {
    io: TcpStream,
    buffer: BytesMut,
}

/// A response that arrived whole.
pub(crate) struct CompleteResponse {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
    headers: Vec<(HeaderName, Range<usize>)>,
    head: Bytes,
}

impl CompleteResponse {
    /// Takes all headers in their original order.
    pub(crate) fn headers(&mut self) -> impl Iterator<Item = (HeaderName, Bytes)> {
        let headers = std::mem::take(&mut self.headers);
        let head = &self.head;
        headers
            .into_iter()
            .map(|(name, range)| (name, head.slice(range)))
    }
}

/// The result of an exchange.
pub(crate) enum ExchangeOutcome {
    /// The connection is idle again.
    Complete(CompleteResponse, FastPathConnection),
    /// The request was sent. hyper continues with these bytes of the response.
    Handoff(TcpStream, Bytes),
}

impl FastPathConnection {
    pub(crate) fn new(io: TcpStream) -> Self {
        let buffer = BytesMut::with_capacity(BUFFER_BYTES);
        Self { io, buffer }
    }

    /// Whether the peer has sent neither bytes nor an end since the last response. Asks the kernel, because the runtime may
    /// not have polled the socket since.
    pub(crate) fn is_quiet(&self) -> bool {
        let mut byte = [0];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        recv(&self.io, &mut byte, flags).is_err_and(|error| error == Errno::AGAIN)
    }

    /// Sends this head and waits for the response.
    ///
    /// # Errors
    /// [`ForwardError::Broken`] if the connection ended before the first byte of the response.
    pub(crate) async fn exchange(mut self, head: &[u8]) -> Result<ExchangeOutcome, ForwardError> {
        let broken = |error: io::Error| ForwardError::Broken(error.into());
        self.io.write_all(head).await.map_err(broken)?;
        loop {
            self.buffer.reserve(READ_BYTES);
            if self.io.read_buf(&mut self.buffer).await.map_err(broken)? == 0 {
                if self.buffer.is_empty() {
                    return Err(broken(io::ErrorKind::UnexpectedEof.into()));
                }
                return Ok(self.handoff());
            }
            match ParsedHead::of(&self.buffer) {
                ParsedHead::Partial => {}
                ParsedHead::Unsupported => return Ok(self.handoff()),
                ParsedHead::Short(short) => return Ok(self.finish(short).await),
            }
        }
    }

    /// Waits up to [`BODY_GRACE`] for the rest of the body.
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
            // The next read reports the error again.
            let _ = timeout(BODY_GRACE, rest).await;
        }
        if self.buffer.len() != length {
            return self.handoff();
        }
        let head = self.buffer.split_to(short.head).freeze();
        let body = self.buffer.split_to(short.body).freeze();
        if length > BUFFER_BYTES {
            // Otherwise the buffer keeps the memory of the response until the next request.
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

    fn handoff(self) -> ExchangeOutcome {
        ExchangeOutcome::Handoff(self.io, self.buffer.freeze())
    }
}

/// The result of parsing the bytes received so far.
enum ParsedHead {
    /// The head is incomplete.
    Partial,
    Short(ShortResponseHead),
    Unsupported,
}

/// The head of a response that qualifies, if its length is correct.
struct ShortResponseHead {
    status: StatusCode,
    headers: Vec<(HeaderName, Range<usize>)>,
    /// Lengths in bytes.
    head: usize,
    body: usize,
}

impl ParsedHead {
    fn of(read: &[u8]) -> Self {
        let mut headers = [EMPTY_HEADER; MAX_HEADERS];
        let mut response = Response::new(&mut headers);
        match response.parse(read) {
            Ok(Status::Partial) if read.len() < BUFFER_BYTES => Self::Partial,
            Ok(Status::Complete(head)) => {
                let short = short(read, head, &response);
                short.map_or(Self::Unsupported, Self::Short)
            }
            _ => Self::Unsupported,
        }
    }
}

fn short(read: &[u8], head: usize, response: &Response<'_, '_>) -> Option<ShortResponseHead> {
    let status = StatusCode::from_u16(response.code?).ok()?;
    // Responses with other statuses have no body, whatever their headers say.
    let has_body = status.as_u16() >= 200
        && !matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    if response.version != Some(1) || !has_body {
        return None;
    }
    let mut length = None;
    let mut headers = Vec::with_capacity(response.headers.len());
    for header in response.headers.iter() {
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
        // Values are slices of `read`.
        let from = (header.value.as_ptr() as usize).checked_sub(read.as_ptr() as usize)?;
        // An empty value may not point into `read`.
        let range = match header.value.len() {
            0 => 0..0,
            length => from..from + length,
        };
        headers.push((name, range));
    }
    let body = length?;
    (head + body <= MAX_RESPONSE_BYTES && read.len() <= head + body).then_some(ShortResponseHead {
        status,
        headers,
        head,
        body,
    })
}

/// Parses one to six digits.
fn length(value: &[u8]) -> Option<usize> {
    let is_plain = (1..=6).contains(&value.len()) && value.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(value).ok().filter(|_| is_plain)?;
    text.parse().ok()
}

/// The request head as it goes on the wire, if the fast path can write it. The caller has checked that there is no body.
pub(crate) fn head(req: &HttpRequest, target: &ForwardTarget) -> Option<Vec<u8>> {
    let (path, server) = (target.path_and_query.as_str(), target.server());
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
    fn only_unambiguous_responses_use_the_fast_path() {
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
            let response = format!("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n{more}\r\nhello");
            assert_eq!(parsed(&response), expected, "{more:?}");
        }
        for length in [
            "", "x", "+5", "-5", "5,5", "5 5", "0x5", "5000000", "70000", "4",
        ] {
            let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\nhello");
            assert_eq!(parsed(&response), "other", "{length:?}");
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
            let response = format!("{line}\r\nContent-Length: 5\r\n\r\nhello");
            assert_eq!(parsed(&response), "other", "{line}");
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
