//! A small provider on a socket, with faults.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use url::{Url, form_urlencoded};

/// A key with its id.
pub(super) struct SigningKey {
    pub(super) kid: String,
    pair: EcdsaKeyPair,
}

impl SigningKey {
    pub(super) fn new(kid: &str) -> Self {
        let (algorithm, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        Self {
            kid: kid.to_owned(),
            pair: EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap(),
        }
    }

    pub(super) fn public(&self) -> Value {
        let point = self.pair.public_key().as_ref();
        json!({
            "kty": "EC", "crv": "P-256", "use": "sig", "kid": self.kid,
            "x": URL_SAFE_NO_PAD.encode(&point[1..33]),
            "y": URL_SAFE_NO_PAD.encode(&point[33..]),
        })
    }

    fn sign(&self, message: &str) -> Vec<u8> {
        let random = SystemRandom::new();
        let signature = self.pair.sign(&random, message.as_bytes()).unwrap();
        signature.as_ref().to_vec()
    }
}

type Change = Box<dyn Fn(&mut Value) + Send>;

/// What the provider does.
pub(super) struct FakeState {
    pub(super) published: Vec<Value>,
    pub(super) signer: SigningKey,
    pub(super) change_claims: Change,
    pub(super) change_header: Change,
    /// Replaces the ID token.
    pub(super) token: Option<String>,
    /// Replaces an answer: status and body by path.
    pub(super) answers: BTreeMap<&'static str, (u16, String)>,
    /// A path whose requests are never answered.
    pub(super) hanging: Option<&'static str>,
    pub(super) user_info: Value,
    /// Challenge and nonce by code.
    codes: BTreeMap<String, (String, String)>,
    /// Path, headers and body of each request.
    pub(super) requests: Vec<(String, String, String)>,
}

pub(super) struct FakeProvider {
    pub(super) issuer: String,
    state: Arc<Mutex<FakeState>>,
}

impl FakeProvider {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = format!("http://{}", listener.local_addr().unwrap());
        let signer = SigningKey::new("one");
        let state = Arc::new(Mutex::new(FakeState {
            published: vec![signer.public()],
            signer,
            change_claims: Box::new(|_| {}),
            change_header: Box::new(|_| {}),
            token: None,
            answers: BTreeMap::new(),
            hanging: None,
            user_info: json!({"sub": "ada"}),
            codes: BTreeMap::new(),
            requests: Vec::new(),
        }));
        let (shared, own) = (Arc::clone(&state), issuer.clone());
        #[expect(
            clippy::disallowed_methods,
            reason = "the provider lives as long as the test"
        )]
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&shared), own.clone()));
            }
        });
        Self { issuer, state }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, FakeState> {
        self.state.lock().unwrap()
    }

    /// What a browser does at the authorization endpoint. Returns the code.
    pub(super) fn authorize(&self, url: &Url) -> String {
        let query: BTreeMap<_, _> = url.query_pairs().into_owned().collect();
        let mut state = self.state();
        let code = format!("code & {}", state.codes.len());
        let login = (query["code_challenge"].clone(), query["nonce"].clone());
        state.codes.insert(code.clone(), login);
        code
    }

    /// How often a path was asked for.
    pub(super) fn count(&self, path: &str) -> usize {
        let state = self.state();
        state.requests.iter().filter(|it| it.0 == path).count()
    }
}

async fn serve(mut stream: TcpStream, state: Arc<Mutex<FakeState>>, issuer: String) {
    let Some((path, head, body)) = read_request(&mut stream).await else {
        return;
    };
    let (status, answer) = {
        let mut state = state.lock().unwrap();
        state.requests.push((path.clone(), head, body.clone()));
        if state.hanging == Some(path.as_str()) {
            (0, String::new())
        } else {
            state.answer(&path, &body, &issuer)
        }
    };
    if status == 0 {
        std::future::pending::<()>().await;
    }
    let head = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        answer.len()
    );
    // The client may be gone.
    let _ = stream.write_all(format!("{head}{answer}").as_bytes()).await;
}

async fn read_request(stream: &mut TcpStream) -> Option<(String, String, String)> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length")
                    .then(|| value.trim().parse::<usize>().unwrap())
            });
            if body.len() >= length.unwrap_or_default() {
                let path = head.split(' ').nth(1)?.to_owned();
                return Some((path, head.to_owned(), body.to_owned()));
            }
        }
        let mut part = [0; 4096];
        let count = stream.read(&mut part).await.ok().filter(|it| *it > 0)?;
        bytes.extend_from_slice(&part[..count]);
    }
}

impl FakeState {
    fn answer(&mut self, path: &str, body: &str, issuer: &str) -> (u16, String) {
        if let Some(answer) = self.answers.get(path) {
            return answer.clone();
        }
        match path {
            "/.well-known/openid-configuration" => {
                let at = |path: &str| format!("{issuer}{path}");
                let document = json!({
                    "issuer": issuer,
                    "authorization_endpoint": at("/authorize?tenant=1"),
                    "token_endpoint": at("/token"),
                    "jwks_uri": at("/keys"),
                    "userinfo_endpoint": at("/me"),
                });
                (200, document.to_string())
            }
            "/keys" => (200, json!({"keys": self.published}).to_string()),
            "/me" => (200, self.user_info.to_string()),
            "/token" => self.token_answer(body, issuer),
            _ => (404, "{}".to_owned()),
        }
    }

    fn token_answer(&mut self, body: &str, issuer: &str) -> (u16, String) {
        let form: BTreeMap<_, _> = form_urlencoded::parse(body.as_bytes())
            .into_owned()
            .collect();
        let refusal = (400, json!({"error": "invalid_grant"}).to_string());
        let Some((challenge, nonce)) = self.codes.remove(&form["code"]) else {
            return refusal;
        };
        let verifier = digest(&SHA256, form["code_verifier"].as_bytes());
        if URL_SAFE_NO_PAD.encode(verifier) != challenge {
            return refusal;
        }
        let token = self.token.clone();
        let token = token.unwrap_or_else(|| self.id_token(issuer, &nonce));
        let answer = json!({"id_token": token, "access_token": "access", "token_type": "Bearer"});
        (200, answer.to_string())
    }

    fn id_token(&self, issuer: &str, nonce: &str) -> String {
        let mut header = json!({"alg": "ES256", "kid": self.signer.kid});
        (self.change_header)(&mut header);
        let mut claims = json!({
            "iss": issuer, "aud": "workspace", "sub": "ada", "nonce": nonce,
            "iat": 1_000, "exp": 1_300,
            "email": "ada@corp.example", "email_verified": true, "preferred_username": "ada",
            "groups": ["staff", "ops"],
        });
        (self.change_claims)(&mut claims);
        let encode = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let message = format!("{}.{}", encode(&header), encode(&claims));
        let signature = URL_SAFE_NO_PAD.encode(self.signer.sign(&message));
        format!("{message}.{signature}")
    }
}
