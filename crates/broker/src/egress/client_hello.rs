//! The first message of a TLS client (RFC 8446, section 4.1.2), as far as it names the server.

/// Larger messages are refused. Real ones have 200 to 2,000 bytes.
pub(super) const MAX_HELLO_BYTES: usize = 16 * 1024;

const HANDSHAKE_RECORD: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;
/// `encrypted_client_hello` (RFC 9849): the visible name may then differ from the real one.
const ENCRYPTED_HELLO: u16 = 0xfe0d;

/// What a client said to begin TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ClientHello {
    /// The bytes so far do not contain all of it.
    Incomplete,
    /// Not TLS, or not valid.
    Invalid,
    /// It contains an encrypted one.
    Encrypted,
    /// The server's name as the client sent it, if it did.
    Plain(Option<String>),
}

impl ClientHello {
    /// Parses what a client has sent so far. A message may span several records.
    pub(super) fn parse(bytes: &[u8]) -> Self {
        let mut message = Vec::new();
        let mut records = Reader(bytes);
        loop {
            match whole_message(&message) {
                Ok(Some(body)) => return parse_body(body).unwrap_or(Self::Invalid),
                Ok(None) => {}
                Err(Malformed) => return Self::Invalid,
            }
            match records.0.first() {
                None => return Self::Incomplete,
                Some(&HANDSHAKE_RECORD) => {}
                Some(_) => return Self::Invalid,
            }
            if records.0.get(1).is_some_and(|major| *major != 3) {
                return Self::Invalid;
            }
            let Some(payload) = records.skip(3).and_then(|()| records.vector(2)) else {
                return Self::Incomplete;
            };
            if payload.0.is_empty() {
                return Self::Invalid;
            }
            message.extend_from_slice(payload.0);
        }
    }
}

struct Malformed;

/// The body of the message, when all of it is there.
fn whole_message(message: &[u8]) -> Result<Option<Reader<'_>>, Malformed> {
    let [kind, high, middle, low, rest @ ..] = message else {
        return Ok(None);
    };
    let length = u32::from_be_bytes([0, *high, *middle, *low]) as usize;
    if *kind != CLIENT_HELLO || length > MAX_HELLO_BYTES {
        return Err(Malformed);
    }
    Ok(rest.get(..length).map(Reader))
}

fn parse_body(mut body: Reader<'_>) -> Option<ClientHello> {
    // Version and random; then session id, cipher suites and compression methods.
    body.skip(2 + 32)?;
    body.vector(1)?;
    body.vector(2)?;
    body.vector(1)?;
    let mut name = None;
    let mut extensions = if body.0.is_empty() {
        Reader(&[])
    } else {
        body.vector(2)?
    };
    while !extensions.0.is_empty() {
        let kind = extensions.number()?;
        let content = extensions.vector(2)?;
        match kind {
            ENCRYPTED_HELLO => return Some(ClientHello::Encrypted),
            // Two names would be a way to show one and mean the other.
            SERVER_NAME if name.is_some() => return None,
            SERVER_NAME => name = Some(server_name(content)?),
            _ => {}
        }
    }
    Some(ClientHello::Plain(name))
}

/// The only host name of the extension (RFC 6066, section 3).
fn server_name(mut content: Reader<'_>) -> Option<String> {
    let mut list = content.vector(2)?;
    let (&kind, rest) = list.0.split_first()?;
    list.0 = rest;
    let name = list.vector(2)?;
    let is_only = kind == HOST_NAME && list.0.is_empty() && content.0.is_empty();
    is_only.then(|| String::from_utf8(name.0.to_vec()).ok())?
}

/// Reads from the front. `None`: there is not enough.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn skip(&mut self, count: usize) -> Option<()> {
        self.0 = self.0.get(count..)?;
        Some(())
    }

    fn number(&mut self) -> Option<u16> {
        let (number, rest) = self.0.split_first_chunk::<2>()?;
        self.0 = rest;
        Some(u16::from_be_bytes(*number))
    }

    /// Bytes after their number, which has `width` bytes.
    fn vector(&mut self, width: usize) -> Option<Reader<'a>> {
        let (number, rest) = self.0.split_at_checked(width)?;
        let length = number
            .iter()
            .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some(Reader(content))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use rustls::{ClientConfig, ClientConnection, RootCertStore};

    use super::*;

    /// What a real client sends.
    pub(in crate::egress) fn hello(name: &str) -> Vec<u8> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        let name = name.to_owned().try_into().unwrap();
        let mut bytes = Vec::new();
        let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
        client.write_tls(&mut bytes).unwrap();
        bytes
    }

    /// The same message in records of a few bytes each.
    fn in_small_records(bytes: &[u8]) -> Vec<u8> {
        let chunks = bytes[5..].chunks(7);
        let records = chunks.flat_map(|chunk| {
            let length = u8::try_from(chunk.len()).unwrap();
            [&[22, 3, 1, 0, length], chunk].concat()
        });
        records.collect()
    }

    #[test]
    fn the_name_is_found_in_any_division_into_records() {
        let expected = ClientHello::Plain(Some("api.example.org".to_owned()));
        let whole = hello("api.example.org");
        assert_eq!(ClientHello::parse(&whole), expected);
        assert_eq!(ClientHello::parse(&in_small_records(&whole)), expected);
        for end in 0..whole.len() {
            assert_eq!(
                ClientHello::parse(&whole[..end]),
                ClientHello::Incomplete,
                "{end}"
            );
        }
    }

    #[test]
    fn a_client_of_an_address_names_no_server() {
        assert_eq!(
            ClientHello::parse(&hello("192.0.2.1")),
            ClientHello::Plain(None)
        );
    }

    #[test]
    fn other_protocols_and_damaged_messages_are_invalid() {
        let mut other_version = hello("example.org");
        other_version[1] = 2;
        let mut server_hello = hello("example.org");
        server_hello[5] = 2;
        let mut huge = hello("example.org");
        huge[6] = 0xff;
        for bytes in [&b"GET / HTTP/1.1\r\n"[..], b"SSH-2.0-x", &[22, 3, 1, 0, 0]] {
            assert_eq!(ClientHello::parse(bytes), ClientHello::Invalid, "{bytes:?}");
        }
        for bytes in [other_version, server_hello, huge] {
            assert_eq!(ClientHello::parse(&bytes), ClientHello::Invalid);
        }
    }

    /// No byte of the message makes the parser panic or read beyond its end.
    #[test]
    fn every_changed_byte_is_survived() {
        let whole = hello("example.org");
        for at in 0..whole.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = whole.clone();
                changed[at] = value;
                let _ = ClientHello::parse(&changed);
            }
        }
    }

    #[test]
    fn an_encrypted_message_and_two_names_are_recognized() {
        let body = |extensions: &[u8]| {
            let mut body = vec![0; 34];
            body.extend([0, 0, 0, 0]);
            body.extend(u16::try_from(extensions.len()).unwrap().to_be_bytes());
            body.extend(extensions);
            parse_body(Reader(&body))
        };
        let name = [0, 0, 0, 6, 0, 4, 0, 0, 1, b'a'];
        assert_eq!(body(&name), Some(ClientHello::Plain(Some("a".into()))));
        assert_eq!(body(&[name, name].concat()), None);
        let encrypted = [0xfe, 0x0d, 0, 0];
        assert_eq!(
            body(&[&name[..], &encrypted].concat()),
            Some(ClientHello::Encrypted)
        );
    }
}
