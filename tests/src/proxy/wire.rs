//! HTTP over TLS, byte by byte, with a certificate that only these tests know: so that they see what a proxy does with
//! connections and pieces, which clients hide.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use acceptance::stub::traffic::SOCKET_KEY;
use rcgen::{CertificateParams, KeyPair};
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader,
};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

/// Until what must come has come.
const LIMIT: Duration = Duration::from_secs(60);

/// A certificate that vouches for itself.
pub(crate) struct Authority {
    pub(crate) certificate: String,
    pub(crate) key: String,
    name: String,
    der: CertificateDer<'static>,
}

impl Authority {
    pub(crate) fn of(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new([name.to_owned()]).unwrap();
        let certificate = certificate.self_signed(&key).unwrap();
        Self {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
            name: name.to_owned(),
            der: certificate.der().clone(),
        }
    }
}

trait Stream: AsyncRead + AsyncWrite + Unpin {}
impl<S: AsyncRead + AsyncWrite + Unpin> Stream for S {}

/// A connection, for one request after another.
pub(crate) struct Connection {
    stream: BufReader<Box<dyn Stream>>,
    host: String,
}

/// The head of an answer.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
}

impl Head {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// Another machine, as far as the other side can tell: an address of the loopback network of its own.
async fn connect(from: [u8; 4], to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from((from, 0))).unwrap();
    socket.connect(to).await.unwrap()
}

impl Connection {
    /// Without TLS.
    pub(crate) async fn plain(from: [u8; 4], to: SocketAddr) -> Self {
        Self {
            stream: BufReader::new(Box::new(connect(from, to).await)),
            host: to.to_string(),
        }
    }

    /// With TLS, by the name in the certificate.
    pub(crate) async fn secure(authority: &Authority, from: [u8; 4], to: SocketAddr) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(authority.der.clone()).unwrap();
        let provider = Arc::new(crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from(authority.name.clone()).unwrap();
        let stream = connect(from, to).await;
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream);
        let stream = timeout(LIMIT, stream).await.expect("a handshake ends");
        Self {
            stream: BufReader::new(Box::new(stream.expect("the proxy speaks TLS"))),
            host: format!("{}:{}", authority.name, to.port()),
        }
    }

    /// From now on asks for this host.
    pub(crate) fn asking_for(mut self, host: &str) -> Self {
        host.clone_into(&mut self.host);
        self
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        let sent = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        timeout(LIMIT, sent).await.expect("it is taken").unwrap();
    }

    /// The head of a request; `headers` are lines with their ends.
    pub(crate) async fn begin(&mut self, request: &str, headers: &str) {
        let host = &self.host;
        let head = format!("{request} HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n");
        self.send(head.as_bytes()).await;
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        let read = self.stream.read_line(&mut line);
        timeout(LIMIT, read)
            .await
            .expect("it answers")
            .expect("and is text");
        line.trim_end().to_owned()
    }

    /// The head of the answer that comes next.
    pub(crate) async fn head(&mut self) -> Head {
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
    pub(crate) async fn some(&mut self) -> Vec<u8> {
        let mut bytes = vec![0; 64 * 1024];
        let read = timeout(LIMIT, self.stream.read(&mut bytes)).await;
        // A reset is an end, too.
        let length = read.expect("something comes, or it ends").unwrap_or(0);
        bytes.truncate(length);
        bytes
    }

    /// Hands over the body of this answer, piece by piece.
    pub(crate) async fn body(&mut self, head: &Head, mut take: impl FnMut(&[u8])) {
        if let Some(length) = head.header("content-length") {
            let length = length.parse().unwrap();
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
            let there = timeout(LIMIT, self.stream.fill_buf()).await;
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
    pub(crate) async fn ask(&mut self, request: &str, headers: &str) -> (Head, String) {
        self.begin(request, headers).await;
        let head = self.head().await;
        let mut body = Vec::new();
        self.body(&head, |piece| body.extend_from_slice(piece))
            .await;
        (head, String::from_utf8_lossy(&body).into_owned())
    }

    /// Makes a socket of this connection, as front ends do: with the key in the query.
    pub(crate) async fn upgrade(&mut self, path: &str) {
        let headers = format!(
            "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {SOCKET_KEY}\r\n"
        );
        self.begin(&format!("GET {path}"), &headers).await;
        let head = self.head().await;
        assert_eq!(head.status, 101, "{head:?}");
    }

    /// Says something short on a socket that repeats what it hears: a frame of text, masked with nothing.
    pub(crate) async fn hears_itself(&mut self, word: &str) {
        let length = u8::try_from(word.len()).unwrap();
        let frame = [&[0x81, 0x80 | length, 0, 0, 0, 0], word.as_bytes()].concat();
        self.send(&frame).await;
        let mut heard = vec![0; frame.len()];
        let read = timeout(LIMIT, self.stream.read_exact(&mut heard)).await;
        read.expect("it answers").expect("it is open");
        assert_eq!(heard, frame);
    }

    /// What is still said before the end.
    pub(crate) async fn rest(&mut self) -> Vec<u8> {
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
