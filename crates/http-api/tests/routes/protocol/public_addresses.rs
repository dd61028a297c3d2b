//! The public addresses in responses, and the routes behind them.

use actix_web::http::Method;
use actix_web::test::TestRequest;
use domain::sandbox::ExposedUrl;
use http_api::{AddressConfig, Listener};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use url::Url;

use crate::fixture::{ADA, World};

fn below(public: &str, sandboxes: Option<&str>) -> AddressConfig {
    AddressConfig {
        public_url: Some(public.parse().unwrap()),
        sandbox_url: sandboxes.map(|url| url.parse().unwrap()),
        direct: false,
        callback_host: None,
    }
}

async fn world(addresses: AddressConfig, worker: u16) -> World {
    let world = Box::pin(World::reached_at(addresses)).await;
    world.backend.expose_url(ExposedUrl {
        name: "WORKER_1".to_owned(),
        // The public URL; the service itself connects to the agent server's address.
        url: format!("http://elsewhere.example:{worker}/")
            .parse()
            .unwrap(),
        port: 8011,
    });
    Box::pin(world.at_work()).await
}

/// The public URL of this port.
async fn address_of(world: &World, name: &str) -> String {
    let found = world.get(ADA, "/api/v1/sandboxes/search").await.ok();
    let urls = found["items"][0]["exposed_urls"]
        .as_array()
        .unwrap()
        .clone();
    let worker = urls.iter().find(|it| it["name"] == name).unwrap();
    worker["url"].as_str().unwrap().to_owned()
}

/// Answers one request by echoing it.
async fn mirror() -> (u16, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked = tokio::task::spawn_local(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let answer = "HTTP/1.1 302 Found\r\nLocation: /in?x=1\r\nSet-Cookie: tkn=t; Path=/; HttpOnly\r\n\
                      Content-Length: 2\r\nConnection: close\r\n\r\nhi";
        stream.write_all(answer.as_bytes()).await.unwrap();
        String::from_utf8(head).unwrap().to_ascii_lowercase()
    });
    (port, asked)
}

#[actix_web::test]
async fn one_address_is_enough_for_clients() {
    let world = world(below("https://h.example/agents/", None), 1).await;
    let task = world.start(ADA, &json!({})).await;
    let id = task["app_conversation_id"].as_str().unwrap();
    // A proxy may pass on the path of the public URL, or strip it.
    for prefix in ["/agents", ""] {
        let path = format!("{prefix}/api/v1/app-conversations?ids={id}");
        let found = world.get(ADA, &path).await.ok();
        let url = found[0]["conversation_url"].as_str().unwrap();
        let hex = id.replace('-', "");
        let url_id = url.strip_prefix("https://h.example/agents/api/conversations/");
        assert_eq!(url_id.map(|it| it.replace('-', "")), Some(hex), "{url}");
        let page = format!("{prefix}/docs");
        let away = world.send(TestRequest::get().uri(&page)).await;
        assert_eq!(away.status, 307);
        let document = world.get(ADA, &format!("{prefix}/openapi.json")).await.ok();
        assert_eq!(document["servers"], json!([{"url": "/agents"}]));
    }
    let exposed = world.get(ADA, "/api/v1/sandboxes/search").await.ok();
    let exposed = &exposed["items"][0]["exposed_urls"][0];
    assert_eq!(
        *exposed,
        json!({"name": "AGENT_SERVER", "url": "https://h.example/agents", "port": 9001})
    );
    world
        .get(ADA, "/agentsx/api/v1/users/me")
        .await
        .refuses(404, "Not Found");
}

#[actix_web::test]
async fn redirects_lead_back_to_the_public_path() {
    let world = World::reached_at(below("https://h.example/agents", None)).await;
    for (path, to) in [
        ("/docs", "/agents/docs/"),
        ("/agents/docs", "/agents/docs/"),
        (
            "/agents/api/v1/users/me/?a=1",
            "/agents/api/v1/users/me?a=1",
        ),
        ("/api/v1/users/me/", "/agents/api/v1/users/me"),
    ] {
        let answer = world.open(ADA, path, None).await;
        let location = answer
            .headers
            .get("location")
            .map(|it| it.to_str().unwrap());
        assert_eq!((answer.status, location), (307, Some(to)), "{path}");
    }
}

#[actix_web::test]
async fn a_signed_path_forwards_to_the_port_without_service_credentials() {
    let (port, asked) = mirror().await;
    let world = world(below("https://h.example/", None), port).await;
    let task = world.start(ADA, &json!({})).await;
    let id = task["sandbox_id"].as_str().unwrap();
    let url = address_of(&world, "WORKER_1").await;
    let path = url.strip_prefix("https://h.example").unwrap();
    assert!(path.starts_with(&format!("/s/{id}/WORKER_1/")), "{path}");

    for wrong in [
        path.replace("WORKER_1", "AGENT_SERVER"),
        path.replace("WORKER_1", "WORKER_2"),
        path.replace(id, "another"),
        format!("/s/{id}/WORKER_1/{}/", "0".repeat(64)),
        format!("/s/{id}/WORKER_1//"),
    ] {
        world.get(ADA, &wrong).await.refuses(404, "Not Found");
    }
    for method in [Method::CONNECT, Method::TRACE] {
        let request = TestRequest::default().method(method).uri(path);
        world.send(request).await.refuses(404, "Not Found");
    }

    let request = TestRequest::get()
        .uri(&format!("{path}/a%2Fb?session_api_key={ADA}&q=%20"))
        .insert_header(("X-Session-API-Key", ADA))
        .insert_header(("Authorization", format!("Bearer {ADA}")))
        .insert_header(("Cookie", "mine=1; sandbox.tkn=t"))
        .insert_header(("X-Forwarded-For", "198.51.100.7"));
    let answer = world.open_as(request).await;
    let head = asked.await.unwrap();
    assert!(head.starts_with("get /a%2fb?q=%20 http/1.1\r\n"), "{head}");
    assert!(head.contains("\r\ncookie: tkn=t\r\n"), "{head}");
    assert!(
        head.contains(&format!(
            "\r\nx-forwarded-prefix: {}\r\n",
            path.to_ascii_lowercase()
        )),
        "{head}"
    );
    for ours in [&ADA.to_ascii_lowercase(), "mine", "198.51.100.7"] {
        assert!(!head.contains(ours), "{ours}: {head}");
    }
    let header = |name: &str| {
        answer
            .headers
            .get(name)
            .map(|it| it.to_str().unwrap().to_owned())
    };
    assert_eq!(answer.status, 302);
    assert_eq!(header("location"), Some(format!("{path}/in?x=1")));
    assert_eq!(
        header("set-cookie"),
        Some(format!("sandbox.tkn=t; HttpOnly; Path={path}/"))
    );
    assert!(
        header("content-security-policy")
            .unwrap()
            .starts_with("sandbox allow-scripts")
    );

    world
        .post(ADA, &format!("/api/v1/sandboxes/{id}/pause"), &json!({}))
        .await
        .ok();
    world.get(ADA, path).await.refuses(404, "Not Found");
}

#[actix_web::test]
async fn the_sandbox_host_serves_only_signed_paths() {
    let addresses = below("https://h.example/", Some("https://boxes.example/"));
    let world = World::reached_at(addresses).await;
    let ask = |host: &'static str, path: &'static str| {
        TestRequest::get()
            .uri(path)
            .insert_header(("Host", host))
            .insert_header(("X-Session-API-Key", ADA))
    };
    for (host, path, status) in [
        ("h.example", "/api/v1/users/me", 200),
        ("boxes.example", "/api/v1/users/me", 404),
        ("boxes.example", "/alive", 404),
        ("h.example", "/alive", 200),
    ] {
        let answer = world.send_to(Listener::Public, ask(host, path)).await;
        assert_eq!(answer.status, status, "{host}{path}");
    }
}

#[actix_web::test]
async fn only_editors_keep_their_origin_on_the_sandbox_host() {
    let addresses = below("https://h.example/", Some("https://boxes.example/"));
    for (name, keeps_origin) in [("WORKER_1", false), ("VSCODE", true)] {
        let (port, asked) = mirror().await;
        let world = World::reached_at(addresses.clone()).await;
        world.backend.expose_url(ExposedUrl {
            name: name.to_owned(),
            url: format!("http://127.0.0.1:{port}/").parse().unwrap(),
            port: 8001,
        });
        let world = world.at_work().await;
        world.start(ADA, &json!({})).await;
        let address_shown: Url = address_of(&world, name).await.parse().unwrap();
        assert_eq!(address_shown.host_str(), Some("boxes.example"));
        let path = address_shown.path().trim_end_matches('/');
        let ask = |host: &str, path: &str| {
            let request = TestRequest::get().uri(path);
            request.insert_header(("Host", host.to_owned()))
        };
        let answer = world.send(ask("h.example", &format!("{path}/"))).await;
        answer.refuses(404, "Not Found");
        // Relative URLs need the slash of the port's root. The port itself gets no request.
        let answer = world
            .open_as(ask("boxes.example", &format!("{path}?a=1")))
            .await;
        let to = answer.headers.get("location").unwrap().to_str().unwrap();
        assert_eq!((answer.status, to), (307, &*format!("{path}/?a=1")));
        let answer = world.open_as(ask("boxes.example", to)).await;
        assert_eq!(answer.status, 302);
        let policy = answer.headers.get("content-security-policy");
        assert_eq!(policy.is_none(), keeps_origin, "{name}: {policy:?}");
        let head = asked.await.unwrap();
        assert!(head.starts_with("get /?a=1 http/1.1\r\n"), "{head}");
    }
}
