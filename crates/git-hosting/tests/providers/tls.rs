//! HTTPS with an authority of one's own.

use std::sync::Arc;

use domain::conversation::GitProvider::Gitlab;
use domain::git::{GitError, GitHosting as _};
use git_hosting::{CaCertificates, Config, HttpGitHosting, PrivateHosts};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use crate::server::{Answer, access, serve};

#[tokio::test]
async fn only_an_authority_that_is_configured_is_trusted() {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let server = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(server));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = format!(
        "https://localhost:{}",
        listener.local_addr().unwrap().port()
    );
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            connections.spawn(async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    let answer = |_: &_| Answer::json(&json!({"id": 1, "username": "ada"}));
                    serve(stream, Arc::default(), Arc::new(answer)).await;
                }
            });
        }
    });
    let config = |authorities| Config {
        private_hosts: PrivateHosts::Allowed,
        authorities,
        ..Config::default()
    };
    let stranger = HttpGitHosting::new(&config(CaCertificates::default())).unwrap();
    let refused = stranger.user(&access(Gitlab, &host, "t")).await;
    assert!(
        matches!(refused, Err(GitError::Unavailable { .. })),
        "{refused:?}"
    );
    let known = CaCertificates::from_pem(made.cert.pem().as_bytes()).unwrap();
    let friend = HttpGitHosting::new(&config(known)).unwrap();
    let user = friend.user(&access(Gitlab, &host, "t")).await.unwrap();
    assert_eq!(user.login, "ada");
}

#[test]
fn files_that_are_no_authorities() {
    for text in [
        &b""[..],
        b"x",
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ] {
        assert!(CaCertificates::from_pem(text).is_err());
    }
}
