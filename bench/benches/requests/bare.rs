//! Bare counterparts: the same queries and responses without this service.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use actix_web::web::{Bytes, Data};
use actix_web::{HttpRequest, HttpResponse};
use application::App;
use domain::conversation::ConversationFilter;
use domain::event::{EventFilter, EventOrder};
use domain::id::{ConversationId, UserId};
use domain::page::PageRequest;
use domain::user::scope::Scope;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::fixture::ADA;
use crate::stage::{KEY, Stage, TOOL_LIST};

/// The query of the store.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Query {
    Nothing,
    Sandboxes,
    Conversations,
    Events,
}

/// A handler that queries the store and ignores the result.
pub(crate) struct Handler {
    app: App,
    scope: Scope,
    query: Query,
    conversation: ConversationId,
    answer: Bytes,
}

impl Handler {
    pub(crate) fn new(stage: &Stage, key: &str, query: Query, answer: Bytes) -> Self {
        let user = if key == ADA { "ada" } else { "bob" };
        Self {
            app: stage.world.app.clone(),
            scope: Scope::Owner(UserId::parse(user).expect("a user").into()),
            query,
            conversation: stage.conversation().parse().expect("an id"),
            answer,
        }
    }

    async fn ask(&self) -> usize {
        let (scope, page) = (&self.scope, PageRequest::default());
        match self.query {
            Query::Nothing => 0,
            Query::Sandboxes => {
                let found = self.app.sandboxes.search(scope, &page).await;
                found.expect("a store in memory").items.len()
            }
            Query::Conversations => {
                let filter = ConversationFilter::default();
                let found = self.app.conversations.search(scope, &filter, &page).await;
                found.expect("a store in memory").items.len()
            }
            Query::Events => {
                let (filter, order) = (EventFilter::default(), EventOrder::default());
                let events = &self.app.events;
                let found = events.search(scope, self.conversation, &filter, order, &page);
                found.await.expect("a store in memory").items.len()
            }
        }
    }
}

pub(crate) async fn answer(_: HttpRequest, handler: Data<Handler>) -> HttpResponse {
    std::hint::black_box(handler.ask().await);
    let answer = handler.answer.clone();
    HttpResponse::Ok()
        .content_type("application/json")
        .body(answer)
}

/// Sends this many requests to the agent server over one connection.
pub(crate) async fn ask_directly(at: SocketAddr, times: u64) -> Duration {
    let mut agent = TcpStream::connect(at).await.expect("it listens");
    agent.set_nodelay(true).expect("a socket");
    let request = format!("GET /api/tools/ HTTP/1.1\r\nHost: {at}\r\n{KEY}: {ADA}\r\n\r\n");
    let mut answer = Vec::with_capacity(1024);
    let began = Instant::now();
    for _ in 0..times {
        answer.clear();
        agent.write_all(request.as_bytes()).await.expect("sent");
        while !answer.ends_with(TOOL_LIST.as_bytes()) {
            let read = agent.read_buf(&mut answer).await.expect("an answer");
            assert!(read > 0, "it closed the connection");
        }
    }
    began.elapsed()
}
