//! Conversations.

use futures::stream::{iter, try_unfold};
use futures::{Stream, TryStreamExt as _};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use crate::call::{Call, IdempotencyKey};
use crate::client::{Client, unreadable};
use crate::error::Error;
use crate::json_array::JsonArrayReader;
use crate::model::{
    Conversation, ConversationChange, ConversationFilter, Message, MessageQueued, MessageSent,
    StartRequest, StartTask, SuccessResponse,
};
use crate::operations;
use crate::page::{Page, all};

/// Longest state of a start, in bytes.
const MAX_STATE_BYTES: usize = 16 << 20;

/// Conversations.
#[derive(Debug, Clone)]
pub struct Conversations(pub(crate) Client);

reads_by_id!(Conversations => Conversation, CONVERSATIONS "ids");

impl Conversations {
    /// Starts a conversation. The client repeats a request whose response is lost; the service still starts one
    /// conversation.
    pub async fn start(&self, request: &StartRequest) -> Result<StartTask, Error> {
        self.start_once(request, &IdempotencyKey::random()).await
    }

    /// The same with the caller's own key. Repeating the request with the same key returns the same start.
    pub async fn start_once(
        &self,
        request: &StartRequest,
        key: &IdempotencyKey,
    ) -> Result<StartTask, Error> {
        let call = Call::to(&operations::START).body(request)?.once(key);
        self.0.ask_once(&call).await
    }

    /// Starts a conversation, and yields every state of its start. The start does not depend on the stream: if that
    /// ends early, [`StartTasks::watch`](crate::StartTasks::watch) continues.
    pub async fn stream_start(
        &self,
        request: &StartRequest,
        key: &IdempotencyKey,
    ) -> Result<impl Stream<Item = Result<StartTask, Error>> + use<>, Error> {
        let call = Call::to(&operations::STREAM_START).body(request)?.once(key);
        let body = self.0.open(&call, "application/json").await?;
        let elements = JsonArrayReader::new(MAX_STATE_BYTES);
        let reading = (self.0.clone(), call, body, elements);
        let states = try_unfold(
            reading,
            |(client, call, mut body, mut elements)| async move {
                if elements.is_complete() {
                    return Ok(None);
                }
                // A step may take as long as the pull of an image, without any output.
                let piece = client.http.piece(&mut body, client.timeouts.idle).await?;
                let Some(piece) = piece else {
                    return Err(client
                        .http
                        .interrupted("the stream ended before a final state"));
                };
                let complete = elements.push(&piece);
                let complete = complete.map_err(|error| unreadable(&call, error))?;
                let states = iter(complete.into_iter().map(Ok));
                Ok(Some((states, (client, call, body, elements))))
            },
        );
        Ok(states.try_flatten())
    }

    /// One page, newest first; `at` is a former page's [`Page::next_page_id`].
    pub async fn search(
        &self,
        filter: &ConversationFilter,
        limit: u16,
        at: Option<&str>,
    ) -> Result<Page<Conversation>, Error> {
        let call = filtered(Call::to(&operations::SEARCH_CONVERSATIONS), filter);
        self.0.ask(&call.page(limit, at)).await
    }

    /// All conversations, newest first.
    pub fn all(
        &self,
        filter: &ConversationFilter,
    ) -> impl Stream<Item = Result<Conversation, Error>> + use<> {
        let call = filtered(Call::to(&operations::SEARCH_CONVERSATIONS), filter);
        all(self.0.clone(), call)
    }

    /// The number of conversations.
    pub async fn count(&self, filter: &ConversationFilter) -> Result<u64, Error> {
        let call = filtered(Call::to(&operations::COUNT_CONVERSATIONS), filter);
        self.0.ask(&call).await
    }

    /// Changes a conversation and returns it.
    pub async fn update(
        &self,
        id: &str,
        change: &ConversationChange,
    ) -> Result<Conversation, Error> {
        let call = Call::to(&operations::UPDATE_CONVERSATION).at(id);
        self.0.ask(&call.body(change)?).await
    }

    /// Deletes a conversation with its events, and its sandbox if that has no other conversation.
    pub async fn delete(&self, id: &str) -> Result<(), Error> {
        let call = Call::to(&operations::DELETE_CONVERSATION).at(id);
        self.0.ask::<SuccessResponse>(&call).await.map(drop)
    }

    /// Sends a message; the sandbox must run.
    pub async fn send(&self, id: &str, message: &Message) -> Result<MessageSent, Error> {
        let call = Call::to(&operations::SEND_MESSAGE).at(id);
        self.0.ask(&call.body(message)?).await
    }

    /// Sends a message that is delivered when the conversation is ready. `id`: the conversation's, or `task-` and the
    /// id of its start. The client repeats a request whose response is lost; the service still queues one message.
    pub async fn queue(&self, id: &str, message: &Message) -> Result<MessageQueued, Error> {
        let call = Call::to(&operations::QUEUE_MESSAGE).at(id).body(message)?;
        self.0.ask_once(&call.once(&IdempotencyKey::random())).await
    }

    /// Writes a zip archive of the conversation and its events. Returns its length in bytes.
    pub async fn download(
        &self,
        id: &str,
        to: &mut (impl AsyncWrite + Unpin),
    ) -> Result<u64, Error> {
        let call = Call::to(&operations::DOWNLOAD).at(id);
        let mut body = self.0.open(&call, "application/zip").await?;
        let mut written = 0;
        while let Some(piece) = self.0.http.piece(&mut body, self.0.timeouts.idle).await? {
            to.write_all(&piece).await.map_err(Error::Write)?;
            written += piece.len() as u64;
        }
        to.flush().await.map_err(Error::Write)?;
        Ok(written)
    }
}

fn filtered(call: Call, filter: &ConversationFilter) -> Call {
    let call = call
        .maybe("title__contains", filter.title_contains.as_deref())
        .maybe("sandbox_id__eq", filter.sandbox_id.as_deref())
        .time("created_at__gte", filter.created_from)
        .time("created_at__lt", filter.created_until)
        .time("updated_at__gte", filter.updated_from)
        .time("updated_at__lt", filter.updated_until);
    call.maybe(
        "include_sub_conversations",
        filter.with_parts.then_some("true"),
    )
}
