//! Calls of models.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use async_trait::async_trait;
use domain::agent::LlmConfig;
use domain::agent::model_endpoint::{ModelEndpoint, ModelEndpointFinder};
use domain::agent::spending::{NanoUsd, Spent, TokenCounts};
use domain::id::SandboxId;
use hyper::Method;
use outbound_http::{
    CaCertificates, ClientOptions, HostError, HostGuard, HttpClient, PrivateHosts, RequestSlots,
    SendError,
};
use secrecy::SecretString;
use tokio::time::timeout;

use crate::prices::PriceList;
use crate::relay::{AnswerBody, CallBody, CallCounters, CallCounts, OpenCall};
use crate::{headers, paths, providers};

const MAX_IDLE_CONNECTIONS_PER_HOST: usize = 32;
const IDLE_CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);

/// Bounds on calls.
#[derive(Debug, Clone)]
pub struct BrokerConfig {
    /// Addresses beside public ones that may be called.
    pub private_hosts: PrivateHosts,
    /// Prices of models before the known ones.
    pub prices: PriceList,
    /// Certificate authorities of endpoints.
    pub authorities: CaCertificates,
    /// Longest time for a connection.
    pub connect_timeout: Duration,
    /// Longest time from the end of the request until the answer begins. Models think long, and the agent has a time-out
    /// of its own.
    pub answer_timeout: Duration,
    /// Longest pause within an answer or a request.
    pub idle_timeout: Duration,
    /// Longest wait for a free slot.
    pub slot_timeout: Duration,
    /// Concurrent calls of all sandboxes.
    pub max_calls: usize,
    /// Concurrent calls of one sandbox.
    pub max_calls_per_sandbox: usize,
    /// Most bytes of a request.
    pub max_request_bytes: u64,
    /// Most bytes of an answer.
    pub max_answer_bytes: u64,
}

impl Default for BrokerConfig {
    fn default() -> Self {
        Self {
            private_hosts: PrivateHosts::default(),
            prices: PriceList::default(),
            authorities: CaCertificates::default(),
            connect_timeout: Duration::from_secs(10),
            answer_timeout: Duration::from_secs(20 * 60),
            idle_timeout: Duration::from_secs(10 * 60),
            slot_timeout: Duration::from_secs(30),
            max_calls: 1_024,
            max_calls_per_sandbox: 32,
            max_request_bytes: 64 << 20,
            max_answer_bytes: 256 << 20,
        }
    }
}

/// Why a call failed. The texts are for the agent and its owner; none contains a key.
#[derive(Debug, thiserror::Error)]
pub enum ModelCallError {
    /// The key, or a header of the agent, is no header value.
    #[error(
        "the key of the model contains characters that no header may have; store the key again"
    )]
    InvalidHeader,
    /// No slot became free.
    #[error("too many model calls run at the same time; repeat the call later")]
    Busy,
    /// The request is too large.
    #[error("the request has more than {0} bytes")]
    TooLarge(u64),
    /// The address is not allowed.
    #[error("the service does not call the model's endpoint: {0}")]
    Forbidden(String),
    /// There is no connection.
    #[error("the model's endpoint cannot be reached")]
    Unreachable(#[source] SendError),
    /// The connection broke before the answer, or the request is incomplete.
    #[error("the model's endpoint closed the connection before its answer")]
    Broken(#[source] SendError),
    /// A deadline has passed.
    #[error("the model's endpoint did not answer in time")]
    TimedOut,
    /// Redirects are not followed.
    #[error(
        "the model's endpoint redirects to another address, and the key is not sent there; set llm_base_url to the \
         final address"
    )]
    Redirected,
}

/// A call of an agent.
#[derive(Debug)]
pub struct ModelCall<'a> {
    /// The caller, which has a limit of its own.
    pub sandbox: &'a SandboxId,
    /// Where it goes.
    pub endpoint: &'a ModelEndpoint,
    /// The real key.
    pub key: &'a SecretString,
    /// The method of the agent's request.
    pub method: &'a str,
    /// The path below the endpoint, from [`check_path`](crate::check_path), with its query.
    pub path: &'a str,
    /// The headers of the agent's request; those that may not pass are left out.
    pub headers: &'a [(String, Vec<u8>)],
    /// The body of the agent's request.
    pub body: CallBody,
}

/// The answer of an endpoint.
#[derive(Debug)]
pub struct ModelAnswer {
    /// Any status but those of redirects.
    pub status: u16,
    /// The headers that pass to the agent.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The body as it comes.
    pub body: AnswerBody,
}

/// Calls models. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ModelBroker {
    client: HttpClient,
    guard: HostGuard,
    slots: RequestSlots,
    config: BrokerConfig,
    counters: Arc<CallCounters>,
    /// The tokens by kind, and the cost in billionths of a dollar.
    spent: Arc<[AtomicU64; 5]>,
}

/// A snapshot of the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ModelCallCounts {
    /// The calls.
    pub calls: CallCounts,
    /// Tokens of the calls.
    pub tokens: TokenCounts,
    /// Cost of the calls with a known price.
    pub cost: NanoUsd,
}

impl ModelBroker {
    /// Connects to nothing yet.
    ///
    /// # Errors
    /// TLS is not available.
    pub fn new(config: BrokerConfig) -> Result<Self, domain::error::BoxError> {
        let guard = HostGuard::new(config.private_hosts.clone());
        let client = HttpClient::new(ClientOptions {
            authorities: config.authorities.clone(),
            guard: Some(guard.clone()),
            connect_timeout: config.connect_timeout,
            idle_timeout: IDLE_CONNECTION_TIMEOUT,
            max_idle_per_host: MAX_IDLE_CONNECTIONS_PER_HOST,
        })?;
        Ok(Self {
            client,
            guard,
            slots: RequestSlots::new(config.max_calls, config.max_calls_per_sandbox),
            config,
            counters: Arc::default(),
            spent: Arc::default(),
        })
    }

    /// For a worker thread: with connections of its own, and the limits and counters of this one.
    #[must_use]
    pub fn for_worker(&self) -> Self {
        Self {
            client: self.client.with_own_connections(),
            ..self.clone()
        }
    }

    /// Takes a snapshot of the counters.
    pub fn counts(&self) -> ModelCallCounts {
        let spent = self.spent.each_ref();
        let [input, cached_input, cache_write, output, cost] =
            spent.map(|counter| counter.load(Relaxed));
        ModelCallCounts {
            calls: self.counters.snapshot(),
            tokens: TokenCounts {
                input,
                cached_input,
                cache_write,
                output,
            },
            cost: NanoUsd::new(cost),
        }
    }

    /// Counts what a call took.
    pub fn count_spent(&self, spent: &Spent) {
        let tokens = &spent.tokens;
        let amounts = [
            tokens.input,
            tokens.cached_input,
            tokens.cache_write,
            tokens.output,
            spent.cost.nanos(),
        ];
        for (counter, amount) in self.spent.iter().zip(amounts) {
            counter.fetch_add(amount, Relaxed);
        }
    }

    /// Counts a call that was refused before [`ModelBroker::call`].
    pub fn count_refusal(&self) {
        self.counters.count_refusal();
    }

    /// Most bytes of a request.
    pub fn max_request_bytes(&self) -> u64 {
        self.config.max_request_bytes
    }

    /// Longest pause within a request.
    pub fn idle_timeout(&self) -> Duration {
        self.config.idle_timeout
    }

    /// The prices of tokens.
    pub fn prices(&self) -> &PriceList {
        &self.config.prices
    }

    /// Makes a call with the real key, and returns at the head of the answer.
    ///
    /// # Errors
    /// See [`ModelCallError`].
    pub async fn call(&self, call: ModelCall<'_>) -> Result<ModelAnswer, ModelCallError> {
        let open = OpenCall::new(&self.counters);
        let answer = self.call_counted(call, open).await;
        match &answer {
            Ok(_) => self.counters.count_answer(),
            Err(
                ModelCallError::Unreachable(_)
                | ModelCallError::Broken(_)
                | ModelCallError::TimedOut,
            ) => self.counters.count_failure(),
            Err(_) => self.counters.count_refusal(),
        }
        answer
    }

    async fn call_counted(
        &self,
        call: ModelCall<'_>,
        open: OpenCall,
    ) -> Result<ModelAnswer, ModelCallError> {
        let method = Method::from_bytes(call.method.as_bytes());
        let method = method.map_err(|_| ModelCallError::InvalidHeader)?;
        let headers = headers::of_call(call.endpoint.protocol, call.key, call.headers);
        let headers = headers.ok_or(ModelCallError::InvalidHeader)?;
        let url = paths::call_url(&call.endpoint.base, call.path);
        let url =
            url.ok_or_else(|| ModelCallError::Forbidden("its URL is not valid".to_owned()))?;
        let slot = timeout(self.config.slot_timeout, self.slots.take(call.sandbox)).await;
        let slot = slot.map_err(|_| ModelCallError::Busy)?;
        let slot = slot.map_err(|_| ModelCallError::Busy)?;
        let sent = self.client.send_streaming(method, &url, headers, call.body);
        let answer = timeout(self.config.answer_timeout, sent).await;
        let answer = answer.map_err(|_| ModelCallError::TimedOut)?;
        let answer = answer.map_err(|error| match error {
            SendError::Forbidden(reason) => ModelCallError::Forbidden(reason.to_string()),
            SendError::InvalidUrl(_) => {
                ModelCallError::Forbidden("its URL is not valid".to_owned())
            }
            error @ SendError::NotConnected(_) => ModelCallError::Unreachable(error),
            error @ SendError::Broken(_) => ModelCallError::Broken(error),
        })?;
        let status = answer.status();
        if status.is_redirection() || status.is_informational() {
            return Err(ModelCallError::Redirected);
        }
        Ok(ModelAnswer {
            status: status.as_u16(),
            headers: headers::of_answer(answer.headers()),
            body: AnswerBody {
                body: answer.into_body(),
                held: (slot, open),
                idle_timeout: self.config.idle_timeout,
                max_bytes: self.config.max_answer_bytes,
            },
        })
    }
}

#[async_trait]
impl ModelEndpointFinder for ModelBroker {
    async fn find(&self, llm: &LlmConfig) -> Result<ModelEndpoint, String> {
        let (endpoint, is_own) = providers::endpoint(llm)?;
        if is_own {
            return Ok(endpoint);
        }
        match self.guard.addresses(&endpoint.base).await {
            Ok(_) => Ok(endpoint),
            // A busy resolver must not hand the key to the sandbox.
            Err(HostError::NotResolved(error))
                if matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::ResourceBusy) =>
            {
                Ok(endpoint)
            }
            Err(HostError::NotResolved(_)) => {
                Err("the service cannot find the host of its endpoint".to_owned())
            }
            Err(HostError::ForbiddenHost(_)) => Err(
                "its endpoint is in a private network or begins with http://, and broker.allow_private_hosts does not \
                 name it; name its host there if the sandbox does not reach it"
                    .to_owned(),
            ),
        }
    }
}
