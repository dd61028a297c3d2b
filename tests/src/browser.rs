//! A headless Chromium that reads, clicks and types like a person.
//!
//! Two pipes carry the `DevTools` protocol (`--remote-debugging-pipe`), so no port is opened and no driver is needed.
//! <https://chromedevtools.github.io/devtools-protocol/>

mod netlink;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::{sleep, timeout};

use self::netlink::spawn_without_netlink;
use crate::print_line;
use crate::proxy::authority::Authority;

/// Names of the browser's program on different systems.
const PROGRAMS: [&str; 4] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
];
/// For one response of the browser. The first one takes seconds on a busy machine.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
/// Until the page shows the effect of an action, which may be the start of a sandbox on a machine that builds meanwhile.
const PAGE_TIMEOUT: Duration = Duration::from_secs(180);
/// A click that shows no effect for this long is repeated: the page may have been redrawn under it.
const CLICK_TIMEOUT: Duration = Duration::from_secs(4);
const POLL_INTERVAL: Duration = Duration::from_millis(40);

/// A browser with one page. Dropping it ends all of its processes.
pub struct Browser {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    dir: TempDir,
    last: u64,
    session: Option<String>,
    page_state: PageState,
    /// The web sockets of the page that are open.
    sockets: BTreeSet<String>,
}

/// Requests and errors of the page.
#[derive(Debug, Default)]
pub struct PageState {
    /// Requested URLs.
    pub requests: Vec<String>,
    /// URLs that were answered. A request that the page's policy blocks is none of them.
    pub responses: Vec<String>,
    /// Errors of scripts, of the content security policy and of the console, and failed requests.
    pub errors: Vec<String>,
}

impl Browser {
    /// Starts the browser. It trusts the certificate of the proxy in front, and no other self-signed one.
    ///
    /// # Panics
    /// When no browser is installed, or it does not start.
    pub async fn start() -> Self {
        let keys = Authority::of_this_process().key_digest();
        let trust = format!("--ignore-certificate-errors-spki-list={keys}");
        let dir = tempfile::Builder::new().prefix("aw-browser-").tempdir();
        let dir = dir.expect("cannot create a temporary directory");
        let log =
            std::fs::File::create(dir.path().join("log")).expect("cannot create the browser's log");
        let program = PROGRAMS.iter().find(|it| is_installed(it));
        let program = program.unwrap_or_else(|| {
            panic!(
                "no browser: none of {PROGRAMS:?} is installed; `cargo xtask prepare` does it on Debian \
                 (apt-get install chromium)"
            )
        });
        let mut command = Command::new("sh");
        // The browser reads its third file and writes to its fourth one.
        let script = r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null"#;
        command
            .args(["-c", script, program])
            .args(ARGUMENTS)
            .arg(trust);
        command
            .arg(format!("--user-data-dir={}", dir.path().display()))
            .env("HOME", dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .process_group(0)
            .kill_on_drop(true);
        let mut child = spawn_without_netlink(command);
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let mut browser = Self {
            child,
            input: input.expect("the browser has no pipe"),
            output: BufReader::new(output.expect("the browser has no pipe")),
            dir,
            last: 0,
            session: None,
            page_state: PageState::default(),
            sockets: BTreeSet::new(),
        };
        browser.open_page().await;
        browser
    }

    async fn open_page(&mut self) {
        let target = json!({"url": "about:blank"});
        let target = self.send("Target.createTarget", target).await["targetId"].clone();
        let attach = json!({"targetId": target, "flatten": true});
        let session = self.send("Target.attachToTarget", attach).await["sessionId"].clone();
        self.session = session.as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network", "Audits"] {
            self.send(&format!("{domain}.enable"), json!({})).await;
        }
    }

    /// Sends one command; records all events until its response.
    async fn send(&mut self, method: &str, parameters: Value) -> Value {
        self.last += 1;
        let mut message = json!({"id": self.last, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let text = format!("{message}\0");
        let written = self.input.write_all(text.as_bytes()).await;
        written.unwrap_or_else(|error| panic!("{method}: {error}\n{}", self.log()));
        loop {
            let mut bytes = Vec::new();
            let read = timeout(RESPONSE_TIMEOUT, self.output.read_until(0, &mut bytes)).await;
            let read = read.map(std::io::Result::unwrap_or_default);
            assert!(
                read.is_ok_and(|count| count > 0),
                "{method}: the browser does not answer\n{}",
                self.log()
            );
            bytes.pop();
            let mut message: Value =
                serde_json::from_slice(&bytes).expect("the browser's message is not JSON");
            if message["id"] == self.last {
                let error = &message["error"];
                assert!(error.is_null(), "{method}: {error}");
                return message["result"].take();
            }
            self.page_state.record(&message);
            let socket = message["params"]["requestId"].as_str().unwrap_or_default();
            match message["method"].as_str() {
                Some("Network.webSocketHandshakeResponseReceived") => {
                    self.sockets.insert(socket.to_owned());
                }
                Some("Network.webSocketClosed") => {
                    self.sockets.remove(socket);
                }
                _ => {}
            }
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// Evaluates a script in the page.
    ///
    /// # Panics
    /// When the browser does not answer, or shows no effect in time.
    pub async fn eval(&mut self, script: &str) -> Value {
        let parameters = json!({"expression": script, "returnByValue": true, "awaitPromise": true});
        let mut answer = self.send("Runtime.evaluate", parameters).await;
        let wrong = &answer["exceptionDetails"];
        assert!(wrong.is_null(), "{script}: {wrong}");
        answer["result"]["value"].take()
    }

    /// Whether a script evaluates to something truthy; false while the page is being replaced.
    async fn is_truthy(&mut self, script: &str) -> bool {
        let safe =
            format!("(() => {{ try {{ return Boolean({script}) }} catch {{ return false }} }})()");
        self.eval(&safe).await == json!(true)
    }

    /// Waits until a script evaluates to something truthy.
    ///
    /// # Panics
    /// When the browser does not answer, or shows no effect in time.
    pub async fn wait_until(&mut self, what: &str, script: &str) {
        if !self.becomes_truthy(script, PAGE_TIMEOUT).await {
            self.panic_with_page(what, script).await;
        }
    }

    async fn becomes_truthy(&mut self, script: &str, limit: Duration) -> bool {
        let began = Instant::now();
        loop {
            if self.is_truthy(script).await {
                return true;
            }
            if began.elapsed() > limit {
                return false;
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    async fn panic_with_page(&mut self, what: &str, script: &str) -> ! {
        let text = self.eval("document.body.innerText").await;
        print_line(&format!(
            "---- page ----\n{}",
            text.as_str().unwrap_or_default()
        ));
        panic!(
            "waited in vain for: {what} ({script}); errors: {:#?}",
            self.page_state.errors
        );
    }

    /// Waits until the page shows this text.
    ///
    /// # Panics
    /// When the browser does not answer, or shows no effect in time.
    pub async fn wait_for_text(&mut self, text: &str) {
        let script = format!("document.body.innerText.includes({})", json!(text));
        self.wait_until(text, &script).await;
    }

    /// Waits until the page has an open web socket, or none.
    ///
    /// # Panics
    /// When the browser does not answer, or shows no effect in time.
    pub async fn wait_for_socket(&mut self, is_open: bool) {
        let began = Instant::now();
        // The browser sends events in order: all earlier ones precede this response.
        while self.eval("1").await.is_null() || self.sockets.is_empty() == is_open {
            if began.elapsed() > PAGE_TIMEOUT {
                self.panic_with_page("a web socket", "").await;
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Opens a URL and waits until the page has loaded.
    ///
    /// # Panics
    /// When the browser does not answer, or shows no effect in time.
    pub async fn open(&mut self, url: &str) {
        self.sockets.clear();
        let answer = self.send("Page.navigate", json!({"url": url})).await;
        assert!(answer["errorText"].is_null(), "{url}: {answer}");
        let loaded = "location.href !== 'about:blank' && document.readyState === 'complete'";
        self.wait_until("the page is loaded", loaded).await;
    }

    /// Clicks on the element that the script `element` finds, until the script `then` is truthy.
    ///
    /// # Panics
    /// When the browser does not answer, or shows no effect in time.
    pub async fn click(&mut self, element: &str, then: &str) {
        let began = Instant::now();
        while !self.is_truthy(then).await {
            if began.elapsed() > PAGE_TIMEOUT {
                self.panic_with_page(element, then).await;
            }
            if self.try_click(element).await {
                self.becomes_truthy(then, CLICK_TIMEOUT).await;
            } else {
                sleep(POLL_INTERVAL).await;
            }
        }
    }

    /// Clicks on a button exactly once, for actions that must not repeat, and waits until `then` is truthy. One script finds and
    /// clicks it, so the page cannot be redrawn in between.
    ///
    /// # Panics
    /// When the browser does not answer, or shows no effect in time.
    pub async fn press_once(&mut self, button: &str, then: &str) {
        let pressed = format!(
            "(() => {{ const it = {button}; if (!it) return false; it.click(); return true }})()"
        );
        self.wait_until(button, &pressed).await;
        self.wait_until(then, then).await;
    }

    /// Clicks on an element; whether there was one.
    async fn try_click(&mut self, element: &str) -> bool {
        let script = format!(
            "(() => {{ const it = {element}; if (!it) return null; it.scrollIntoView({{block: 'center'}}); \
             const box = it.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2] }})()"
        );
        let at = self.eval(&script).await;
        let (Some(x), Some(y)) = (at[0].as_f64(), at[1].as_f64()) else {
            return false;
        };
        for kind in ["mouseMoved", "mousePressed", "mouseReleased"] {
            let event = json!({"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1});
            self.send("Input.dispatchMouseEvent", event).await;
        }
        true
    }

    /// Types into a field, or into an element whose content can be edited.
    ///
    /// # Panics
    /// When the browser does not answer, or shows no effect in time.
    pub async fn type_into(&mut self, selector: &str, text: &str) {
        let field = format!("document.querySelector({})", json!(selector));
        let focused = format!("document.activeElement === {field}");
        self.click(&field, &focused).await;
        self.send("Input.insertText", json!({"text": text})).await;
        let written = format!("({field}.value ?? {field}.innerText) === {}", json!(text));
        self.wait_until("the typed text", &written).await;
    }

    /// Presses a key.
    ///
    /// # Panics
    /// When the browser does not answer, or shows no effect in time.
    pub async fn press_key(&mut self, name: &str, code: u32) {
        for kind in ["rawKeyDown", "keyUp"] {
            let event =
                json!({"type": kind, "key": name, "code": name, "windowsVirtualKeyCode": code});
            self.send("Input.dispatchKeyEvent", event).await;
        }
    }

    /// Sets the size of the window and the preferred color scheme.
    ///
    /// # Panics
    /// When the browser does not answer, or shows no effect in time.
    pub async fn set_viewport(&mut self, width: u32, height: u32, scheme: &str) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.send("Emulation.setDeviceMetricsOverride", size).await;
        // Colors are final at once.
        let media = json!({"features": [
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]});
        self.send("Emulation.setEmulatedMedia", media).await;
    }

    /// Saves a screenshot of the page.
    ///
    /// # Panics
    /// When the browser does not answer, or shows no effect in time.
    pub async fn save_screenshot(&mut self, file: &Path) {
        let parameters = json!({"captureBeyondViewport": true});
        let picture = self.send("Page.captureScreenshot", parameters).await;
        let bytes = STANDARD.decode(picture["data"].as_str().unwrap_or_default());
        std::fs::write(file, bytes.expect("the screenshot is not base64"))
            .expect("cannot write the screenshot");
    }

    /// Returns what was recorded since the last call.
    ///
    /// # Panics
    /// When the browser does not answer, or shows no effect in time.
    pub async fn page_state(&mut self) -> PageState {
        // The browser sends events in order: all earlier ones precede this response.
        self.eval("1").await;
        std::mem::take(&mut self.page_state)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let id = self.child.id().and_then(|id| i32::try_from(id).ok());
        if let Some(group) = id.and_then(Pid::from_raw) {
            // It may have ended by itself.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// The issue code of a violation of the content security policy.
const POLICY_VIOLATION: &str = "ContentSecurityPolicyIssue";

const ARGUMENTS: [&str; 15] = [
    "--headless=new",
    "--remote-debugging-pipe",
    // Suites run as root, and in containers.
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--no-first-run",
    "--no-default-browser-check",
    "--no-proxy-server",
    "--password-store=basic",
    "--window-size=1280,900",
];

fn is_installed(program: &str) -> bool {
    let found = std::process::Command::new("sh")
        .args(["-c", "command -v \"$0\" >/dev/null", program])
        .status();
    found.is_ok_and(|status| status.success())
}

impl PageState {
    fn record(&mut self, event: &Value) {
        let parameters = &event["params"];
        match event["method"].as_str().unwrap_or_default() {
            "Network.requestWillBeSent" => {
                let url = parameters["request"]["url"].as_str().unwrap_or_default();
                self.requests.push(url.to_owned());
            }
            "Network.responseReceived" => {
                let url = parameters["response"]["url"].as_str().unwrap_or_default();
                self.responses.push(url.to_owned());
            }
            "Runtime.consoleAPICalled" if parameters["type"] != "debug" => {
                self.errors.push(parameters["args"].to_string());
            }
            "Runtime.exceptionThrown" => {
                self.errors.push(parameters["exceptionDetails"].to_string());
            }
            "Log.entryAdded" => {
                let entry = &parameters["entry"];
                let (text, url) = (entry["text"].as_str(), entry["url"].as_str());
                let (text, url) = (text.unwrap_or_default(), url.unwrap_or_default());
                self.errors.push(format!("{text} {url}"));
            }
            // Other issues are advice.
            "Audits.issueAdded" if parameters["issue"]["code"] == POLICY_VIOLATION => {
                self.errors.push(parameters["issue"].to_string());
            }
            _ => {}
        }
    }
}
