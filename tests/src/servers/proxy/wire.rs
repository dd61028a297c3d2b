//! HTTP and `WebSockets` over TLS at the level of bytes, which shows what a proxy does with connections and chunks.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader,
};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::rustls::pki_types::ServerName;

use super::authority::Authority;
use crate::stub::traffic::SOCKET_KEY;
use crate::wait::within;

/// Opcodes of frames (RFC 6455, section 5.2).
const TEXT_FRAME: u8 = 1;
const CLOSE_FRAME: u8 = 8;
const PING_FRAME: u8 = 9;
const PONG_FRAME: u8 = 10;
/// Values of a frame's length field: the length follows in two or in eight bytes.
const TWO_BYTE_LENGTH: u8 = 126;
const EIGHT_BYTE_LENGTH: u8 = 127;
/// For one read or write.
const IO_TIMEOUT: Duration = Duration::from_secs(60);

trait ByteStream: AsyncRead + AsyncWrite + Unpin {}
impl<S: AsyncRead + AsyncWrite + Unpin> ByteStream for S {}

/// A connection for one request after another.
pub struct Connection {
    stream: BufReader<Box<dyn ByteStream>>,
    host: String,
}

/// The head of a response.
#[derive(Debug)]
pub struct Head {
    /// Status code.
    pub status: u16,
    headers: Vec<(String, String)>,
}

impl Head {
    /// A header, by its name in lower case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self
            .headers
            .iter()
            .find(|(header_name, _)| header_name == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// Connects from this loopback address, which the other side sees as another machine.
async fn connect(from: [u8; 4], to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("cannot create a socket");
    let bound = socket.bind(SocketAddr::from((from, 0)));
    bound.expect("cannot bind the address");
    socket
        .connect(to)
        .await
        .expect("the connection was refused")
}

impl Connection {
    /// Connects without TLS.
    ///
    /// # Panics
    /// When the connection is refused.
    pub async fn connect_plain(from: [u8; 4], to: SocketAddr) -> Self {
        Self {
            stream: BufReader::new(Box::new(connect(from, to).await)),
            host: to.to_string(),
        }
    }

    /// Connects with TLS and checks the name in the certificate.
    ///
    /// # Panics
    /// When the connection or the handshake fails.
    pub async fn connect_tls(name: &'static str, from: [u8; 4], to: SocketAddr) -> Self {
        let server = ServerName::try_from(name).expect("the host name is invalid");
        let connector = Authority::of_this_process().connector();
        let stream = connector.connect(server, connect(from, to).await);
        let stream = within("the TLS handshake", IO_TIMEOUT, stream).await;
        Self {
            stream: BufReader::new(Box::new(stream.expect("the TLS handshake failed"))),
            host: format!("{name}:{}", to.port()),
        }
    }

    /// Sets the Host header of later requests.
    #[must_use]
    pub fn with_host(mut self, host: &str) -> Self {
        host.clone_into(&mut self.host);
        self
    }

    /// Sends bytes.
    ///
    /// # Panics
    /// When they cannot be sent.
    pub async fn send(&mut self, bytes: &[u8]) {
        let sent = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        let sent = within("sending bytes", IO_TIMEOUT, sent).await;
        sent.expect("the connection is closed");
    }

    /// Sends the head of a request; `headers` are lines with line ends.
    pub async fn send_head(&mut self, request: &str, headers: &str) {
        let host = &self.host;
        let head = format!("{request} HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n");
        self.send(head.as_bytes()).await;
    }

    async fn read_line_text(&mut self) -> String {
        let mut line = String::new();
        let read = self.stream.read_line(&mut line);
        within("a line of the response", IO_TIMEOUT, read)
            .await
            .expect("cannot read a line");
        line.trim_end().to_owned()
    }

    /// Reads the head of the next response.
    ///
    /// # Panics
    /// When none comes.
    pub async fn read_head(&mut self) -> Head {
        let first = self.read_line_text().await;
        let status = first.split(' ').nth(1).and_then(|it| it.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no status in {first:?}"));
        let mut headers = Vec::new();
        loop {
            let line = self.read_line_text().await;
            let Some((name, value)) = line.split_once(':') else {
                return Head { status, headers };
            };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }

    /// The next available bytes; none at the end of the connection.
    ///
    /// # Panics
    /// When neither arrives in time.
    pub async fn read_some(&mut self) -> Vec<u8> {
        let mut bytes = vec![0; 64 * 1024];
        let read = within("bytes or the end", IO_TIMEOUT, self.stream.read(&mut bytes)).await;
        // A reset counts as an end.
        let length = read.unwrap_or(0);
        bytes.truncate(length);
        bytes
    }

    /// Passes the body of this response to `take`, piece by piece.
    ///
    /// # Panics
    /// When it is cut off.
    pub async fn read_body(&mut self, head: &Head, mut take: impl FnMut(&[u8])) {
        if let Some(length) = head.header("content-length") {
            let length = length.parse().expect("the content length is not a number");
            return self.read_exactly(length, &mut take).await;
        }
        assert_eq!(
            head.header("transfer-encoding"),
            Some("chunked"),
            "{head:?}"
        );
        loop {
            let line = self.read_line_text().await;
            let length = u64::from_str_radix(&line, 16).unwrap_or_else(|_| panic!("{line:?}"));
            self.read_exactly(length, &mut take).await;
            assert_eq!(self.read_line_text().await, "");
            if length == 0 {
                return;
            }
        }
    }

    async fn read_exactly(&mut self, mut length: u64, take: &mut impl FnMut(&[u8])) {
        while length > 0 {
            let available = within("more of the body", IO_TIMEOUT, self.stream.fill_buf()).await;
            let available = available.expect("cannot read the body");
            let length_now = available
                .len()
                .min(usize::try_from(length).unwrap_or(usize::MAX));
            assert!(length_now > 0, "{length} bytes are missing");
            take(&available[..length_now]);
            self.stream.consume(length_now);
            length -= length_now as u64;
        }
    }

    /// Sends a request without a body; returns the complete response.
    pub async fn exchange(&mut self, request: &str, headers: &str) -> (Head, String) {
        self.send_head(request, headers).await;
        let head = self.read_head().await;
        let mut body = Vec::new();
        self.read_body(&head, |piece| body.extend_from_slice(piece))
            .await;
        (head, String::from_utf8_lossy(&body).into_owned())
    }

    /// Sends a request with a body; returns the response as JSON, `null` if it is not JSON.
    pub async fn call(&mut self, request: &str, headers: &str, body: &Value) -> (Head, Value) {
        let body = body.to_string();
        let length = body.len();
        let lines =
            format!("{headers}Content-Type: application/json\r\nContent-Length: {length}\r\n");
        self.send_head(request, &lines).await;
        self.send(body.as_bytes()).await;
        let head = self.read_head().await;
        let mut answer = Vec::new();
        self.read_body(&head, |piece| answer.extend_from_slice(piece))
            .await;
        (head, serde_json::from_slice(&answer).unwrap_or_default())
    }

    /// Upgrades this connection to a WebSocket.
    ///
    /// # Panics
    /// When it is refused.
    pub async fn upgrade(&mut self, path: &str) {
        let headers = format!(
            "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {SOCKET_KEY}\r\n"
        );
        self.send_head(&format!("GET {path}"), &headers).await;
        let head = self.read_head().await;
        assert_eq!(head.status, 101, "{head:?}");
    }

    /// Sends a frame with a mask of zeros.
    async fn send_frame(&mut self, kind: u8, payload: &[u8]) {
        let length = u16::try_from(payload.len()).expect("the payload is too long");
        let mut frame = vec![0x80 | kind];
        match u8::try_from(length) {
            Ok(short) if short < TWO_BYTE_LENGTH => frame.push(0x80 | short),
            _ => {
                frame.push(0x80 | TWO_BYTE_LENGTH);
                frame.extend(length.to_be_bytes());
            }
        }
        frame.extend([0; 4]);
        frame.extend(payload);
        self.send(&frame).await;
    }

    /// Sends a text on a WebSocket.
    pub async fn send_text(&mut self, text: &str) {
        self.send_frame(TEXT_FRAME, text.as_bytes()).await;
    }

    /// The next text on a WebSocket; `None` when it is closed. Answers pings.
    ///
    /// # Panics
    /// When nothing arrives in time, or the message is not text.
    pub async fn receive_text(&mut self) -> Option<String> {
        let mut text = Vec::new();
        loop {
            let head = self.read_bytes(2).await?;
            let length = match head[1] {
                TWO_BYTE_LENGTH => self.read_bytes(2).await?,
                EIGHT_BYTE_LENGTH => self.read_bytes(8).await?,
                // Servers do not mask, so the highest bit is 0.
                short => vec![short],
            };
            let length = length
                .iter()
                .fold(0, |all, byte| all << 8 | u64::from(*byte));
            let piece = self.read_bytes(length).await?;
            match head[0] & 0xf {
                CLOSE_FRAME => return None,
                PING_FRAME => self.send_frame(PONG_FRAME, &piece).await,
                PONG_FRAME => {}
                _ => {
                    text.extend(piece);
                    if head[0] & 0x80 != 0 {
                        return Some(String::from_utf8(text).expect("the message is not text"));
                    }
                }
            }
        }
    }

    /// Reads this many bytes; `None` if the connection ends before.
    async fn read_bytes(&mut self, length: u64) -> Option<Vec<u8>> {
        let length = usize::try_from(length).expect("the length is too large");
        let mut bytes = vec![0; length];
        let read = within(
            "bytes or the end",
            IO_TIMEOUT,
            self.stream.read_exact(&mut bytes),
        )
        .await;
        read.ok()?;
        Some(bytes)
    }

    /// Sends a short text on a WebSocket that echoes frames, mask included, and asserts the echo.
    ///
    /// # Panics
    /// When the echo differs.
    pub async fn assert_echo(&mut self, word: &str) {
        self.send_text(word).await;
        let length = u8::try_from(word.len()).expect("the text is too long");
        let frame = [
            &[0x80 | TEXT_FRAME, 0x80 | length, 0, 0, 0, 0],
            word.as_bytes(),
        ]
        .concat();
        let echo = self
            .read_bytes(frame.len() as u64)
            .await
            .expect("the connection is closed");
        assert_eq!(echo, frame);
    }

    /// Reads all bytes up to the end of the connection.
    pub async fn read_rest(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            let some = self.read_some().await;
            if some.is_empty() {
                return all;
            }
            all.extend(some);
        }
    }
}
