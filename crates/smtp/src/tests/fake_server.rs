//! A small mail server on a socket, with faults.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

/// What the server does at a command, or at the end of a mail (`.`), instead of accepting it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fault {
    Reply(&'static str),
    /// It answers nothing more.
    Hang,
    Close,
}

/// When the server encrypts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServerTls {
    Never,
    AfterStartTls,
    Always,
}

/// What the server has received.
#[derive(Debug, Default, Clone)]
pub(super) struct Received {
    /// Commands with their arguments, in upper case.
    pub(super) commands: Vec<String>,
    /// Mails whose end came.
    pub(super) mails: Vec<String>,
}

pub(super) struct FakeServer {
    pub(super) port: u16,
    /// The certificate, as a PEM file.
    pub(super) authority: Vec<u8>,
    received: Arc<Mutex<Received>>,
}

impl FakeServer {
    pub(super) async fn start(tls: ServerTls, faults: &[(&'static str, Fault)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let certificate = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivatePkcs8KeyDer::from(certificate.signing_key.serialize_der());
        let config = ServerConfig::builder_with_provider(Arc::new(
            tokio_rustls::rustls::crypto::ring::default_provider(),
        ))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.cert.der().clone()],
            PrivateKeyDer::Pkcs8(key),
        )
        .unwrap();
        let server = Self {
            port: listener.local_addr().unwrap().port(),
            authority: certificate.cert.pem().into_bytes(),
            received: Arc::default(),
        };
        let connection = FakeConnection {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            tls,
            faults: faults.iter().copied().collect(),
            received: Arc::clone(&server.received),
        };
        spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let connection = connection.clone();
                // A client that goes is no failure.
                spawn(async move { drop(connection.serve(stream).await) });
            }
        });
        server
    }

    pub(super) fn received(&self) -> Received {
        self.received.lock().unwrap().clone()
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the runtime of a test ends with it"
)]
fn spawn(work: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(work);
}

#[derive(Clone)]
struct FakeConnection {
    acceptor: TlsAcceptor,
    tls: ServerTls,
    faults: BTreeMap<&'static str, Fault>,
    received: Arc<Mutex<Received>>,
}

impl FakeConnection {
    async fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        if self.tls == ServerTls::Always {
            return self.serve_encrypted(stream, true).await;
        }
        let mut stream = BufReader::new(stream);
        if self.talk(&mut stream, true).await? {
            return self.serve_encrypted(stream.into_inner(), false).await;
        }
        Ok(())
    }

    async fn serve_encrypted(&self, stream: TcpStream, greets: bool) -> std::io::Result<()> {
        let mut stream = BufReader::new(self.acceptor.accept(stream).await?);
        self.talk(&mut stream, greets).await.map(drop)
    }

    /// Answers commands; returns whether the client asked for encryption.
    async fn talk<S>(&self, stream: &mut BufReader<S>, greets: bool) -> std::io::Result<bool>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        if greets && !self.answer(stream, "greeting", "220 ready").await? {
            return Ok(false);
        }
        let mut line = String::new();
        loop {
            line.clear();
            if stream.read_line(&mut line).await? == 0 {
                return Ok(false);
            }
            let command = line.trim().to_owned();
            let verb = command.split([' ', ':']).next().unwrap_or_default();
            self.received.lock().unwrap().commands.push(command.clone());
            let reply = match verb {
                "EHLO" if self.tls == ServerTls::AfterStartTls && greets => {
                    "250-localhost\r\n250-8BITMIME\r\n250 STARTTLS"
                }
                "EHLO" => "250-localhost\r\n250-8BITMIME\r\n250 AUTH PLAIN LOGIN",
                "STARTTLS" => "220 go ahead",
                "AUTH" => "235 welcome",
                "DATA" => "354 go ahead",
                "QUIT" => "221 bye",
                _ => "250 ok",
            };
            if !self.answer(stream, verb, reply).await? {
                return Ok(false);
            }
            match verb {
                "STARTTLS" => return Ok(true),
                "DATA" if !self.faults.contains_key(verb) && !self.take_mail(stream).await? => {
                    return Ok(false);
                }
                _ => {}
            }
        }
    }

    async fn take_mail<S>(&self, stream: &mut BufReader<S>) -> std::io::Result<bool>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let mut mail = String::new();
        while !mail.ends_with("\r\n.\r\n") {
            if stream.read_line(&mut mail).await? == 0 {
                return Ok(false);
            }
        }
        self.received.lock().unwrap().mails.push(mail);
        self.answer(stream, ".", "250 accepted").await
    }

    /// Sends a reply, or does what the fault says; returns whether the connection goes on.
    async fn answer<S>(
        &self,
        stream: &mut BufReader<S>,
        at: &str,
        reply: &str,
    ) -> std::io::Result<bool>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let reply = match self.faults.get(at) {
            Some(Fault::Reply(reply)) => reply,
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::Close) => return Ok(false),
            None => reply,
        };
        stream.write_all(format!("{reply}\r\n").as_bytes()).await?;
        stream.flush().await?;
        Ok(true)
    }
}
