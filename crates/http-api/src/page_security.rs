//! Security headers of the pages that this service itself serves, and of their files.

use actix_web::HttpResponseBuilder;
use actix_web::http::header::{
    CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};

/// Adds the headers. The policy contains `frame-ancestors 'none'`: in a frame of another site, clicks would run operations
/// with the rights of the clicking user. `X-Frame-Options` does the same for old browsers.
pub(crate) fn add(answer: &mut HttpResponseBuilder, policy: &str) {
    answer
        .insert_header((CONTENT_SECURITY_POLICY, policy))
        .insert_header((X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .insert_header((X_FRAME_OPTIONS, "DENY"))
        .insert_header((REFERRER_POLICY, "no-referrer"));
}
