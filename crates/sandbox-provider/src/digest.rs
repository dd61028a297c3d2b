//! Short hashes as names.

use sha2::{Digest, Sha256};

/// Twelve hex digits of a hash over these parts in order.
pub fn short_digest(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
        // Separates "a","bc" from "ab","c".
        hash.update([0]);
    }
    format!("{:.12x}", hash.finalize())
}
