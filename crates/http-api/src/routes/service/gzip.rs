//! Files that are stored compressed.

use std::io::Read as _;

use actix_web::http::header::{AcceptEncoding, Encoding};
use actix_web::web;
use flate2::read::GzDecoder;

use crate::problem::Problem;

/// Whether the client accepts gzip. Without `Accept-Encoding` it does not.
pub(super) fn is_accepted(accepted: &AcceptEncoding) -> bool {
    let gzip = Encoding::gzip();
    accepted.negotiate([&gzip].into_iter()) == Some(gzip)
}

/// The plain bytes of a file of this program or of its build.
#[expect(
    clippy::disallowed_methods,
    reason = "the pool is rarely used: the files are few, and almost every client accepts gzip"
)]
pub(super) async fn unpacked(packed: &[u8]) -> Result<Vec<u8>, Problem> {
    let packed = packed.to_vec();
    // Decompressing the largest file takes some milliseconds.
    let plain = web::block(move || {
        let mut plain = Vec::new();
        GzDecoder::new(&*packed)
            .read_to_end(&mut plain)
            .map(|_| plain)
    });
    let plain = plain.await.map_err(|error| Problem::internal(&error))?;
    plain.map_err(|error| Problem::internal(&error))
}
