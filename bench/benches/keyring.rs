//! Cost of sealing and opening, compared with AES-256-GCM alone under a prepared key.

use std::hint::black_box;

use aes_gcm::aead::consts::U12;
use aes_gcm::aead::inout::InOutBuf;
use aes_gcm::{AeadInOut, Aes256Gcm, Key, KeyInit, Nonce};
use criterion::{Criterion, criterion_group, criterion_main};
use domain::encryption::cipher::Cipher;
use keyring::{Keyring, MasterKey};
use secrecy::SecretString;

const CONTEXT: &str = "user/alice/settings";
/// Kinds of secrets, and their lengths in bytes.
const SECRETS: [(&str, usize); 2] = [("a session key", 43), ("settings of 4 KiB", 4096)];

fn seal(criterion: &mut Criterion) {
    let keyring = keyring();
    for (kind, length) in SECRETS {
        let mut group = criterion.benchmark_group(format!("seal {kind}"));
        let secret = SecretString::from("s".repeat(length));
        group.bench_function("ours", |bencher| {
            bencher.iter(|| keyring.seal(CONTEXT, black_box(&secret)).expect("sealed"));
        });
        let (cipher, nonce) = plain_cipher();
        group.bench_function("bare", |bencher| {
            bencher.iter(|| {
                let mut text = vec![b's'; length];
                let buffer = InOutBuf::from(text.as_mut_slice());
                let tag = cipher.encrypt_inout_detached(&nonce, CONTEXT.as_bytes(), buffer);
                black_box((tag.expect("encrypted"), text))
            });
        });
        group.finish();
    }
}

fn open(criterion: &mut Criterion) {
    let keyring = keyring();
    for (kind, length) in SECRETS {
        let mut group = criterion.benchmark_group(format!("open {kind}"));
        let secret = SecretString::from("s".repeat(length));
        let sealed = keyring.seal(CONTEXT, &secret).expect("sealed");
        group.bench_function("ours", |bencher| {
            bencher.iter(|| keyring.open(CONTEXT, black_box(&sealed)).expect("opened"));
        });
        let (cipher, nonce) = plain_cipher();
        let mut text = vec![b's'; length];
        let buffer = InOutBuf::from(text.as_mut_slice());
        let tag = cipher.encrypt_inout_detached(&nonce, CONTEXT.as_bytes(), buffer);
        let tag = tag.expect("encrypted");
        group.bench_function("bare", |bencher| {
            bencher.iter(|| {
                let mut plain = text.clone();
                let buffer = InOutBuf::from(plain.as_mut_slice());
                let opened =
                    cipher.decrypt_inout_detached(&nonce, CONTEXT.as_bytes(), buffer, &tag);
                opened.expect("decrypted");
                black_box(plain)
            });
        });
        group.finish();
    }
}

fn keyring() -> Keyring {
    Keyring::new(&MasterKey::generate().expect("a key"), &[])
}

fn plain_cipher() -> (Aes256Gcm, Nonce<U12>) {
    let cipher = Aes256Gcm::new(<&Key<Aes256Gcm>>::from(&[7; 32]));
    let nonce = Nonce::try_from([1; 12].as_slice());
    (cipher, nonce.expect("a nonce has 12 bytes"))
}

criterion_group!(benches, seal, open);
criterion_main!(benches);
