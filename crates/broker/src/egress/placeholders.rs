//! Placeholders in requests: found anywhere, replaced in headers.

use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use domain::user::secret::PLACEHOLDER_PREFIX;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use memchr::memmem;

/// The shortest sealed name: nonce and tag in base64url. Shorter texts, such as a mention of the prefix, are none.
const MIN_SEALED_CHARS: usize = 36;
/// Longest placeholder of which a part may be at the end of a chunk: prefix, sandbox, point, and the shortest sealed name.
const MAX_SPLIT_BYTES: usize = PLACEHOLDER_PREFIX.len() + 64 + 1 + MIN_SEALED_CHARS;

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

/// Where the first placeholder is.
pub(super) fn find(text: &[u8]) -> Option<Range<usize>> {
    memmem::find_iter(text, PLACEHOLDER_PREFIX).find_map(|start| {
        let rest = &text[start + PLACEHOLDER_PREFIX.len()..];
        let sandbox = rest.iter().take_while(|byte| is_word(**byte)).count();
        let sealed = rest[sandbox..].strip_prefix(b".")?;
        let sealed = sealed.iter().take_while(|byte| is_word(**byte)).count();
        let is_whole = sandbox > 0 && sealed >= MIN_SEALED_CHARS;
        is_whole.then(|| start..start + PLACEHOLDER_PREFIX.len() + sandbox + 1 + sealed)
    })
}

/// The value of a header as it is searched: the credentials of basic authentication are encoded.
#[derive(Debug)]
pub(super) enum SearchedValue {
    Plain(Vec<u8>),
    Basic(Vec<u8>),
}

impl SearchedValue {
    pub(super) fn new(value: &[u8]) -> Self {
        let scheme = value.split_at_checked(6);
        let encoded = scheme.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"basic "));
        let decoded = encoded.and_then(|(_, text)| STANDARD.decode(text.trim_ascii()).ok());
        match decoded {
            Some(decoded) if find(&decoded).is_some() => Self::Basic(decoded),
            _ => Self::Plain(value.to_vec()),
        }
    }

    pub(super) fn text(&mut self) -> &mut Vec<u8> {
        let (Self::Plain(text) | Self::Basic(text)) = self;
        text
    }

    pub(super) fn into_header(self) -> Vec<u8> {
        match self {
            Self::Plain(text) => text,
            Self::Basic(text) => format!("Basic {}", STANDARD.encode(text)).into_bytes(),
        }
    }
}

/// A body contains a placeholder.
#[derive(Debug, thiserror::Error)]
pub(super) enum SearchedBodyError {
    #[error("the body contains a placeholder")]
    Placeholder,
    #[error("the body cannot be read")]
    Broken(#[source] hyper::Error),
}

/// A request body that breaks at a placeholder.
#[derive(Debug)]
pub(super) struct SearchedBody {
    body: Incoming,
    /// The end of what has passed, which may be the beginning of a placeholder.
    tail: Vec<u8>,
    found: Arc<AtomicBool>,
}

impl SearchedBody {
    /// The flag tells whether a placeholder was found.
    pub(super) fn new(body: Incoming) -> (Self, Arc<AtomicBool>) {
        let found = Arc::new(AtomicBool::new(false));
        let searched = Self {
            body,
            tail: Vec::new(),
            found: Arc::clone(&found),
        };
        (searched, found)
    }
}

/// Whether there is a placeholder in the chunk, or one that begins in `tail`. The tail becomes that of the next chunk.
fn search(tail: &mut Vec<u8>, chunk: &[u8]) -> bool {
    let begin = &chunk[..chunk.len().min(MAX_SPLIT_BYTES)];
    tail.extend_from_slice(begin);
    let is_found = find(tail).is_some() || find(chunk).is_some();
    if chunk.len() > begin.len() {
        tail.clear();
        tail.extend_from_slice(&chunk[chunk.len() - MAX_SPLIT_BYTES..]);
    }
    let surplus = tail.len().saturating_sub(MAX_SPLIT_BYTES);
    tail.drain(..surplus);
    is_found
}

impl Body for SearchedBody {
    type Data = Bytes;
    type Error = SearchedBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, SearchedBodyError>>> {
        let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return Poll::Ready(Some(Err(SearchedBodyError::Broken(error)))),
            None => return Poll::Ready(None),
        };
        let chunk = frame.data_ref().cloned().unwrap_or_default();
        if search(&mut self.tail, &chunk) {
            self.found.store(true, Ordering::SeqCst);
            return Poll::Ready(Some(Err(SearchedBodyError::Placeholder)));
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn placeholder() -> String {
        format!("{PLACEHOLDER_PREFIX}sandbox-1.{}", "Ab_-".repeat(9))
    }

    #[test]
    fn placeholders_are_found_with_their_ends() {
        let placeholder = placeholder();
        for (before, after) in [
            ("", ""),
            ("Bearer ", ""),
            ("{\"key\":\"", "\"}"),
            ("a=", "&b=c"),
            ("", "."),
            ("workspace_secret_ workspace_secret_a.b ", "\n"),
        ] {
            let text = format!("{before}{placeholder}{after}");
            let found = find(text.as_bytes()).map(|range| &text[range]);
            assert_eq!(found, Some(&placeholder[..]), "{text}");
        }
        for none in ["", "workspace_secret_", "workspace_secret_name.short"] {
            assert_eq!(find(none.as_bytes()), None, "{none}");
        }
    }

    #[test]
    fn credentials_of_basic_authentication_are_searched() {
        let credentials = format!("me:{}", placeholder());
        let header = format!("basic {}", STANDARD.encode(&credentials));
        let mut value = SearchedValue::new(header.as_bytes());
        assert_eq!(value.text(), credentials.as_bytes());
        *value.text() = b"me:real".to_vec();
        assert_eq!(value.into_header(), b"Basic bWU6cmVhbA==");
        for other in ["Basic", "Basic ?", "Basic bWU6cmVhbA==", "Bearer x", "é"] {
            let kept = SearchedValue::new(other.as_bytes()).into_header();
            assert_eq!(kept, other.as_bytes());
        }
    }

    proptest! {
        #[test]
        fn a_placeholder_is_found_in_any_division_into_chunks(
            before in "[a-z_.]{0,300}", after in "[ a-z]{0,300}", sizes in prop::collection::vec(1usize..200, 1..9),
        ) {
            let text = format!("{before} {}{after}", placeholder());
            let (mut rest, mut tail, mut is_found) = (text.as_bytes(), Vec::new(), false);
            for size in sizes.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (chunk, more) = rest.split_at(rest.len().min(*size));
                is_found |= search(&mut tail, chunk);
                rest = more;
            }
            prop_assert!(is_found);
        }

        #[test]
        fn any_value_is_survived(value in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = find(&value);
            let _ = SearchedValue::new(&value).into_header();
        }
    }
}
