//! Budgets of model calls that two replicas share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use acceptance::Sandboxing;
use acceptance::wait::wait_until;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::replica_pair::{ReplicaPair, ReplicaUser};

/// Dollars for a million tokens of output.
const PRICE: f64 = 10.0;
/// Tokens of output that the service reserves for a call. Each answer has as many, and the requests cost nothing.
const TOKENS_OF_CALL: u32 = 16_384;
/// Dollars.
const BUDGET: f64 = 1.0;
/// A call begins while less than the budget is spent and reserved.
const CALLS_WITHIN_BUDGET: usize = 7;
const DEADLINE: Duration = Duration::from_secs(180);

/// A provider that holds its answers until they are released.
struct HeldProvider {
    address: String,
    /// Calls so far.
    calls: Arc<AtomicUsize>,
    release: watch::Sender<bool>,
    _tasks: JoinSet<()>,
}

impl HeldProvider {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address").to_string();
        let (release, released) = watch::channel(false);
        let calls = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&calls);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut answers = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                answers.spawn(answer(stream, Arc::clone(&count), released.clone()));
            }
        });
        Self {
            _tasks: tasks,
            address,
            calls,
            release,
        }
    }

    fn count_calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

/// Reads one request, waits, and answers.
async fn answer(
    mut stream: TcpStream,
    calls: Arc<AtomicUsize>,
    mut released: watch::Receiver<bool>,
) -> std::io::Result<()> {
    let mut request = Vec::new();
    // The end of the request's JSON, which has no other such bytes.
    while !request.ends_with(b"}]}") {
        if stream.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    calls.fetch_add(1, Ordering::SeqCst);
    let _ = released.wait_for(|released| *released).await;
    let usage = json!({"prompt_tokens": 0, "completion_tokens": TOKENS_OF_CALL});
    let body = json!({"model": "m", "choices": [], "usage": usage}).to_string();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).await
}

/// A sandbox's way to its model.
struct ModelRoute {
    path: String,
    token: String,
}

impl ModelRoute {
    /// Status of a call through a replica, as sandboxes make it, after its whole answer: a call is recorded before that ends.
    /// `None` if the connection broke.
    async fn call(&self, replica: SocketAddr) -> Option<StatusCode> {
        let body = json!({"model": "m", "messages": [{"role": "user", "content": "x"}]});
        let sent = reqwest::Client::builder()
            .no_proxy()
            .build()
            .expect("a client")
            .post(format!("http://{replica}{}", self.path))
            .bearer_auth(&self.token)
            .body(body.to_string())
            .send();
        let answer = sent.await.ok()?;
        let status = answer.status();
        answer.bytes().await.ok().map(|_| status)
    }
}

/// Two replicas, a provider, and an agent with a budget.
struct World {
    pair: ReplicaPair,
    provider: HeldProvider,
    user: ReplicaUser,
    route: Arc<ModelRoute>,
}

impl World {
    async fn new() -> Self {
        let provider = HeldProvider::start().await;
        let variables = [
            ("WORKSPACE_BROKER__MONTHLY_BUDGET", "1"),
            ("WORKSPACE_BROKER__PRICES", "m=0/10"),
        ];
        let sandboxing = Sandboxing::UnconfinedProcess;
        let pair = ReplicaPair::configured(&sandboxing, "", &variables).await;
        let user = pair.user("ada").await;
        let base = format!("http://{}/v1", provider.address);
        let client = user.client(0);
        client.use_model("openai/m", &base, "sk-held").await;
        client.converse("hello").await;
        let route = route_of(&pair);
        Self {
            pair,
            provider,
            user,
            route,
        }
    }

    /// The status of one call.
    async fn call(&self, replica: usize) -> Option<StatusCode> {
        self.route.call(self.pair.replicas[replica].address()).await
    }

    /// Begins calls of these replicas.
    fn begin(&self, replicas: impl Iterator<Item = usize>) -> JoinSet<Option<StatusCode>> {
        let mut calls = JoinSet::new();
        for replica in replicas {
            let (route, at) = (
                Arc::clone(&self.route),
                self.pair.replicas[replica].address(),
            );
            calls.spawn(async move { route.call(at).await });
        }
        calls
    }

    async fn wait_for_calls(&self, count: usize) {
        wait_until("calls that reach the provider", DEADLINE, || {
            self.provider.count_calls() == count
        })
        .await;
    }

    /// What is recorded, in dollars.
    async fn recorded(&self) -> f64 {
        let path = "/api/v1/usage/models?group_by=day";
        let usage = self.user.client(1).get(path).await.ok();
        usage["month_cost"].as_f64().expect("a cost")
    }
}

/// A hundred calls at once reach the provider only as far as the budget goes, and a replica that is killed amid calls leaves
/// their reservations.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_holds_for_both_replicas_also_when_one_is_killed_in_a_call() {
    const REFUSED: Option<StatusCode> = Some(StatusCode::PAYMENT_REQUIRED);
    let mut world = World::new().await;
    let of_first = world.begin([0; 4].into_iter());
    world.wait_for_calls(4).await;
    let of_both = world.begin((0..96).map(|number| number % 2));
    world.wait_for_calls(CALLS_WITHIN_BUDGET).await;
    assert_eq!(world.call(1).await, REFUSED);
    world.pair.kill(0);
    world.provider.release.send_replace(true);
    assert_eq!(
        of_first.join_all().await,
        [None; 4],
        "their replica was killed"
    );
    let answers = of_both.join_all().await;
    let count = |status| answers.iter().filter(|it| **it == status).count();
    let answered = count(Some(StatusCode::OK));
    assert_eq!(answered + count(REFUSED) + count(None), 96, "{answers:?}");
    assert!(answered <= CALLS_WITHIN_BUDGET - 4, "{answers:?}");

    let of_call = f64::from(TOKENS_OF_CALL) * PRICE / 1e6;
    let expected = f64::from(u32::try_from(answered).expect("a small number")) * of_call;
    let recorded = world.recorded().await;
    assert!(
        (recorded - expected).abs() < 1e-9,
        "{recorded} instead of {expected}"
    );
    assert!(recorded < BUDGET + of_call);
    // What the killed replica's calls may have cost is still reserved.
    assert_eq!(world.call(1).await, REFUSED);
    world.pair.replicas[0].restart().await;
    assert_eq!(world.call(0).await, REFUSED);
    assert_eq!(
        world.provider.count_calls(),
        CALLS_WITHIN_BUDGET,
        "a refused call is not made"
    );
}

/// What the conversation's agent got.
fn route_of(pair: &ReplicaPair) -> Arc<ModelRoute> {
    let creates = pair.stub.creates();
    let request: Value = serde_json::from_str(&creates[0]).expect("a request");
    let llm = &request["agent"]["llm"];
    let base = llm["base_url"].as_str().expect("an address");
    let base = reqwest::Url::parse(base).expect("a URL");
    Arc::new(ModelRoute {
        path: format!("{}/chat/completions", base.path().trim_end_matches('/')),
        token: llm["api_key"].as_str().expect("a token").to_owned(),
    })
}
