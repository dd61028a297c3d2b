//! Sandboxes and their templates.

use std::time::Duration;

use futures::Stream;
use futures::stream::try_unfold;

use crate::call::{Call, IdempotencyKey};
use crate::client::Client;
use crate::error::Error;
use crate::model::{Sandbox, Spec, SuccessResponse};
use crate::operations::{self, Operation};
use crate::page::{Page, all};

/// Longer than the service keeps a silent log open.
const LOG_IDLE_TIMEOUT: Duration = Duration::from_secs(16 * 60);

/// Sandboxes.
#[derive(Debug, Clone)]
pub struct Sandboxes(pub(crate) Client);

reads_by_id!(Sandboxes => Sandbox, SANDBOXES "id");

impl Sandboxes {
    /// One page, newest first; `at` is a former page's [`Page::next_page_id`].
    pub async fn search(&self, limit: u16, at: Option<&str>) -> Result<Page<Sandbox>, Error> {
        let call = Call::to(&operations::SEARCH_SANDBOXES).page(limit, at);
        self.0.ask(&call).await
    }

    /// All sandboxes, newest first.
    pub fn all(&self) -> impl Stream<Item = Result<Sandbox, Error>> + use<> {
        all(self.0.clone(), Call::to(&operations::SEARCH_SANDBOXES))
    }

    /// Creates a sandbox of this template, or the default one. The client repeats a request whose response is lost; the
    /// service still creates one sandbox.
    pub async fn create(&self, spec: Option<&str>) -> Result<Sandbox, Error> {
        let call = Call::to(&operations::CREATE_SANDBOX).maybe("sandbox_spec_id", spec);
        self.0.ask_once(&call.once(&IdempotencyKey::random())).await
    }

    /// Stops its programs; files and conversations stay.
    pub async fn pause(&self, id: &str) -> Result<(), Error> {
        self.change(&operations::PAUSE_SANDBOX, id).await
    }

    /// Resumes a paused sandbox.
    pub async fn resume(&self, id: &str) -> Result<(), Error> {
        self.change(&operations::RESUME_SANDBOX, id).await
    }

    /// The last lines of its agent server's log, in chunks of any size; with `follow` also new ones, until the sandbox
    /// stops. A followed log also ends after a quarter of an hour without output, and when the service stops.
    pub async fn logs(
        &self,
        id: &str,
        lines: u32,
        follow: bool,
    ) -> Result<impl Stream<Item = Result<Vec<u8>, Error>> + use<>, Error> {
        let call = Call::to(&operations::SANDBOX_LOGS).at(id);
        let call = call.query("lines", lines.to_string());
        let call = call.query("follow", follow.to_string());
        let body = self.0.open(&call, "text/plain").await?;
        let idle = if follow {
            LOG_IDLE_TIMEOUT
        } else {
            self.0.timeouts.idle
        };
        let reading = (self.0.clone(), body);
        Ok(try_unfold(reading, move |(client, mut body)| async move {
            let piece = client.http.piece(&mut body, idle).await?;
            Ok(piece.map(|piece| (piece.to_vec(), (client, body))))
        }))
    }

    /// Deletes a sandbox with its content.
    pub async fn delete(&self, id: &str) -> Result<(), Error> {
        self.change(&operations::DELETE_SANDBOX, id).await
    }

    async fn change(&self, operation: &'static Operation, id: &str) -> Result<(), Error> {
        let call = Call::to(operation).at(id);
        self.0.ask::<SuccessResponse>(&call).await.map(drop)
    }
}

/// Templates of sandboxes.
#[derive(Debug, Clone)]
pub struct Specs(pub(crate) Client);

reads_by_id!(Specs => Spec, SPECS "id");

impl Specs {
    /// One page; `at` is a former page's [`Page::next_page_id`].
    pub async fn search(&self, limit: u16, at: Option<&str>) -> Result<Page<Spec>, Error> {
        let call = Call::to(&operations::SEARCH_SPECS).page(limit, at);
        self.0.ask(&call).await
    }

    /// All templates, the default one first.
    pub fn all(&self) -> impl Stream<Item = Result<Spec, Error>> + use<> {
        all(self.0.clone(), Call::to(&operations::SEARCH_SPECS))
    }
}
