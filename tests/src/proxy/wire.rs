//! HTTP and sockets over TLS, byte by byte, with a certificate that only these tests know: so that they see what a proxy
//! does with connections and pieces, which clients hide.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, KeyPair, PublicKeyData as _};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader,
};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use crate::stub::traffic::SOCKET_KEY;

/// Kinds of frames (RFC 6455, section 5.2).
const TEXT: u8 = 1;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;
/// In the place of a frame's length: it follows, in two bytes, or in eight.
const LONG: u8 = 126;
const LONGER: u8 = 127;
/// Until what must come has come.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// Whose certificate it is: the host of the example configurations, and the one that every machine knows.
const NAMES: [&str; 2] = [super::NAME, super::FRONT];

/// A certificate that vouches for itself.
pub struct Authority {
    /// The certificate, as PEM.
    pub certificate: String,
    /// Its private key, as PEM.
    pub key: String,
    der: CertificateDer<'static>,
    public_key: Vec<u8>,
}

impl Authority {
    /// The one of this process, for all of its proxies: who is given a URL only knows whom to trust, too.
    #[must_use]
    pub fn of_this_process() -> &'static Self {
        static AUTHORITY: OnceLock<Authority> = OnceLock::new();
        AUTHORITY.get_or_init(|| Self::of(&NAMES))
    }

    /// For these host names.
    fn of(names: &[&str]) -> Self {
        let key = KeyPair::generate().expect("a key can be made");
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let certificate = CertificateParams::new(names).expect("host names");
        let certificate = certificate.self_signed(&key).expect("it can be signed");
        Self {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
            public_key: key.subject_public_key_info(),
            der: certificate.der().clone(),
        }
    }

    /// As browsers know a key: SHA-256 of its `SubjectPublicKeyInfo`, base64.
    #[must_use]
    pub fn key_digest(&self) -> String {
        STANDARD.encode(Sha256::digest(&self.public_key))
    }

    /// Clients who trust it, and nobody else.
    pub(super) fn connector(&self) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        let added = roots.add(self.der.clone());
        added.expect("it was made for this");
        let provider = Arc::new(crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("there are versions of TLS")
            .with_root_certificates(roots)
            .with_no_client_auth();
        TlsConnector::from(Arc::new(config))
    }
}

trait Stream: AsyncRead + AsyncWrite + Unpin {}
impl<S: AsyncRead + AsyncWrite + Unpin> Stream for S {}

/// A connection, for one request after another.
pub struct Connection {
    stream: BufReader<Box<dyn Stream>>,
    host: String,
}

/// The head of an answer.
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
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// Another machine, as far as the other side can tell: an address of the loopback network of its own.
async fn connect(from: [u8; 4], to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket can be made");
    let bound = socket.bind(SocketAddr::from((from, 0)));
    bound.expect("an address of this machine");
    socket.connect(to).await.expect("somebody listens")
}

impl Connection {
    /// Without TLS.
    ///
    /// # Panics
    /// When nobody listens there.
    pub async fn plain(from: [u8; 4], to: SocketAddr) -> Self {
        Self {
            stream: BufReader::new(Box::new(connect(from, to).await)),
            host: to.to_string(),
        }
    }

    /// With TLS, by the name in the certificate.
    ///
    /// # Panics
    /// When nobody listens there, or is not who the certificate says.
    pub async fn secure(name: &'static str, from: [u8; 4], to: SocketAddr) -> Self {
        let server = ServerName::try_from(name).expect("a host name");
        let connector = Authority::of_this_process().connector();
        let stream = connector.connect(server, connect(from, to).await);
        let stream = timeout(WAIT_TIMEOUT, stream)
            .await
            .expect("a handshake ends");
        Self {
            stream: BufReader::new(Box::new(stream.expect("the proxy speaks TLS"))),
            host: format!("{name}:{}", to.port()),
        }
    }

    /// From now on asks for this host.
    #[must_use]
    pub fn asking_for(mut self, host: &str) -> Self {
        host.clone_into(&mut self.host);
        self
    }

    /// Sends bytes.
    ///
    /// # Panics
    /// When they are not taken.
    pub async fn send(&mut self, bytes: &[u8]) {
        let sent = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        let sent = timeout(WAIT_TIMEOUT, sent).await.expect("it is taken");
        sent.expect("it is open");
    }

    /// The head of a request; `headers` are lines with their ends.
    pub async fn begin(&mut self, request: &str, headers: &str) {
        let host = &self.host;
        let head = format!("{request} HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n");
        self.send(head.as_bytes()).await;
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        let read = self.stream.read_line(&mut line);
        timeout(WAIT_TIMEOUT, read)
            .await
            .expect("it answers")
            .expect("and is text");
        line.trim_end().to_owned()
    }

    /// The head of the answer that comes next.
    ///
    /// # Panics
    /// When none comes.
    pub async fn head(&mut self) -> Head {
        let first = self.line().await;
        let status = first.split(' ').nth(1).and_then(|it| it.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no status in {first:?}"));
        let mut headers = Vec::new();
        loop {
            let line = self.line().await;
            let Some((name, value)) = line.split_once(':') else {
                return Head { status, headers };
            };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }

    /// The next bytes of an answer, as many as are there; none at its end.
    ///
    /// # Panics
    /// When neither comes.
    pub async fn some(&mut self) -> Vec<u8> {
        let mut bytes = vec![0; 64 * 1024];
        let read = timeout(WAIT_TIMEOUT, self.stream.read(&mut bytes)).await;
        // A reset is an end, too.
        let length = read.expect("something comes, or it ends").unwrap_or(0);
        bytes.truncate(length);
        bytes
    }

    /// Hands over the body of this answer, piece by piece.
    ///
    /// # Panics
    /// When it is cut off.
    pub async fn body(&mut self, head: &Head, mut take: impl FnMut(&[u8])) {
        if let Some(length) = head.header("content-length") {
            let length = length.parse().expect("a number");
            return self.exactly(length, &mut take).await;
        }
        assert_eq!(
            head.header("transfer-encoding"),
            Some("chunked"),
            "{head:?}"
        );
        loop {
            let line = self.line().await;
            let length = u64::from_str_radix(&line, 16).unwrap_or_else(|_| panic!("{line:?}"));
            self.exactly(length, &mut take).await;
            assert_eq!(self.line().await, "");
            if length == 0 {
                return;
            }
        }
    }

    async fn exactly(&mut self, mut length: u64, take: &mut impl FnMut(&[u8])) {
        while length > 0 {
            let there = timeout(WAIT_TIMEOUT, self.stream.fill_buf()).await;
            let there = there.expect("it goes on").expect("it can be read");
            let most = there
                .len()
                .min(usize::try_from(length).unwrap_or(usize::MAX));
            assert!(most > 0, "{length} bytes are missing");
            take(&there[..most]);
            self.stream.consume(most);
            length -= most as u64;
        }
    }

    /// The whole answer to a request without a body.
    pub async fn ask(&mut self, request: &str, headers: &str) -> (Head, String) {
        self.begin(request, headers).await;
        let head = self.head().await;
        let mut body = Vec::new();
        self.body(&head, |piece| body.extend_from_slice(piece))
            .await;
        (head, String::from_utf8_lossy(&body).into_owned())
    }

    /// The answer to a request with a body, read as JSON; `null` if it is none.
    pub async fn call(&mut self, request: &str, headers: &str, body: &Value) -> (Head, Value) {
        let body = body.to_string();
        let length = body.len();
        let lines =
            format!("{headers}Content-Type: application/json\r\nContent-Length: {length}\r\n");
        self.begin(request, &lines).await;
        self.send(body.as_bytes()).await;
        let head = self.head().await;
        let mut answer = Vec::new();
        self.body(&head, |piece| answer.extend_from_slice(piece))
            .await;
        (head, serde_json::from_slice(&answer).unwrap_or_default())
    }

    /// Makes a socket of this connection, as front ends do: with the key in the query.
    ///
    /// # Panics
    /// When it is refused.
    pub async fn upgrade(&mut self, path: &str) {
        let headers = format!(
            "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {SOCKET_KEY}\r\n"
        );
        self.begin(&format!("GET {path}"), &headers).await;
        let head = self.head().await;
        assert_eq!(head.status, 101, "{head:?}");
    }

    /// Sends a frame, masked with nothing.
    async fn frame(&mut self, kind: u8, payload: &[u8]) {
        let length = u16::try_from(payload.len()).expect("tests say little");
        let mut frame = vec![0x80 | kind];
        match u8::try_from(length) {
            Ok(short) if short < LONG => frame.push(0x80 | short),
            _ => {
                frame.push(0x80 | LONG);
                frame.extend(length.to_be_bytes());
            }
        }
        frame.extend([0; 4]);
        frame.extend(payload);
        self.send(&frame).await;
    }

    /// Says something on a socket.
    pub async fn say(&mut self, text: &str) {
        self.frame(TEXT, text.as_bytes()).await;
    }

    /// What is said next on a socket; `None`: it is closed. Questions whether somebody is there are answered.
    ///
    /// # Panics
    /// When nothing is said, and what is said is no text.
    pub async fn hear(&mut self) -> Option<String> {
        let mut text = Vec::new();
        loop {
            let head = self.take(2).await?;
            let length = match head[1] {
                LONG => self.take(2).await?,
                LONGER => self.take(8).await?,
                // Servers mask nothing: the highest bit is not there.
                short => vec![short],
            };
            let length = length
                .iter()
                .fold(0, |all, byte| all << 8 | u64::from(*byte));
            let piece = self.take(length).await?;
            match head[0] & 0xf {
                CLOSE => return None,
                PING => self.frame(PONG, &piece).await,
                PONG => {}
                _ => {
                    text.extend(piece);
                    if head[0] & 0x80 != 0 {
                        return Some(String::from_utf8(text).expect("it is text"));
                    }
                }
            }
        }
    }

    /// So many bytes; `None`: they do not come any more.
    async fn take(&mut self, length: u64) -> Option<Vec<u8>> {
        let length = usize::try_from(length).expect("it fits in memory");
        let mut bytes = vec![0; length];
        let read = timeout(WAIT_TIMEOUT, self.stream.read_exact(&mut bytes)).await;
        read.expect("something comes, or it ends").ok()?;
        Some(bytes)
    }

    /// Says something short on a socket that repeats what it hears, with the mask that it had.
    ///
    /// # Panics
    /// When it does not.
    pub async fn hears_itself(&mut self, word: &str) {
        self.say(word).await;
        let length = u8::try_from(word.len()).expect("a short word");
        let frame = [&[0x80 | TEXT, 0x80 | length, 0, 0, 0, 0], word.as_bytes()].concat();
        let heard = self.take(frame.len() as u64).await.expect("it is open");
        assert_eq!(heard, frame);
    }

    /// What is still said before the end.
    pub async fn rest(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            let some = self.some().await;
            if some.is_empty() {
                return all;
            }
            all.extend(some);
        }
    }
}
