//! Public keys of a provider (JSON Web Keys), and signatures by them.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{self, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;

/// Keys of one provider that are looked at.
const MAX_KEYS: usize = 100;

/// Algorithms of signatures that only the provider can make. `none` and those with a shared secret are not among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SigningAlgorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Ps384,
    Ps512,
    Es256,
    Es384,
    EdDsa,
}

impl SigningAlgorithm {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "RS256" => Self::Rs256,
            "RS384" => Self::Rs384,
            "RS512" => Self::Rs512,
            "PS256" => Self::Ps256,
            "PS384" => Self::Ps384,
            "PS512" => Self::Ps512,
            "ES256" => Self::Es256,
            "ES384" => Self::Es384,
            "EdDSA" => Self::EdDsa,
            _ => return None,
        })
    }

    fn rsa(self) -> Option<&'static RsaParameters> {
        Some(match self {
            Self::Rs256 => &signature::RSA_PKCS1_2048_8192_SHA256,
            Self::Rs384 => &signature::RSA_PKCS1_2048_8192_SHA384,
            Self::Rs512 => &signature::RSA_PKCS1_2048_8192_SHA512,
            Self::Ps256 => &signature::RSA_PSS_2048_8192_SHA256,
            Self::Ps384 => &signature::RSA_PSS_2048_8192_SHA384,
            Self::Ps512 => &signature::RSA_PSS_2048_8192_SHA512,
            Self::Es256 | Self::Es384 | Self::EdDsa => return None,
        })
    }
}

/// The keys as the provider publishes them.
#[derive(Debug, Deserialize)]
pub(crate) struct JwkSet {
    keys: Vec<serde_json::Value>,
}

/// A key. Its fields are texts in base64url.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Jwk {
    kty: String,
    #[serde(rename = "use")]
    usage: Option<String>,
    alg: Option<String>,
    kid: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl JwkSet {
    /// The keys for signatures. Keys that cannot be read are left out: providers publish some for other purposes.
    pub(crate) fn signing_keys(self) -> Vec<Jwk> {
        let keys = self.keys.into_iter().take(MAX_KEYS);
        let keys = keys.filter_map(|key| serde_json::from_value::<Jwk>(key).ok());
        keys.filter(|key| key.usage.as_deref().is_none_or(|usage| usage == "sig"))
            .collect()
    }
}

fn bytes(text: Option<&String>) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text?.trim_end_matches('=')).ok()
}

impl Jwk {
    /// Whether a token with this header may be signed with the key.
    pub(crate) fn is_for(&self, kid: Option<&str>, alg: &str) -> bool {
        kid.is_none_or(|kid| self.kid.as_deref() == Some(kid))
            && self.alg.as_deref().is_none_or(|own| own == alg)
    }

    /// Whether the key has made this signature.
    pub(crate) fn verifies(
        &self,
        algorithm: SigningAlgorithm,
        message: &[u8],
        signature: &[u8],
    ) -> bool {
        let verified = match (algorithm, self.kty.as_str(), self.crv.as_deref()) {
            (SigningAlgorithm::Es256, "EC", Some("P-256")) => self.point(32).map(|point| {
                UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point)
                    .verify(message, signature)
            }),
            (SigningAlgorithm::Es384, "EC", Some("P-384")) => self.point(48).map(|point| {
                UnparsedPublicKey::new(&signature::ECDSA_P384_SHA384_FIXED, point)
                    .verify(message, signature)
            }),
            (SigningAlgorithm::EdDsa, "OKP", Some("Ed25519")) => {
                let key = bytes(self.x.as_ref());
                key.map(|key| {
                    UnparsedPublicKey::new(&signature::ED25519, key).verify(message, signature)
                })
            }
            (algorithm, "RSA", _) => algorithm.rsa().and_then(|parameters| {
                let (n, e) = (bytes(self.n.as_ref())?, bytes(self.e.as_ref())?);
                let start = n.iter().position(|byte| *byte != 0).unwrap_or(n.len());
                let key = RsaPublicKeyComponents {
                    n: &n[start..],
                    e: &e,
                };
                Some(key.verify(parameters, message, signature))
            }),
            _ => None,
        };
        verified.is_some_and(|verified| verified.is_ok())
    }

    /// The uncompressed form of a point of a curve.
    fn point(&self, coordinate_bytes: usize) -> Option<Vec<u8>> {
        let (x, y) = (bytes(self.x.as_ref())?, bytes(self.y.as_ref())?);
        let fits = x.len() == coordinate_bytes && y.len() == coordinate_bytes;
        fits.then(|| [&[4], x.as_slice(), y.as_slice()].concat())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // Made with another library (Python's `cryptography`): signatures of `header.payload`.
    const RSA_N: &str = "xLZz5cLKXsAkB2mUuL5Qwd2z32mILDfc2IINzoO6vlEbGx_LtN-erzgNutvk4YLfqyAp0ULuuIadSAVTLs2BL9SPnVzVAV3bnqfpFUjcdy62GRQijGY0gAVVY6taaGwsPBews8C_N220vpNove4ApIKFsTiea3fUdKR7YERPLVoYZ5BY_qQKwOnFQs2yWRv-uf4hNbeCP_eVGAfDF1M6ygyVHkG5rDm3RqPbsH4_iTNjNQgEEjd9ljNYAtluJUslUmhMOLYwhryutBb3LFLUbw3e8ppEv-pY6PKueos6QAzwVtHFOFTL7KW7k26ltR0zri1vV48BEXL16VZ57pFEmQ";
    const RS256: &str = "RwKMif46PG3t0X9wxbzKb2vhok6vGvV_7VTmTArIR8v8GqZIEwoE6gTFsNEW2WSd9Bs5kFCSwOHj54nZ9IX_O0gmiwbPa-dsuXMkxq5MsGq4LASWfZvqfzEamFATnsJ1WUUKK1igAxKoKE06FukEVDkHYOXWLOWN0lu7xBbeWMNLPC2NRAkd7DL0SUG9C1HdW4O0xeoYMhwroMRWVegyXLGyyNVu_GmGP5eLycleJD60Z2WeSsDIxKd6lT78IBrzq6GKXD8AY9Po8JbA47ChGpaJjhkHMvG2haSRbGVKjyGog2nPtJyQU3mLbJyK-8AYUQOXomCjO6xuKO6TUXxpfw";
    const RS512: &str = "wpDgnjyWqbfrj3xMbv7u2pFE0xRF8p8MVhfvkqHTBoa8yJsom8RyzjUnhPth1dTJnNP5fCdj0NmD0yz1bEKRGX8wXyTAsq4AporJmaRvjl0HTa883zcpJ7jKzkz5nZCYO0BQ6u7RankUbpH8ZwwTYedOlUbnVFVjG_PUpxQkzzk0XS5qOtCgU5SvacnxfiqeeNGiGaY9vcuNckA8xeEe1GYKzqVCzyhqAtMCfBAyMiofFXCs_c8gHQdC6rg9Ay9XqebB0R8tXtqU7EjEdKMiW3W1emSAOPZcs_HmHyeUqCdU58wGjVp2aU1SLtBALq_gM_afZmJztvxO591XjnWdwA";
    const PS256: &str = "XzkSDUvla8HKpGT67pYigeSM8wnPwNi6gQncuiTk6RB9O7pbF3XXil3KIDcTh830PBrPtiVfKuu0mXjSWcbSUfI3WimoIyH6gH_jZNfC9h624BKOogfs-AwucoUjYxAAo0oWNg4FUR5OYV56hePJrCCjxVtz2iqOh5epAcmxildtdc9rFypjiaA5GYVBR1ulxrl_U2K_c2O3yowbPZGXKirbJLe-rIRobfugSxiFJyAEJnXzUTMxyUw9I7ES8nLYpbmg6cjrrqVnE2GEyHNkeU7TKS-93gqrbU3KnsbXS90S-iJl-oYRMzw-Yk5CfdcQBHB1yke2NrBmhVkb3tRT8g";
    const P384_X: &str = "UjBFtzUSp9EyBNbOtJ32QiknsOYU0JHWEZegAjCMda_2OodMvS6Fy4Tpe-PZm_I9";
    const P384_Y: &str = "oeAEFqxukcMqUQpHq16YxhW_U-5Rpd245bLGJ9pjOFhu-9QLDjnMIN1lxLOG_Xkl";
    const ES384: &str = "ZXhtAxH9Gm3Q6hbiiT1Im98uF3SRy4wR8DjjJZj6dtVPhg-TyE7vt82KNj59eYy_DVCEDB0S-WgL9oV-I8L_0INEo1s411pKBgbfAakaD-Jdf0KYosMEO1cO_ap1W6bG";
    const ED25519_X: &str = "-wWKH7H9oC-uKEhjPeQM4XYXoVNgLOPUwAnxc75nzhE";
    const EDDSA: &str =
        "-78A1Gsx6A6k-J_sXelaH9iTXyC6hI4gMnOE8jHgU5EsGnZZalJP13eXg139ksdzKLs7437_zqKo3zlHLfnlCg";

    fn key(json: serde_json::Value) -> Jwk {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn signatures_of_each_kind_of_key_are_verified() {
        let rsa = || key(json!({"kty": "RSA", "n": RSA_N, "e": "AQAB"}));
        let ec = key(json!({"kty": "EC", "crv": "P-384", "x": P384_X, "y": P384_Y}));
        let ed = key(json!({"kty": "OKP", "crv": "Ed25519", "x": ED25519_X}));
        let table = [
            ("RS256", rsa(), RS256),
            ("RS512", rsa(), RS512),
            ("PS256", rsa(), PS256),
            ("ES384", ec, ES384),
            ("EdDSA", ed, EDDSA),
        ];
        for (name, own, text) in &table {
            let algorithm = SigningAlgorithm::parse(name).unwrap();
            let signature = URL_SAFE_NO_PAD.decode(text).unwrap();
            assert!(
                own.verifies(algorithm, b"header.payload", &signature),
                "{name}"
            );
            assert!(
                !own.verifies(algorithm, b"header.payloae", &signature),
                "{name}"
            );
            assert!(
                !own.verifies(algorithm, b"header.payload", &signature[1..]),
                "{name}"
            );
            for (other, key, _) in &table {
                if other != name {
                    let other = SigningAlgorithm::parse(other).unwrap();
                    assert!(
                        !key.verifies(other, b"header.payload", &signature),
                        "{name}"
                    );
                }
            }
        }
    }

    #[test]
    fn malformed_and_foreign_keys_verify_nothing() {
        let signature = URL_SAFE_NO_PAD.decode(RS256).unwrap();
        for bad in [
            json!({"kty": "RSA"}),
            json!({"kty": "RSA", "n": "", "e": ""}),
            json!({"kty": "RSA", "n": "AAAA", "e": "AQAB"}),
            json!({"kty": "RSA", "n": "not base64!", "e": "AQAB"}),
            json!({"kty": "oct", "k": RSA_N}),
            json!({"kty": "EC", "crv": "P-256", "x": P384_X, "y": P384_Y}),
        ] {
            let bad = key(bad);
            for name in ["RS256", "ES256", "ES384", "EdDSA"] {
                let algorithm = SigningAlgorithm::parse(name).unwrap();
                assert!(
                    !bad.verifies(algorithm, b"header.payload", &signature),
                    "{bad:?}"
                );
            }
        }
        for name in ["none", "HS256", "HS512", "rs256", ""] {
            assert_eq!(SigningAlgorithm::parse(name), None, "{name}");
        }
    }

    #[test]
    fn keys_for_other_purposes_are_left_out() {
        let set = json!({"keys": [
            {"kty": "RSA", "use": "enc", "kid": "a", "n": RSA_N, "e": "AQAB"},
            {"kty": "RSA", "use": "sig", "kid": "b", "alg": "RS256", "n": RSA_N, "e": "AQAB"},
            {"no": "key"},
            7,
        ]});
        let set: JwkSet = serde_json::from_value(set).unwrap();
        let keys = set.signing_keys();
        assert_eq!(keys.len(), 1);
        for (kid, alg, expected) in [
            (Some("b"), "RS256", true),
            (None, "RS256", true),
            (Some("b"), "PS256", false),
            (Some("a"), "RS256", false),
        ] {
            assert_eq!(keys[0].is_for(kid, alg), expected, "{kid:?} {alg}");
        }
    }
}
