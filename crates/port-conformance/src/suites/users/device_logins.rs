//! Conformance tests of `DeviceLoginRepository`, and of the changes that confirm, deny and end device logins.

use domain::error::StoreError;
use domain::user::administration::AdminChange;
use domain::user::device_login::{DeviceLogin, MAX_DEVICE_LOGINS, UserCode};
use domain::user::identity::KeyHash;
use domain::user::sign_in::SignInChange;

use super::organizations::administer;
use super::repository::key;
use super::sign_in::{change, enrol};
use crate::fixtures::{at, user, uuid};
use crate::{StorePorts, assert_is};

fn login(n: u64) -> DeviceLogin {
    DeviceLogin {
        hash: KeyHash::of(&format!("device {n}")),
        code: UserCode::of(uuid(n)),
        created_at: at(1),
        expires_at: at(100),
        user: None,
        is_denied: false,
    }
}

fn confirm(n: u64, name: &str) -> SignInChange {
    SignInChange::ConfirmDevice {
        code: login(n).code,
        user: user(name),
    }
}

fn deny(n: u64, name: &str) -> SignInChange {
    SignInChange::DenyDevice {
        code: login(n).code,
        user: user(name),
    }
}

fn redeem(n: u64, key_number: u64, name: &str) -> SignInChange {
    SignInChange::RedeemDevice {
        hash: login(n).hash,
        key: key(key_number, name, 3),
    }
}

async fn refuses(ports: &StorePorts, wanted: SignInChange) {
    let refused = change(ports, wanted.clone()).await;
    assert!(
        matches!(refused, Err(StoreError::NotFound { .. })),
        "{wanted:?}: {refused:?}"
    );
}

/// A code is confirmed by one user, once, and gives one key of that user.
pub async fn a_confirmed_code_gives_one_key(ports: &StorePorts) {
    enrol(ports, 1, "ada", "one").await;
    enrol(ports, 2, "bob", "two").await;
    let (one, late) = (
        login(1),
        DeviceLogin {
            expires_at: at(4),
            ..login(2)
        },
    );
    for it in [&one, &late] {
        ports.device_logins.begin(it).await.unwrap();
        let found = ports.device_logins.find(&it.hash).await.unwrap();
        assert_eq!(found.as_ref(), Some(it));
    }
    let taken = DeviceLogin {
        hash: KeyHash::of("other"),
        ..one.clone()
    };
    assert_is!(
        ports.device_logins.begin(&taken).await,
        Err(StoreError::Conflict { .. })
    );
    refuses(ports, redeem(1, 10, "ada")).await;
    // Changes are at 5.
    refuses(ports, confirm(2, "ada")).await;
    refuses(ports, confirm(3, "ada")).await;
    change(ports, confirm(1, "ada")).await.unwrap();
    refuses(ports, confirm(1, "bob")).await;
    let found = ports.device_logins.find(&one.hash).await.unwrap();
    assert_eq!(found.and_then(|it| it.user), Some(user("ada")));
    refuses(ports, redeem(1, 11, "bob")).await;
    change(ports, redeem(1, 12, "ada")).await.unwrap();
    refuses(ports, redeem(1, 13, "ada")).await;
    assert_eq!(ports.device_logins.find(&one.hash).await.unwrap(), None);
    let keys = ports.keys.list(None).await.unwrap();
    assert_eq!(keys, [key(12, "ada", 3)]);
    let before = at(5);
    assert_eq!(ports.device_logins.prune(before, 9).await.unwrap(), 1);
    assert_eq!(ports.device_logins.find(&late.hash).await.unwrap(), None);
}

/// A denied code stays denied, for its program to read, and gives no key. Only a code that waits is denied.
pub async fn a_denied_code_gives_no_key(ports: &StorePorts) {
    enrol(ports, 1, "ada", "one").await;
    let late = DeviceLogin {
        expires_at: at(4),
        ..login(3)
    };
    for it in [&login(1), &login(2), &late] {
        ports.device_logins.begin(it).await.unwrap();
    }
    // Changes are at 5.
    refuses(ports, deny(3, "ada")).await;
    refuses(ports, deny(4, "ada")).await;
    change(ports, deny(1, "ada")).await.unwrap();
    for again in [confirm(1, "ada"), deny(1, "ada"), redeem(1, 10, "ada")] {
        refuses(ports, again).await;
    }
    let denied = DeviceLogin {
        is_denied: true,
        ..login(1)
    };
    let found = ports.device_logins.find(&denied.hash).await.unwrap();
    assert_eq!(found, Some(denied));

    change(ports, confirm(2, "ada")).await.unwrap();
    refuses(ports, deny(2, "ada")).await;
    change(ports, redeem(2, 11, "ada")).await.unwrap();
    assert_eq!(
        ports.keys.list(None).await.unwrap(),
        [key(11, "ada", 3)],
        "the denied code gave none"
    );
}

/// What a user has confirmed gives no key when they are disabled or deleted.
pub async fn a_user_without_access_gets_no_key(ports: &StorePorts) {
    for (n, name) in [(1, "ada"), (2, "bob")] {
        enrol(ports, n, name, "one").await;
        ports.device_logins.begin(&login(n)).await.unwrap();
        change(ports, confirm(n, name)).await.unwrap();
    }
    let disable = AdminChange::SetDisabled {
        user: user("ada"),
        disabled: true,
    };
    administer(ports, disable).await.unwrap();
    ports.users.purge(&user("bob"), at(6), 9).await.unwrap();
    for (n, name) in [(1, "ada"), (2, "bob")] {
        let found = ports.device_logins.find(&login(n).hash).await.unwrap();
        assert_eq!(found, None, "{name}");
        refuses(ports, redeem(n, n + 10, name)).await;
    }
    assert_eq!(ports.keys.list(None).await.unwrap(), []);
    assert_eq!(ports.users.prune(at(100_000), 9).await.unwrap(), 1);
}

/// The number of programs that wait is bounded. Expired ones do not count.
pub async fn device_logins_are_bounded(ports: &StorePorts) {
    let expired = DeviceLogin {
        expires_at: at(1),
        ..login(0)
    };
    ports.device_logins.begin(&expired).await.unwrap();
    for n in 0..MAX_DEVICE_LOGINS {
        let n = u64::try_from(n).unwrap() + 1;
        ports.device_logins.begin(&login(n)).await.unwrap();
    }
    assert_is!(
        ports.device_logins.begin(&login(100_000)).await,
        Err(StoreError::Full { .. })
    );
}

/// Generates the conformance tests of device logins. `$fresh` is a future of a value that derefs to [`StorePorts`].
#[macro_export]
macro_rules! device_logins_conformance {
    ($fresh:expr) => {
        $crate::conformance_tests!(
            (users::device_logins),
            $fresh,
            [
                a_confirmed_code_gives_one_key,
                a_denied_code_gives_no_key,
                a_user_without_access_gets_no_key,
                device_logins_are_bounded,
            ]
        );
    };
}
