//! Copies the head of a request that has a body, so that the buffer of that body can be freed.
//!
//! URI and header values are slices of the buffer that read the request: up to 128 KiB when a body arrived with the head.
//! actix-web keeps up to 256 finished heads per worker for reuse, and their slices with them. A burst of requests with bodies
//! would otherwise occupy that memory until the heads are used again.

use actix_web::dev::ServiceRequest;
use actix_web::http::Uri;
use actix_web::http::header::{
    CONTENT_LENGTH, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING,
};

/// Replaces the URI and the header values by copies, unless the request has no body.
pub(super) fn copy_from_buffer(req: &mut ServiceRequest) {
    if !has_body(req.headers()) {
        return;
    }
    // A printed URI is always valid.
    if let Ok(uri) = req.uri().to_string().parse::<Uri>() {
        req.match_info_mut().get_mut().update(&uri);
        req.head_mut().uri = uri;
    }
    let headers = &mut req.head_mut().headers;
    let mut copies = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers.iter() {
        copies.append(HeaderName::clone(name), copy(value));
    }
    *headers = copies;
}

fn has_body(headers: &HeaderMap) -> bool {
    let length = headers.get(CONTENT_LENGTH);
    headers.contains_key(TRANSFER_ENCODING) || length.is_some_and(|length| length != "0")
}

fn copy(value: &HeaderValue) -> HeaderValue {
    let copy = HeaderValue::from_bytes(value.as_bytes());
    // The bytes of a value are always valid.
    copy.map_or_else(
        |_| value.clone(),
        |mut copy| {
            copy.set_sensitive(value.is_sensitive());
            copy
        },
    )
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;
    use actix_web::web::Bytes;

    use super::*;

    /// A request whose URI and header values are slices of the returned buffer.
    fn read_from_buffer(length: &'static str) -> (ServiceRequest, Bytes) {
        let buffer = Bytes::from("/api/v1/settings?a=1 cookie".to_owned());
        let mut req = TestRequest::post()
            .insert_header((CONTENT_LENGTH, length))
            .to_srv_request();
        let uri = Uri::from_maybe_shared(buffer.slice(..20)).unwrap();
        req.match_info_mut().get_mut().update(&uri);
        let head = req.head_mut();
        head.uri = uri;
        for _ in 0..2 {
            let value = HeaderValue::from_maybe_shared(buffer.slice(21..)).unwrap();
            head.headers
                .append(HeaderName::from_static("x-note"), value);
        }
        (req, buffer)
    }

    #[test]
    fn a_request_with_a_body_keeps_its_head_and_not_its_buffer() {
        let (mut req, buffer) = read_from_buffer("7");
        assert!(!buffer.is_unique());
        copy_from_buffer(&mut req);
        assert!(buffer.is_unique());
        assert_eq!(req.uri(), "/api/v1/settings?a=1");
        assert_eq!(req.match_info().as_str(), "/api/v1/settings");
        let values: Vec<_> = req.headers().get_all("x-note").collect();
        assert_eq!(values, ["cookie", "cookie"]);
    }

    #[test]
    fn a_request_without_a_body_is_not_copied() {
        let (mut req, buffer) = read_from_buffer("0");
        copy_from_buffer(&mut req);
        assert!(!buffer.is_unique());
    }
}
