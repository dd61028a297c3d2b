//! HTTPS with a configured certificate authority.

use std::sync::Arc;

use domain::git::GitProvider::Gitlab;
use domain::git::{GitError, GitHosting as _};
use git_hosting::{CaCertificates, Config, HttpGitHosting, PrivateHosts};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use crate::server::{ScriptedResponse, access, serve};

#[tokio::test]
async fn only_configured_authorities_are_trusted() {
    let certificate = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(certificate.signing_key.serialize_der().into());
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let server = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.cert.der().clone()], key)
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
                    let response =
                        |_: &_| ScriptedResponse::json(&json!({"id": 1, "username": "ada"}));
                    serve(stream, Arc::default(), Arc::new(response)).await;
                }
            });
        }
    });
    let config = |authorities| Config {
        private_hosts: PrivateHosts::Allowed,
        authorities,
        ..Config::default()
    };
    let untrusting = HttpGitHosting::new(&config(CaCertificates::default())).unwrap();
    let refused = untrusting.user(&access(Gitlab, &host, "t")).await;
    assert!(
        matches!(refused, Err(GitError::Unavailable { .. })),
        "{refused:?}"
    );
    let authorities = CaCertificates::from_pem(certificate.cert.pem().as_bytes()).unwrap();
    let trusting = HttpGitHosting::new(&config(authorities)).unwrap();
    let user = trusting.user(&access(Gitlab, &host, "t")).await.unwrap();
    assert_eq!(user.login, "ada");
}

#[test]
fn invalid_pem_files_are_refused() {
    for text in [
        &b""[..],
        b"x",
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ] {
        assert!(CaCertificates::from_pem(text).is_err());
    }
}
