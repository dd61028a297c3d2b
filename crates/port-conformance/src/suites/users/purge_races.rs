//! Conformance tests of `UserRepository::purge` with concurrent requests of the same user.

use domain::encryption::cipher::Sealed;
use domain::id::OwnerId;
use domain::sandbox::DesiredState;
use domain::start_task::{StartTaskFilter, StartTaskOrder};
use domain::user::scope::Scope;
use domain::user::secret::SecretChange;
use domain::user::settings::SettingsOwner;
use futures::future::{join, join_all};

use super::repository::key;
use crate::StorePorts;
use crate::fixtures::{AMPLE_CAPS, at, host, page, sandbox, secret, start, user};

/// A request at the moment of the deletion is either refused, or its objects are deleted, too.
pub async fn concurrent_writes_are_deleted_too(ports: &StorePorts) {
    ports.keys.insert(&key(1, "alice", 0)).await.unwrap();
    let (alice, alice_settings): (OwnerId, SettingsOwner) = (user("alice"), user("alice"));
    let document = Sealed::from_text("sealed settings");
    let requests = join_all((0..10).map(|n| {
        let new = start(n, "alice", &format!("s-{n}"), at(1));
        let row = sandbox(&format!("t-{n}"), "alice", at(1));
        let (owner, document) = (&alice_settings, &document);
        async move {
            // Each of them may be refused; no other failure is allowed.
            let _ = ports.tasks.insert(&new, &AMPLE_CAPS).await;
            let _ = ports.sandboxes.insert(&row, &AMPLE_CAPS).await;
            let _ = ports.settings.save(owner, document, None, at(1)).await;
            let secret = secret(n, "alice", &format!("S{n}"), at(1));
            let _ = ports.secrets.insert(&secret).await;
            let _ = ports.secrets.put(&secret, &SecretChange::default()).await;
            let _ = ports.keys.insert(&key(100 + n, "alice", 1)).await;
        }
    }));
    let purge = async {
        while ports
            .users
            .purge(&user("alice"), at(2), 3)
            .await
            .unwrap()
            .unwrap()
            .more
        {}
    };
    join(requests, purge).await;
    // Only sandboxes that are marked for removal are left.
    assert_eq!(ports.users.list_partially_deleted(9).await.unwrap(), []);
    assert_eq!(ports.keys.list(None).await.unwrap(), []);
    assert_eq!(ports.settings.load(&alice_settings).await.unwrap(), None);
    assert_eq!(ports.secrets.all(&alice).await.unwrap(), []);
    for row in ports
        .host_sandboxes
        .list_on_host(&host(), None, 100)
        .await
        .unwrap()
    {
        assert_eq!(row.desired, DesiredState::Deleted);
    }
    let (all, order) = (StartTaskFilter::default(), StartTaskOrder::CreatedAt);
    let tasks = ports
        .tasks
        .search(&Scope::System, &all, order, &page(100))
        .await;
    assert_eq!(tasks.unwrap().items, []);
}
