//! Short hashes as names.

use std::fmt::Write;

use sha2::{Digest, Sha256};

/// Twelve hex digits of a hash over these parts in order.
pub fn short_digest(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part);
        // Separates "a","bc" from "ab","c".
        hash.update([0]);
    }
    let mut text = String::new();
    for byte in hash.finalize().iter().take(6) {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
