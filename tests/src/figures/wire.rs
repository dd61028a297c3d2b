//! A connection that costs little processor time, because benchmarks share two cores with the server.

use std::io::{Error, ErrorKind};
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// An HTTP/1.1 connection for one request after the other.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    /// Received bytes.
    buffer: Vec<u8>,
}

/// Status and size of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseHead {
    /// Status code.
    pub status: u16,
    /// Size of the body on the wire.
    pub bytes: usize,
}

/// The bytes of a request. `headers` are lines without line ends.
#[must_use]
pub fn request(method: &str, path: &str, headers: &[String], body: &str) -> Vec<u8> {
    let mut text = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n");
    for line in headers {
        text.push_str(line);
        text.push_str("\r\n");
    }
    if !body.is_empty() {
        text.push_str("Content-Type: application/json\r\n");
        text.push_str("Content-Length: ");
        text.push_str(&body.len().to_string());
        text.push_str("\r\n");
    }
    text.push_str("\r\n");
    text.push_str(body);
    text.into_bytes()
}

/// The header line with a key.
#[must_use]
pub fn key_header(key: &str) -> String {
    format!("X-Session-API-Key: {key}")
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// When the server does not listen.
    pub async fn open(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let buffer = Vec::with_capacity(64 * 1024);
        Ok(Self { stream, buffer })
    }

    /// Sends a request and reads the complete response.
    ///
    /// # Errors
    /// When the connection ends, or the response has neither a length nor chunks.
    pub async fn exchange(&mut self, request: &[u8]) -> std::io::Result<ResponseHead> {
        self.stream.write_all(request).await?;
        self.buffer.clear();
        let head = loop {
            if let Some(at) = find(&self.buffer, b"\r\n\r\n") {
                break at + 4;
            }
            self.read_more().await?;
        };
        let (status, length) = read_head(&self.buffer[..head])?;
        match length {
            Some(length) => {
                while self.buffer.len() < head + length {
                    self.read_more().await?;
                }
            }
            // The last chunk ends the bytes: nothing follows before the next request.
            None => {
                while !self.buffer[head..].ends_with(b"0\r\n\r\n") {
                    self.read_more().await?;
                }
            }
        }
        let bytes = self.buffer.len() - head;
        Ok(ResponseHead { status, bytes })
    }

    /// The bytes of the last response, with its head.
    #[must_use]
    pub fn received(&self) -> &[u8] {
        &self.buffer
    }

    /// The stream, for use after an upgrade.
    pub fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    async fn read_more(&mut self) -> std::io::Result<()> {
        match self.stream.read_buf(&mut self.buffer).await? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

/// Status, and the length of the body; `None` for a chunked body.
fn read_head(head: &[u8]) -> std::io::Result<(u16, Option<usize>)> {
    let invalid = || Error::new(ErrorKind::InvalidData, "the response is not valid HTTP");
    let text = std::str::from_utf8(head).map_err(|_| invalid())?;
    let mut lines = text.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1));
    let status = status.and_then(|it| it.parse().ok()).ok_or_else(invalid)?;
    if matches!(status, 101 | 204) {
        return Ok((status, Some(0)));
    }
    for line in lines {
        let Some((name, value)) = line.split_once(':') else {
            continue;
        };
        if name.eq_ignore_ascii_case("content-length") {
            let length = value.trim().parse().map_err(|_| invalid())?;
            return Ok((status, Some(length)));
        }
        if name.eq_ignore_ascii_case("transfer-encoding") {
            return Ok((status, None));
        }
    }
    Err(invalid())
}

fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes.windows(needle.len()).position(|it| it == needle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bodies_with_a_length_and_in_chunks_are_read_completely() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 64];
            for answer in [
                &["HTTP/1.1 200 OK\r\nContent-Le", "ngth: 5\r\n\r\nhe", "llo"][..],
                &[
                    "HTTP/1.1 404 Not Found\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n",
                    "0\r\n\r\n",
                ],
                &["HTTP/1.1 204 No Content\r\n\r\n"],
            ] {
                assert!(stream.read(&mut request).await.unwrap() > 0);
                for part in answer {
                    stream.write_all(part.as_bytes()).await.unwrap();
                    tokio::task::yield_now().await;
                }
            }
        };
        let client = async {
            let mut connection = Connection::open(address).await.unwrap();
            let request = request("GET", "/", &[key_header("k")], "");
            let mut answers = Vec::new();
            for _ in 0..3 {
                let answer = connection.exchange(&request).await.unwrap();
                answers.push((answer.status, answer.bytes));
            }
            assert_eq!(answers, [(200, 5), (404, 12), (204, 0)]);
            let ended = connection.exchange(&request).await;
            assert!(ended.is_err(), "{ended:?}");
        };
        tokio::join!(server, client);
    }
}
