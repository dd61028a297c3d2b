//! Upgrades of a database with data.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use domain::id::EventId;
use domain::user::scope::Scope;
use port_conformance::{StorePorts, fixtures};
use store_sql::{SqlStore, StoreConfig};
use tokio::runtime::Handle;

use crate::cluster::{Cluster, TestDatabase};
use crate::upgrade;

async fn open(database: &TestDatabase) -> StorePorts {
    let config = StoreConfig::new(database.url());
    StorePorts::of(SqlStore::open(config, Handle::current()).await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_of_older_versions_reads_like_new_data() {
    let fresh = Cluster::shared().database();
    let new = open(&fresh).await;
    upgrade::fill(&new).await;
    let expected = upgrade::describe(&new).await;
    for version in upgrade::versions() {
        let database = Cluster::shared().database();
        PgConnection::establish(&database.url())
            .unwrap()
            .batch_execute(&upgrade::database_of("postgres", &version))
            .unwrap_or_else(|error| panic!("{version}: {error}"));
        let actual = upgrade::describe(&open(&database).await).await;
        upgrade::assert_same(&version, &actual, &expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_makes_one_administrator_and_protects_the_audit_log() {
    let database = Cluster::shared().database();
    let connect = || PgConnection::establish(&database.url()).unwrap();
    let versions = upgrade::versions();
    let older = upgrade::database_of("postgres", &versions[0]);
    let older = older + upgrade::WITH_ADMIN;
    connect().batch_execute(&older).unwrap();
    let ports = open(&database).await;
    upgrade::check_roles(&ports).await;
    upgrade::add_audit_entry(&ports).await;
    let refused = connect().batch_execute(upgrade::FORGERY).unwrap_err();
    assert!(refused.to_string().contains("only added to"), "{refused}");
}

#[derive(QueryableByName)]
struct Column {
    #[diesel(sql_type = diesel::sql_types::Text)]
    name: String,
}

/// Times, UUIDs and documents have Postgres' own types, except the body of an event.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn columns_have_native_types() {
    let database = Cluster::shared().database();
    drop(open(&database).await);
    let others = diesel::sql_query(
        "SELECT table_name || '.' || column_name || ' ' || data_type AS name FROM information_schema.columns \
         WHERE table_schema = 'public' AND table_name NOT LIKE '\\_\\_%' AND ( \
            (column_name LIKE '%\\_at' OR column_name = 'lease_until') AND data_type <> 'timestamp with time zone' \
            OR column_name IN ('conversation_id', 'parent', 'value_id') AND data_type <> 'uuid' \
            OR column_name = 'id' AND table_name NOT IN ('users', 'sandboxes', 'warm_sandboxes', 'hosts') AND data_type <> 'uuid' \
            OR column_name IN ('pr_numbers', 'metrics', 'timings', 'exposed_urls') AND data_type <> 'jsonb' \
            OR column_name IN ('tags', 'notes', 'request') AND data_type <> 'json') \
         ORDER BY 1",
    )
    .load::<Column>(&mut PgConnection::establish(&database.url()).unwrap())
    .unwrap();
    let names: Vec<_> = others.into_iter().map(|column| column.name).collect();
    assert_eq!(names, [""; 0]);
}

/// The first and the last representable time, and one next to the epoch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_keeps_the_microseconds() {
    let moments = [-62_135_596_800_000_000, -1, 253_402_300_799_999_999];
    let database = Cluster::shared().database();
    let mut raw = PgConnection::establish(&database.url()).unwrap();
    raw.batch_execute(&upgrade::database_of("postgres", "20261121000000"))
        .unwrap();
    for (seq, micros) in (100..).zip(moments) {
        let copy = format!(
            "INSERT INTO events SELECT conversation_id, {seq}, '{seq}', kind, {micros}, body FROM events WHERE seq = 1"
        );
        assert_eq!(diesel::sql_query(copy).execute(&mut raw).unwrap(), 1);
    }
    let ports = open(&database).await;
    let ids = ["100", "101", "102"].map(|id| EventId::parse(id).unwrap());
    let id = fixtures::conversation_id(1);
    let events = ports.events.find_many(&Scope::System, id, &ids).await;
    let stored: Vec<_> = events
        .unwrap()
        .into_iter()
        .map(|event| event.unwrap().timestamp.micros())
        .collect();
    assert_eq!(stored, moments);
}
