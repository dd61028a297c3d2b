//! Random bytes and texts.

use domain::encryption::cipher::CipherError;
use rand::{Rng as _, TryRngCore as _};
use zeroize::Zeroizing;

use crate::base62;

/// 32 random bytes as 43 base62 digits.
pub(crate) fn random_secret() -> String {
    let bytes: Zeroizing<[u8; 32]> = Zeroizing::new(rand::rng().random());
    base62::encode(bytes.as_slice(), 43)
}

/// Random bytes of the operating system, wiped from memory when dropped.
pub(crate) fn random<const N: usize>() -> Result<Zeroizing<[u8; N]>, CipherError> {
    let mut bytes = Zeroizing::new([0; N]);
    rand::rngs::OsRng
        .try_fill_bytes(bytes.as_mut_slice())
        .map_err(|error| CipherError::Other(error.into()))?;
    Ok(bytes)
}
