//! Conversations as archives.

use std::io::{Cursor, Read as _};

use actix_web::HttpResponse;
use actix_web::body::to_bytes;
use serde_json::{Value, json};
use zip::ZipArchive;

use crate::fixture::{ADA, BOB, UNKNOWN, World};

fn path(id: &str) -> String {
    format!("/api/v1/app-conversations/{id}/download")
}

/// A conversation with this many events.
async fn conversation(world: &World, events: usize) -> String {
    let id = world.conversation(ADA).await;
    let key = world.read(ADA, &id).await["session_api_key"].clone();
    let event = |n: usize| {
        let second = n % 60;
        json!({"id": format!("../{n}"), "timestamp": format!("2026-11-21T10:00:{second:02}"), "kind": "MessageEvent"})
    };
    let batch: Value = (0..events).rev().map(event).collect();
    world
        .post(
            key.as_str().unwrap(),
            &format!("/api/v1/webhooks/events/{id}"),
            &batch,
        )
        .await
        .ok();
    id
}

async fn files(answer: HttpResponse) -> Vec<(String, Value)> {
    assert_eq!(answer.status(), 200);
    let bytes = to_bytes(answer.into_body()).await;
    let bytes = bytes.unwrap_or_else(|error| panic!("no whole body: {error}"));
    let mut archive = ZipArchive::new(Cursor::new(bytes.to_vec())).unwrap();
    (0..archive.len())
        .map(|index| {
            let mut file = archive.by_index(index).unwrap();
            let mut text = String::new();
            file.read_to_string(&mut text).unwrap();
            // Indented by two spaces, like the reference.
            assert!(text.starts_with("{\n  \""), "{text}");
            let name = file.name().unwrap().into_owned();
            (name, serde_json::from_str(&text).unwrap())
        })
        .collect()
}

#[actix_web::test]
async fn an_archive_contains_the_conversation_and_its_events_in_order() {
    let world = World::working().await;
    let id = conversation(&world, 3).await;
    let answer = world.unread(ADA, &path(&id)).await;
    let dashed = uuid::Uuid::parse_str(&id).unwrap().to_string();
    let header = |name| answer.headers().get(name).unwrap().to_str().unwrap();
    assert_eq!(header("content-type"), "application/zip");
    assert_eq!(
        header("content-disposition"),
        format!("attachment; filename=\"conversation_{dashed}.zip\"")
    );
    let files = files(answer).await;
    let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "meta.json",
            "event_000000____0.json",
            "event_000001____1.json",
            "event_000002____2.json"
        ]
    );
    let mut expected = world.read(ADA, &id).await;
    for passing in [
        "sandbox_status",
        "execution_status",
        "conversation_url",
        "session_api_key",
    ] {
        expected.as_object_mut().unwrap().shift_remove(passing);
    }
    assert_eq!(files[0].1.to_string(), expected.to_string());
    assert_eq!(files[1].1["id"], "../0");
}

#[actix_web::test]
async fn unknown_conversations_have_the_references_error() {
    let world = World::working().await;
    let id = conversation(&world, 0).await;
    let dashed = uuid::Uuid::parse_str(&id).unwrap().to_string();
    for (user, id, dashed) in [(ADA, UNKNOWN, UNKNOWN), (BOB, id.as_str(), dashed.as_str())] {
        world
            .get(user, &path(id))
            .await
            .refuses(404, &format!("Conversation not found: {dashed}"));
    }
    assert_eq!(world.get(ADA, &path("zz")).await.status, 422);
    assert_eq!(files(world.unread(ADA, &path(&id)).await).await.len(), 1);
}

#[actix_web::test]
async fn revoking_the_key_aborts_the_download() {
    let world = World::working().await;
    let id = conversation(&world, 1).await;
    let made = world.post(ADA, "/api/v1/keys", &json!({})).await.json();
    let download = world
        .unread(made["key"].as_str().unwrap(), &path(&id))
        .await;
    assert_eq!(download.status(), 200);
    assert_eq!(world.get(ADA, &path(&id)).await.status, 409, "it goes on");
    let key = format!("/api/v1/keys/{}", made["record"]["id"].as_str().unwrap());
    world.delete(ADA, &key).await;
    let over = async {
        while world.unread(ADA, &path(&id)).await.status() == 409 {
            tokio::task::yield_now().await;
        }
    };
    let over = tokio::time::timeout(std::time::Duration::from_secs(30), over);
    over.await.expect("its place is free");
    assert!(to_bytes(download.into_body()).await.is_err());
}

#[actix_web::test]
async fn downloads_at_once_are_few() {
    let world = World::working().await;
    let (one, two, three) = (
        conversation(&world, 1).await,
        conversation(&world, 1).await,
        conversation(&world, 1).await,
    );
    // Without a reader they stay open.
    let first = world.unread(ADA, &path(&one)).await;
    let again = world.get(ADA, &path(&one)).await;
    assert_eq!(again.status, 409, "{}", again.text);
    let second = world.unread(ADA, &path(&two)).await;
    let third = world.unread(ADA, &path(&three)).await;
    assert_eq!(
        (second.status().as_u16(), third.status().as_u16()),
        (200, 429)
    );
    assert!(third.headers().contains_key("retry-after"));
    // A completed download frees its place.
    assert_eq!(files(first).await.len(), 2);
    while world.unread(ADA, &path(&three)).await.status() != 200 {
        tokio::task::yield_now().await;
    }
}

#[actix_web::test]
async fn deleting_the_conversation_aborts_the_download() {
    let world = World::working().await;
    let id = conversation(&world, 150).await;
    let answer = world.unread(ADA, &path(&id)).await;
    let deleted = format!("/api/v1/app-conversations/{id}");
    world.delete(ADA, &deleted).await.ok();
    assert!(to_bytes(answer.into_body()).await.is_err());
}
