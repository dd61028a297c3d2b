//! A tunnel to a host: bytes both ways, after the check of the name for which the client asks.

use std::io;
use std::time::Duration;

use domain::host_rule::parse_host;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, copy_bidirectional};
use tokio::time::timeout;
use url::Host;

use super::client_hello::{ClientHello, MAX_HELLO_BYTES};
use super::destination::Destination;

const HELLO_TIMEOUT: Duration = Duration::from_secs(15);
/// A fatal alert `access_denied` (RFC 8446, section 6): the client then names the cause.
const ACCESS_DENIED: [u8; 7] = [21, 3, 1, 0, 2, 2, 49];

/// How a tunnel ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TunnelEnd {
    /// Either side closed it.
    Closed,
    /// Its client asked for another server, hid the name, or spoke no TLS. The host got no byte.
    Refused(&'static str),
}

/// The first message of a client, which the host has not got yet.
#[derive(Debug)]
pub(super) struct ClientBegin {
    hello: ClientHello,
    pub(super) bytes: Vec<u8>,
}

impl ClientBegin {
    /// Waits for the message.
    pub(super) async fn read(client: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        let mut bytes = Vec::new();
        let read = async {
            loop {
                let hello = ClientHello::parse(&bytes);
                if hello != ClientHello::Incomplete || bytes.len() >= MAX_HELLO_BYTES {
                    return Ok(hello);
                }
                if client.read_buf(&mut bytes).await? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
        };
        let hello: io::Result<ClientHello> = timeout(HELLO_TIMEOUT, read).await?;
        Ok(Self {
            hello: hello?,
            bytes,
        })
    }

    /// Whether the proxy may end its TLS. Browsers encrypt the name or seem to, and trust authorities of their own.
    pub(super) fn is_plain_tls(&self) -> bool {
        matches!(self.hello, ClientHello::Plain(_))
    }
}

/// Runs until either side ends it. `begin` is what was read of the client before.
pub(super) async fn run(
    mut client: impl AsyncRead + AsyncWrite + Unpin,
    mut host: impl AsyncRead + AsyncWrite + Unpin,
    destination: &Destination,
    begin: Option<ClientBegin>,
) -> io::Result<TunnelEnd> {
    if let Some(begin) = begin {
        let reason = refusal(&begin.hello, &destination.host);
        if let Some(reason) = reason.filter(|_| destination.must_be_tls()) {
            // The client may be gone.
            let _ = client.write_all(&ACCESS_DENIED).await;
            let _ = client.shutdown().await;
            return Ok(TunnelEnd::Refused(reason));
        }
        host.write_all(&begin.bytes).await?;
    }
    copy_bidirectional(&mut client, &mut host).await?;
    Ok(TunnelEnd::Closed)
}

fn refusal(hello: &ClientHello, host: &Host) -> Option<&'static str> {
    match (hello, host) {
        (ClientHello::Plain(Some(name)), host) if parse_host(name).as_ref() == Some(host) => None,
        (ClientHello::Plain(Some(_)), _) => Some("the TLS client asks for another server name"),
        // Addresses are no server names.
        (ClientHello::Plain(None), Host::Ipv4(_) | Host::Ipv6(_)) => None,
        (ClientHello::Plain(None), _) => Some("the TLS client sends no server name"),
        (ClientHello::Encrypted, _) => Some("the TLS client encrypts the server name (ECH)"),
        (ClientHello::Incomplete | ClientHello::Invalid, _) => Some("it does not begin with TLS"),
    }
}
