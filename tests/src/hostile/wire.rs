//! Sends requests as bytes over a socket, because a client library would repair or refuse invalid ones.

use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Maximum size of a response that is read.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// A request, which may be invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) method: String,
    /// Path and query as they are sent.
    pub(super) target: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Option<Vec<u8>>,
}

/// A response.
#[derive(Debug, Clone)]
pub(super) struct Response {
    pub(super) status: u16,
    /// Names in lower case.
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

/// Why an exchange has no complete response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ExchangeError {
    /// The connection is still open after the deadline. Contains the received text.
    TimedOut(String),
    /// The connection was closed without a response, or could not be opened.
    Closed(String),
    /// The received bytes are not HTTP.
    Garbled(String),
    /// The response is truncated.
    Cut(String),
}

/// An error of a chunked body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChunkError {
    Bad,
    Cut,
}

impl Request {
    /// The path alone.
    pub(super) fn path(&self) -> &str {
        self.target.split(['?', '#']).next().unwrap_or_default()
    }

    pub(super) fn has_header(&self, name: &str) -> bool {
        let mut names = self.headers.iter().map(|(name, _)| name);
        names.any(|known| known.eq_ignore_ascii_case(name))
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        for (name, value) in &self.headers {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        if !self.has_header("host") {
            head.push_str("Host: localhost\r\n");
        }
        if let Some(body) = &self.body {
            let _ = write!(head, "Content-Length: {}\r\n", body.len());
        }
        head.push_str("Connection: close\r\n\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend(self.body.as_deref().unwrap_or_default());
        bytes
    }

    /// A command with which a person can repeat the request.
    pub(super) fn curl(&self, address: SocketAddr) -> String {
        let mut line = format!("curl -i --path-as-is -X {}", quoted(self.method.as_bytes()));
        for (name, value) in &self.headers {
            let _ = write!(
                line,
                " -H {}",
                quoted(format!("{name}: {value}").as_bytes())
            );
        }
        if let Some(body) = &self.body {
            let _ = write!(line, " --data-binary {}", quoted(body));
        }
        let url = format!("http://{address}{}", self.target);
        let _ = write!(line, " {}", quoted(url.as_bytes()));
        line
    }
}

/// Quotes bytes as one word for bash.
fn quoted(bytes: &[u8]) -> String {
    let mut word = String::from("$'");
    for byte in bytes {
        match byte {
            b'\'' | b'\\' => {
                word.push('\\');
                word.push(char::from(*byte));
            }
            b' '..=b'~' => word.push(char::from(*byte)),
            _ => {
                let _ = write!(word, "\\x{byte:02x}");
            }
        }
    }
    word.push('\'');
    word
}

impl Response {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Sends bytes, reads until the peer closes, and parses one response.
pub(super) async fn exchange(
    address: SocketAddr,
    bytes: &[u8],
    deadline: Duration,
) -> Result<Response, ExchangeError> {
    let received = send(address, bytes, deadline).await?;
    let (first, _) = parse(&received)?;
    Ok(first)
}

/// Sends bytes and reads until the peer closes.
pub(super) async fn send(
    address: SocketAddr,
    bytes: &[u8],
    deadline: Duration,
) -> Result<Vec<u8>, ExchangeError> {
    let follows_log = follows_log(bytes);
    let mut received = Vec::new();
    let all = async {
        let mut stream = TcpStream::connect(address).await?;
        let (mut reader, mut writer) = stream.split();
        // The service may respond and close before it has read everything.
        let write = async {
            let _ = writer.write_all(bytes).await;
            io::Result::Ok(())
        };
        let read = async {
            let mut limited =
                (&mut reader).take(u64::try_from(MAX_ANSWER_BYTES).unwrap_or(u64::MAX));
            loop {
                match limited.read_buf(&mut received).await {
                    Ok(0) => break,
                    Ok(_) if end_stream(&mut received, follows_log) => break,
                    Ok(_) => {}
                    // A reset after the response does not shorten it.
                    Err(_) if !received.is_empty() => break,
                    Err(error) => return Err(error),
                }
            }
            io::Result::Ok(())
        };
        futures::future::try_join(write, read).await.map(|_| ())
    };
    match tokio::time::timeout(deadline, all).await {
        Err(_) => {
            let received = String::from_utf8_lossy(&received).into_owned();
            Err(ExchangeError::TimedOut(received))
        }
        Ok(Err(error)) => Err(ExchangeError::Closed(error.to_string())),
        Ok(Ok(())) if received.is_empty() => Err(ExchangeError::Closed("no answer".to_owned())),
        Ok(Ok(())) => Ok(received),
    }
}

/// Whether the request follows a log, whose response ends with its sandbox.
fn follows_log(request: &[u8]) -> bool {
    let line = request
        .split(|byte| *byte == b'\r')
        .next()
        .unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    line.contains("/logs?") && line.contains("follow=")
}

/// Ends the response of a stream after its first event, and that of a followed log after its head, because the service
/// would continue both.
fn end_stream(received: &mut Vec<u8>, follows_log: bool) -> bool {
    let find = |text: &[u8], from: usize| {
        let mut parts = received[from..].windows(text.len());
        let found = parts.position(|part| part == text);
        found.map(|at| from + at + text.len())
    };
    let mut begin = 0;
    // Interim responses (`100 Continue`) come before it.
    let head_end = loop {
        let Some(end) = find(b"\r\n\r\n", begin) else {
            return false;
        };
        if !received[begin..].starts_with(b"HTTP/1.1 1") {
            break end;
        }
        begin = end;
    };
    let head = String::from_utf8_lossy(&received[begin..head_end]);
    let end = if head.contains("\r\ncontent-type: text/event-stream") {
        find(b"\n\n\r\n", head_end)
    } else {
        let is_log = follows_log && head.contains("\r\ntransfer-encoding: chunked");
        is_log.then_some(head_end)
    };
    if let Some(end) = end {
        received.truncate(end);
        received.extend_from_slice(b"0\r\n\r\n");
    }
    end.is_some()
}

/// The first response in `bytes`, and the bytes after it.
pub(super) fn parse(bytes: &[u8]) -> Result<(Response, &[u8]), ExchangeError> {
    let garbled =
        |why: &str| ExchangeError::Garbled(format!("{why}: {}", String::from_utf8_lossy(bytes)));
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    let (head, rest) = bytes.split_at(end.ok_or_else(|| garbled("no end of headers"))?);
    let rest = &rest[4..];
    let head = String::from_utf8_lossy(head);
    let mut lines = head.split("\r\n");
    let status = lines
        .next()
        .and_then(|line| line.split(' ').nth(1)?.parse().ok());
    let status: u16 = status.ok_or_else(|| garbled("no status"))?;
    if status < 200 {
        return parse(rest);
    }
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()))
        .collect();
    let mut response = Response {
        status,
        headers,
        body: Vec::new(),
    };
    if response
        .header("transfer-encoding")
        .is_some_and(|coding| coding.contains("chunked"))
    {
        let (body, rest) = unchunked(rest).map_err(|wrong| match wrong {
            ChunkError::Bad => garbled("bad chunks"),
            ChunkError::Cut => ExchangeError::Cut(String::from_utf8_lossy(bytes).into_owned()),
        })?;
        response.body = body;
        return Ok((response, rest));
    }
    let length = response
        .header("content-length")
        .and_then(|length| length.parse::<usize>().ok());
    let length = length.unwrap_or(rest.len()).min(rest.len());
    let (body, rest) = rest.split_at(length);
    body.clone_into(&mut response.body);
    Ok((response, rest))
}

fn unchunked(mut bytes: &[u8]) -> Result<(Vec<u8>, &[u8]), ChunkError> {
    let mut body = Vec::new();
    loop {
        let end = bytes.windows(2).position(|two| two == b"\r\n");
        let (size, rest) = bytes.split_at(end.ok_or(ChunkError::Cut)?);
        let size = std::str::from_utf8(size).ok();
        let size = size.and_then(|size| size.split(';').next());
        let size = size.and_then(|size| usize::from_str_radix(size.trim(), 16).ok());
        let (size, rest) = (size.ok_or(ChunkError::Bad)?, &rest[2..]);
        body.extend(rest.get(..size).ok_or(ChunkError::Cut)?);
        bytes = rest.get(size + 2..).ok_or(ChunkError::Cut)?;
        if size == 0 {
            return Ok((body, bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_one_by_one() {
        let bytes = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 404 No\r\n\
            Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        let (first, rest) = parse(bytes).expect("it is HTTP");
        assert_eq!((first.status, first.text().as_str()), (200, "ok"));
        let (second, rest) = parse(rest).expect("it is HTTP");
        assert_eq!((second.status, second.text().as_str()), (404, "abc"));
        assert!(rest.is_empty());
    }

    #[test]
    fn a_truncated_response_differs_from_a_garbled_one() {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        for chunks in ["", "3", "3\r\nab", "3\r\nabc\r\n", "3\r\nabc\r\n0\r\n"] {
            let answer = format!("{head}{chunks}");
            let cut = parse(answer.as_bytes()).expect_err(chunks);
            assert_eq!(cut, ExchangeError::Cut(answer.clone()), "{chunks}");
        }
        let garbled = parse(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n");
        assert!(
            matches!(garbled, Err(ExchangeError::Garbled(_))),
            "{garbled:?}"
        );
    }

    #[test]
    fn a_curl_line_survives_bash() {
        assert_eq!(quoted(b"it's \\ \xff\n"), r"$'it\'s \\ \xff\x0a'");
    }
}
