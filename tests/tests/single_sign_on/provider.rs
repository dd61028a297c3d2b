//! The provider as a process, and what a person does there.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use reqwest::header::{COOKIE, LOCATION, SET_COOKIE};
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode};

/// Redirects and pages of one login.
const MAX_STEPS: usize = 20;

/// The main file of the package.
fn library() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folder = root.join("target").join("acceptance");
    let file = folder.join("oidc-provider.path");
    std::fs::read_to_string(&file).unwrap_or_else(|_| {
        panic!(
            "no identity provider is installed: `cargo xtask test` installs one and writes {}",
            file.display()
        )
    })
}

/// A running provider. Dropping it kills it.
pub(crate) struct Provider {
    child: Child,
    /// Closed, its next line would end the program.
    _output: BufReader<ChildStdout>,
}

impl Provider {
    /// A port for a provider that starts later.
    pub(crate) fn free_port() -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
        listener.local_addr().expect("an address").port()
    }

    /// Starts it, and waits until it listens.
    pub(crate) fn start(port: u16, redirect: &str) -> Self {
        let script: PathBuf = [
            env!("CARGO_MANIFEST_DIR"),
            "tests",
            "single_sign_on",
            "provider.mjs",
        ]
        .iter()
        .collect();
        let child = Command::new("node")
            .arg(script)
            .args([&library(), &port.to_string(), redirect])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut child = child.expect("node can be started");
        let output = child.stdout.take().expect("a pipe");
        let mut output = BufReader::new(output);
        let mut lines = output.by_ref().lines();
        let is_ready = lines.any(|line| line.is_ok_and(|line| line == "ready"));
        assert!(is_ready, "the provider ended");
        Self {
            child,
            _output: output,
        }
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Signs in at the provider. Returns the address at which it sends the browser back.
pub(crate) async fn sign_in(start: &str, person: &str, home: &str) -> String {
    let http = Client::builder().redirect(Policy::none()).build();
    let http = http.expect("a client can be built");
    let mut cookies = BTreeMap::new();
    let (mut url, mut form) = (start.to_owned(), None);
    for _ in 0..MAX_STEPS {
        if url.starts_with(home) {
            return url;
        }
        let request = match form.take() {
            Some(form) => http
                .post(&url)
                .header("Content-Type", "application/x-www-form-urlencoded")
                .body(form),
            None => http.get(&url),
        };
        let jar: Vec<String> = cookies.iter().map(|(n, v)| format!("{n}={v}")).collect();
        let answer = request.header(COOKIE, jar.join("; ")).send().await;
        let answer = answer.expect("the provider answers");
        for cookie in answer.headers().get_all(SET_COOKIE) {
            let cookie = cookie.to_str().expect("text");
            let pair = cookie.split(';').next().and_then(|it| it.split_once('='));
            let (name, value) = pair.expect("a pair");
            cookies.insert(name.to_owned(), value.to_owned());
        }
        if let Some(next) = answer.headers().get(LOCATION) {
            let base = reqwest::Url::parse(&url).expect("a URL");
            let next = base.join(next.to_str().expect("text"));
            url = next.expect("a URL").to_string();
            continue;
        }
        assert_eq!(answer.status(), StatusCode::OK, "{url}");
        let page = answer.text().await.expect("a page");
        form = Some(if page.contains("name=\"login\"") {
            format!("prompt=login&login={person}&password=x")
        } else {
            assert!(page.contains("value=\"consent\""), "{page}");
            "prompt=consent".to_owned()
        });
    }
    panic!("the login at the provider does not end");
}
