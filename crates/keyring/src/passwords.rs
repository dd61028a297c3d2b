//! Slow, salted hashes of users' passwords.

use argon2::password_hash::{self, PasswordHasher as _, PasswordVerifier as _, SaltString};
use argon2::{Algorithm, Argon2, Params, Version};
use domain::user::sign_in::{PasswordHash, PasswordHasher};
use rand::Rng as _;
use secrecy::{ExposeSecret as _, SecretString};

/// Memory in KiB, iterations and lanes: the first choice of OWASP's password storage cheat sheet for Argon2id.
const MEMORY_KIB: u32 = 19 * 1024;
const ITERATIONS: u32 = 2;
const LANES: u32 = 1;

/// Hashes passwords with Argon2id. Hashes name their parameters, so older ones stay valid when these change.
#[derive(Debug, Clone)]
pub struct Argon2Passwords {
    argon2: Argon2<'static>,
    /// The hash of a random password, for users without one.
    dummy: PasswordHash,
}

impl Argon2Passwords {
    /// Takes as long as hashing a password.
    ///
    /// # Panics
    /// If the constant parameters are outside of what Argon2 allows.
    pub fn new() -> Self {
        let params = Params::new(MEMORY_KIB, ITERATIONS, LANES, None);
        let params = params.expect("constant parameters within the limits");
        let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        let dummy = hash_with(&argon2, &crate::random::random_secret().into());
        Self { argon2, dummy }
    }

    fn matches(&self, password: &SecretString, hash: &PasswordHash) -> bool {
        let Ok(parsed) = password_hash::PasswordHash::new(hash.as_text()) else {
            return false;
        };
        let password = password.expose_secret().as_bytes();
        self.argon2.verify_password(password, &parsed).is_ok()
    }
}

impl Default for Argon2Passwords {
    fn default() -> Self {
        Self::new()
    }
}

fn hash_with(argon2: &Argon2<'_>, password: &SecretString) -> PasswordHash {
    let salt: [u8; 16] = rand::rng().random();
    let salt = SaltString::encode_b64(&salt).expect("16 bytes are a valid salt");
    let hash = argon2.hash_password(password.expose_secret().as_bytes(), &salt);
    let hash = hash.expect("passwords of any length and salts of 16 bytes can be hashed");
    PasswordHash::from_text(hash.to_string())
}

impl PasswordHasher for Argon2Passwords {
    fn hash(&self, password: &SecretString) -> PasswordHash {
        hash_with(&self.argon2, password)
    }

    fn verify(&self, password: &SecretString, hash: Option<&PasswordHash>) -> bool {
        let matches = self.matches(password, hash.unwrap_or(&self.dummy));
        matches && hash.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_matches_its_own_hash_only() {
        let passwords = Argon2Passwords::new();
        let (right, wrong) = (
            "correct horse battery".into(),
            "correct horse batter".into(),
        );
        let hash = passwords.hash(&right);
        assert!(
            hash.as_text()
                .starts_with("$argon2id$v=19$m=19456,t=2,p=1$"),
            "{}",
            hash.as_text()
        );
        assert!(passwords.verify(&right, Some(&hash)));
        assert!(!passwords.verify(&wrong, Some(&hash)));
        assert!(!passwords.verify(&right, None));
        assert_ne!(passwords.hash(&right), hash, "salted");
        let damaged = PasswordHash::from_text("x");
        assert!(!passwords.verify(&right, Some(&damaged)));
    }

    /// Cheaper or dearer parameters of an earlier or later release are taken from the hash.
    #[test]
    fn a_hash_with_other_parameters_stays_valid() {
        let params = Params::new(8, 1, 1, None).unwrap();
        let other = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        let password = "correct horse battery".into();
        let hash = hash_with(&other, &password);
        assert!(Argon2Passwords::new().verify(&password, Some(&hash)));
    }
}
