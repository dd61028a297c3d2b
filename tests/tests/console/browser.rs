//! A headless Chromium that does what a person does: it looks, clicks and types.
//!
//! It is driven over the `DevTools` protocol through two pipes (`--remote-debugging-pipe`), so nothing listens, and no other
//! program is needed. <https://chromedevtools.github.io/devtools-protocol/>

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use acceptance::print_line;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::{sleep, timeout};

/// What the browser is called on different systems.
const PROGRAMS: [&str; 4] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
];
/// For one answer of the browser. Its first one takes seconds on a machine that builds beside it.
const ANSWER: Duration = Duration::from_secs(60);
/// Until what was done shows.
const SHOWN: Duration = Duration::from_secs(60);
/// A click may have met a page that was being drawn anew: then it is done again.
const CLICK_TIMEOUT: Duration = Duration::from_secs(4);
const POLL_INTERVAL: Duration = Duration::from_millis(40);

/// A browser with one page. Dropping it ends all of its processes.
pub(crate) struct Browser {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    dir: TempDir,
    last: u64,
    session: Option<String>,
    seen: PageState,
}

/// What the page did beside what it showed.
#[derive(Debug, Default)]
pub(crate) struct PageState {
    /// Addresses that were asked for.
    pub(crate) requests: Vec<String>,
    /// Errors of scripts, of the policy and of the console, and answers that refuse.
    pub(crate) complaints: Vec<String>,
}

impl Browser {
    /// Starts it, with one argument more than usual.
    pub(crate) async fn start(argument: &str) -> Self {
        let dir = tempfile::Builder::new().prefix("aw-browser-").tempdir();
        let dir = dir.expect("a temporary directory can be made");
        let log = std::fs::File::create(dir.path().join("log")).expect("it is writable");
        let program = PROGRAMS.iter().find(|it| is_there(it));
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
            .arg(argument);
        command
            .arg(format!("--user-data-dir={}", dir.path().display()))
            .env("HOME", dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .process_group(0)
            .kill_on_drop(true);
        let mut child = command.spawn().expect("a shell can be started");
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let mut browser = Self {
            child,
            input: input.expect("it is a pipe"),
            output: BufReader::new(output.expect("it is a pipe")),
            dir,
            last: 0,
            session: None,
            seen: PageState::default(),
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

    /// One command, and everything that happened until its answer.
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
            let read = timeout(ANSWER, self.output.read_until(0, &mut bytes)).await;
            let read = read.map(std::io::Result::unwrap_or_default);
            assert!(
                read.is_ok_and(|count| count > 0),
                "{method}: the browser does not answer\n{}",
                self.log()
            );
            bytes.pop();
            let mut heard: Value = serde_json::from_slice(&bytes).expect("it speaks JSON");
            if heard["id"] == self.last {
                let error = &heard["error"];
                assert!(error.is_null(), "{method}: {error}");
                return heard["result"].take();
            }
            self.seen.note(&heard);
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// What a script in the page comes to.
    pub(crate) async fn eval(&mut self, script: &str) -> Value {
        let parameters = json!({"expression": script, "returnByValue": true, "awaitPromise": true});
        let mut answer = self.send("Runtime.evaluate", parameters).await;
        let wrong = &answer["exceptionDetails"];
        assert!(wrong.is_null(), "{script}: {wrong}");
        answer["result"]["value"].take()
    }

    /// Whether a script comes to something; not while the page is being left.
    async fn is(&mut self, script: &str) -> bool {
        let safe =
            format!("(() => {{ try {{ return Boolean({script}) }} catch {{ return false }} }})()");
        self.eval(&safe).await == json!(true)
    }

    /// Waits until a script comes to something true.
    pub(crate) async fn until(&mut self, what: &str, script: &str) {
        if !self.becomes(script, SHOWN).await {
            self.fail(what, script).await;
        }
    }

    async fn becomes(&mut self, script: &str, limit: Duration) -> bool {
        let began = Instant::now();
        loop {
            if self.is(script).await {
                return true;
            }
            if began.elapsed() > limit {
                return false;
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    async fn fail(&mut self, what: &str, script: &str) -> ! {
        let text = self.eval("document.body.innerText").await;
        print_line(&format!(
            "---- page ----\n{}",
            text.as_str().unwrap_or_default()
        ));
        panic!("in vain: {what} ({script}); {:#?}", self.seen.complaints);
    }

    /// Waits until the page shows this text.
    pub(crate) async fn shows(&mut self, text: &str) {
        let script = format!("document.body.innerText.includes({})", json!(text));
        self.until(text, &script).await;
    }

    /// Goes to an address, and waits until the page is there.
    pub(crate) async fn go(&mut self, url: &str) {
        let answer = self.send("Page.navigate", json!({"url": url})).await;
        assert!(answer["errorText"].is_null(), "{url}: {answer}");
        let loaded = "location.href !== 'about:blank' && document.readyState === 'complete'";
        self.until("the page is loaded", loaded).await;
    }

    /// Clicks on an element (a script that finds it) until what comes of it is there.
    pub(crate) async fn click(&mut self, element: &str, then: &str) {
        let began = Instant::now();
        while !self.is(then).await {
            if began.elapsed() > SHOWN {
                self.fail(element, then).await;
            }
            if self.press(element).await {
                self.becomes(then, CLICK_TIMEOUT).await;
            } else {
                sleep(POLL_INTERVAL).await;
            }
        }
    }

    /// Presses a button (a script that finds it) exactly once, for what would be done twice otherwise, and waits for what comes
    /// of it. It is pressed by a script, in the moment in which it is found, so that it cannot be missed.
    pub(crate) async fn press_once(&mut self, button: &str, then: &str) {
        let pressed = format!(
            "(() => {{ const it = {button}; if (!it) return false; it.click(); return true }})()"
        );
        self.until(button, &pressed).await;
        self.until(then, then).await;
    }

    /// Whether there was something to press.
    async fn press(&mut self, element: &str) -> bool {
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

    /// Types into a field.
    pub(crate) async fn write(&mut self, selector: &str, text: &str) {
        let field = format!("document.querySelector({})", json!(selector));
        let focused = format!("document.activeElement === {field}");
        self.click(&field, &focused).await;
        self.send("Input.insertText", json!({"text": text})).await;
        let written = format!("{field}.value === {}", json!(text));
        self.until("what is typed is there", &written).await;
    }

    /// Presses a key of the keyboard.
    pub(crate) async fn key(&mut self, name: &str, code: u32) {
        for kind in ["rawKeyDown", "keyUp"] {
            let event =
                json!({"type": kind, "key": name, "code": name, "windowsVirtualKeyCode": code});
            self.send("Input.dispatchKeyEvent", event).await;
        }
    }

    /// The size of its window, and the colours that it prefers.
    pub(crate) async fn look(&mut self, width: u32, height: u32, scheme: &str) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.send("Emulation.setDeviceMetricsOverride", size).await;
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.send("Emulation.setEmulatedMedia", media).await;
    }

    /// A picture of the page, for whoever wants to see it.
    pub(crate) async fn picture(&mut self, file: &Path) {
        let parameters = json!({"captureBeyondViewport": true});
        let picture = self.send("Page.captureScreenshot", parameters).await;
        let bytes = STANDARD.decode(picture["data"].as_str().unwrap_or_default());
        std::fs::write(file, bytes.expect("it is base64")).expect("the file can be written");
    }

    /// Whatever happened since the last time.
    pub(crate) async fn seen(&mut self) -> PageState {
        // What came before this answer has been heard.
        self.eval("1").await;
        std::mem::take(&mut self.seen)
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

/// Something that the page's policy forbids.
const POLICY: &str = "ContentSecurityPolicyIssue";

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

fn is_there(program: &str) -> bool {
    let found = std::process::Command::new("sh")
        .args(["-c", "command -v \"$0\" >/dev/null", program])
        .status();
    found.is_ok_and(|status| status.success())
}

impl PageState {
    fn note(&mut self, event: &Value) {
        let parameters = &event["params"];
        match event["method"].as_str().unwrap_or_default() {
            "Network.requestWillBeSent" => {
                let url = parameters["request"]["url"].as_str().unwrap_or_default();
                self.requests.push(url.to_owned());
            }
            "Runtime.consoleAPICalled" if parameters["type"] != "debug" => {
                self.complaints.push(parameters["args"].to_string());
            }
            "Runtime.exceptionThrown" => {
                self.complaints
                    .push(parameters["exceptionDetails"].to_string());
            }
            "Log.entryAdded" => {
                let entry = &parameters["entry"];
                let (text, url) = (entry["text"].as_str(), entry["url"].as_str());
                let (text, url) = (text.unwrap_or_default(), url.unwrap_or_default());
                self.complaints.push(format!("{text} {url}"));
            }
            // Others are advice.
            "Audits.issueAdded" if parameters["issue"]["code"] == POLICY => {
                self.complaints.push(parameters["issue"].to_string());
            }
            _ => {}
        }
    }
}
