//! Requests and responses as the proxy passes them on, and their limits.

use std::time::Duration;

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::ext::ReasonPhrase;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::{Request, Response, StatusCode, Version};

use super::destination::{Destination, EgressError};

pub(super) const MAX_HEAD_BYTES: usize = 32 * 1024;
pub(super) const MAX_HEADERS: usize = 100;
/// Also the time for which a connection without a request stays open.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// From a request with its body to the head of the response.
pub(super) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(300);
/// Headers of one connection (RFC 9110, section 7.6.1), and those for this proxy.
const HOP_BY_HOP: [HeaderName; 8] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    HeaderName::from_static("proxy-authorization"),
    HeaderName::from_static("proxy-authenticate"),
    HeaderName::from_static("te"),
    HeaderName::from_static("transfer-encoding"),
    HeaderName::from_static("upgrade"),
];

pub(super) type ProxyBody = UnsyncBoxBody<Bytes, hyper::Error>;

/// The response as the client gets it.
pub(super) fn returned(response: Response<Incoming>) -> Response<ProxyBody> {
    let (mut parts, body) = response.into_parts();
    remove_hop_by_hop(&mut parts.headers);
    parts.version = Version::HTTP_11;
    Response::from_parts(parts, body.boxed_unsync())
}

/// The request as the host gets it. `Host` is that of the connection, whatever the client sent.
pub(super) fn outgoing(
    request: Request<Incoming>,
    destination: &Destination,
    usual_port: u16,
) -> Result<Request<Incoming>, EgressError> {
    let (mut parts, body) = request.into_parts();
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    parts.uri = path
        .parse()
        .map_err(|_| EgressError::Invalid("its path is not valid"))?;
    remove_hop_by_hop(&mut parts.headers);
    let host = match destination.port {
        port if port == usual_port => destination.host.to_string(),
        port => format!("{}:{port}", destination.host),
    };
    let host = HeaderValue::try_from(host);
    let host = host.map_err(|_| EgressError::Invalid("its host is not valid"))?;
    parts.headers.insert(HOST, host);
    parts.version = Version::HTTP_11;
    Ok(Request::from_parts(parts, body))
}

fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP) {
        headers.remove(name);
    }
}

pub(super) fn error_response(error: &EgressError) -> Response<ProxyBody> {
    let mut response = Response::new(text_body(format!("agent-workspace: {error}.\n")));
    *response.status_mut() = match error {
        EgressError::Invalid(_) => StatusCode::BAD_REQUEST,
        error if error.is_refusal() => StatusCode::FORBIDDEN,
        _ => StatusCode::BAD_GATEWAY,
    };
    if error.is_refusal() {
        // Programs show this line when a tunnel is refused, and not the text.
        let reason = ReasonPhrase::from_static(b"Refused by the egress policy");
        response.extensions_mut().insert(reason);
    }
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, text);
    response
}

pub(super) fn text_body(text: String) -> ProxyBody {
    Full::new(Bytes::from(text))
        .map_err(|never| match never {})
        .boxed_unsync()
}
