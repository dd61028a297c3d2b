//! Tests of sealing, opening, and the key files.

use proptest::prelude::*;

use super::*;

fn keyring() -> Keyring {
    Keyring::new(&MasterKey::generate().unwrap(), &[])
}

fn open(keyring: &Keyring, context: &str, text: &str) -> Result<String, CipherError> {
    keyring
        .open(context, &Sealed::from_text(text))
        .map(|secret| secret.expose_secret().to_owned())
}

#[test]
fn sealed_values_differ_and_do_not_contain_the_secret() {
    let keyring = keyring();
    let one = keyring.seal("a/b", &"hunter2".into()).unwrap();
    let two = keyring.seal("a/b", &"hunter2".into()).unwrap();
    assert_ne!(one.as_text(), two.as_text());
    assert!(
        one.as_text()
            .starts_with(&format!("v1.{}.", keyring.key_id()))
    );
    assert!(!format!("{one:?} {keyring:?}").contains("hunter2"));
}

#[test]
fn every_flipped_bit_is_detected() {
    let keyring = keyring();
    let sealed = keyring.seal("a/b", &"some secret".into()).unwrap();
    let prefix = format!("v1.{}.", keyring.key_id());
    let bytes = URL_SAFE_NO_PAD
        .decode(&sealed.as_text()[prefix.len()..])
        .unwrap();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            let text = format!("{prefix}{}", URL_SAFE_NO_PAD.encode(changed));
            let error = open(&keyring, "a/b", &text).unwrap_err();
            assert!(matches!(error, CipherError::Damaged), "{at}.{bit}: {error}");
        }
    }
}

#[test]
fn every_changed_character_is_detected() {
    let keyring = keyring();
    let sealed = keyring.seal("a/b", &"some secret".into()).unwrap();
    let text = sealed.as_text();
    for at in 0..text.len() {
        for replacement in ["A", "b", "0", ".", "=", "é", ""] {
            let mut changed = text.to_owned();
            changed.replace_range(at..=at, replacement);
            if changed != text {
                let error = open(&keyring, "a/b", &changed).unwrap_err();
                // A changed key id may be valid, but names an unknown key.
                let in_id = (3..19).contains(&at);
                match error {
                    CipherError::Damaged => {}
                    CipherError::UnknownKey { .. } if in_id => {}
                    other => panic!("{at}: {other}"),
                }
            }
        }
    }
}

#[test]
fn truncated_and_extended_values_do_not_open() {
    let keyring = keyring();
    let sealed = keyring.seal("a/b", &"some secret".into()).unwrap();
    let text = sealed.as_text();
    for end in 0..text.len() {
        assert!(open(&keyring, "a/b", &text[..end]).is_err(), "{end}");
    }
    assert!(open(&keyring, "a/b", &format!("{text}A")).is_err());
}

#[test]
fn a_value_of_another_record_does_not_open() {
    let keyring = keyring();
    let sealed = keyring.seal("alice/settings", &"x".into()).unwrap();
    for context in ["bob/settings", "alice/settings ", "", "alice/settings\0"] {
        let error = open(&keyring, context, sealed.as_text()).unwrap_err();
        assert!(matches!(error, CipherError::Damaged), "{context:?}");
    }
}

#[test]
fn parts_of_two_values_cannot_be_combined() {
    let keyring = keyring();
    let prefix = format!("v1.{}.", keyring.key_id());
    let [one, two] = ["first", "other"].map(|secret| {
        let sealed = keyring.seal("a/b", &secret.into()).unwrap();
        URL_SAFE_NO_PAD
            .decode(&sealed.as_text()[prefix.len()..])
            .unwrap()
    });
    let mixed = [
        &one[..HEADER_BYTES - NONCE_BYTES],
        &two[HEADER_BYTES - NONCE_BYTES..],
    ]
    .concat();
    let text = format!("{prefix}{}", URL_SAFE_NO_PAD.encode(mixed));
    assert!(matches!(
        open(&keyring, "a/b", &text),
        Err(CipherError::Damaged)
    ));
}

#[test]
fn a_rotated_keyring_opens_old_values_as_outdated() {
    let [old_key, new_key] = [(); 2].map(|()| MasterKey::generate().unwrap());
    let old = Keyring::new(&old_key, &[]);
    let sealed = old.seal("a/b", &"x".into()).unwrap();
    assert!(!old.is_outdated(&sealed));

    let new = Keyring::new(&new_key, std::slice::from_ref(&old_key));
    assert!(new.is_outdated(&sealed));
    assert_eq!(new.open("a/b", &sealed).unwrap().expose_secret(), "x");
    let resealed = new.seal("a/b", &"x".into()).unwrap();
    assert!(!new.is_outdated(&resealed));

    let without = Keyring::new(&new_key, &[]);
    let error = without.open("a/b", &sealed).unwrap_err();
    assert!(matches!(error, CipherError::UnknownKey { key_id } if key_id == old_key.id()));
}

#[test]
fn a_canary_distinguishes_the_right_key() {
    let keyring = keyring();
    let canary = keyring.seal(CANARY_CONTEXT, &CANARY.into()).unwrap();
    keyring.check_canary(&canary).unwrap();
    let other = Keyring::new(&MasterKey::generate().unwrap(), &[]);
    assert!(matches!(
        other.check_canary(&canary),
        Err(CipherError::UnknownKey { .. })
    ));
    let not_a_canary = keyring.seal("installation/other", &CANARY.into()).unwrap();
    assert!(keyring.check_canary(&not_a_canary).is_err());
}

#[test]
fn only_known_keys_can_seal() {
    let [one, two, unknown] = [(); 3].map(|()| MasterKey::generate().unwrap());
    let keyring = Keyring::new(&one, std::slice::from_ref(&two));
    let sealed = keyring.seal("a", &"x".into()).unwrap();
    keyring.seal_with(two.id()).unwrap();
    assert!(keyring.is_outdated(&sealed));
    let resealed = keyring.seal("a", &"x".into()).unwrap();
    assert_eq!(Keyring::key_of(&resealed), Some(two.id()));
    assert!(keyring.seal_with(unknown.id()).is_err());
    assert_eq!(keyring.key_id(), two.id());
    assert_eq!(keyring.key_ids(), [one.id(), two.id()]);
}

#[test]
fn a_key_that_is_added_to_its_file_is_found_on_demand() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("master.key");
    let [old, new] = [(); 2].map(|()| MasterKey::generate().unwrap());
    MasterKey::write_all(&path, &[&old]).unwrap();
    let keyring = Keyring::new(&old, &[]).following(vec![path.clone()]);
    let sealed = Keyring::new(&new, &[]).seal("a", &"x".into()).unwrap();
    MasterKey::write_all(&path, &[&new, &old]).unwrap();
    let opened = keyring.open("a", &sealed).unwrap();
    assert_eq!(opened.expose_secret(), "x");
    assert_eq!(
        keyring.key_id(),
        old.id(),
        "a file does not change the key that seals"
    );
    // The keyring keeps its keys when a file is removed.
    std::fs::remove_file(&path).unwrap();
    assert!(keyring.reread().is_err());
    keyring.open("a", &sealed).unwrap();
}

proptest! {
    #[test]
    fn every_sealed_value_opens(context: String, secret: String) {
        let keyring = keyring();
        let sealed = keyring.seal(&context, &secret.clone().into()).unwrap();
        prop_assert_eq!(open(&keyring, &context, sealed.as_text()).unwrap(), secret);
    }

    #[test]
    fn no_text_panics(text: String) {
        let keyring = keyring();
        prop_assert!(open(&keyring, "c", &text).is_err());
        let with_id = format!("v1.{}.{text}", keyring.key_id());
        prop_assert!(open(&keyring, "c", &with_id).is_err());
    }
}
