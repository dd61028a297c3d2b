//! Answers that go on: watches and followed logs.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, Stream, StreamExt as _};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::Response;
use hyper::body::{Bytes, Frame};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::Shared;
use crate::call::{Call, Parameters, ServerBody, is_selected};
use crate::errors::ApiError;
use crate::kind::Kind;

/// A watch ends by itself after this time, unless its client wants less.
const WATCH_LIMIT: u64 = 300;

/// The state of one watch.
struct Watch {
    shared: Arc<Shared>,
    changed: watch::Receiver<u64>,
    kind: Kind,
    parameters: Parameters,
    revision: u64,
    deadline: Instant,
    has_ended: bool,
}

pub(crate) fn watch(
    shared: &Arc<Shared>,
    kind: Kind,
    call: &Call<'_>,
) -> Result<Response<ServerBody>, ApiError> {
    let revision = call
        .parameter("resourceVersion")
        .and_then(|it| it.parse().ok());
    let state = shared.state();
    let revision = revision.unwrap_or(state.store.revision);
    if state.store.since(revision).is_none() {
        return Err(ApiError::gone());
    }
    let limit = call
        .parameter("timeoutSeconds")
        .and_then(|it| it.parse().ok());
    let limit = Duration::from_secs(limit.unwrap_or(WATCH_LIMIT));
    drop(state);
    let watch = Watch {
        shared: Arc::clone(shared),
        changed: shared.subscribe(),
        kind,
        parameters: call.parameters.clone(),
        revision,
        deadline: Instant::now() + limit,
        has_ended: false,
    };
    Ok(streamed(stream::unfold(watch, |mut watch| async move {
        let text = watch.next().await?;
        Some((text, watch))
    })))
}

impl Watch {
    /// The next lines. `None` at the end.
    async fn next(&mut self) -> Option<String> {
        while !self.has_ended {
            self.changed.mark_unchanged();
            let text = self.read();
            if !text.is_empty() {
                return Some(text);
            }
            if !matches!(
                timeout_at(self.deadline, self.changed.changed()).await,
                Ok(Ok(()))
            ) {
                self.has_ended = true;
                let meta = json!({"resourceVersion": self.revision.to_string()});
                let bookmark = json!({"type": "BOOKMARK", "object": {"metadata": meta}});
                return Some(format!("{bookmark}\n"));
            }
        }
        None
    }

    fn read(&mut self) -> String {
        let state = self.shared.state();
        let Some(changes) = state.store.since(self.revision) else {
            self.has_ended = true;
            let error = ApiError::gone().status();
            return format!("{}\n", json!({"type": "ERROR", "object": error}));
        };
        let mut text = String::new();
        let mut last = self.revision;
        for change in changes {
            last = change.revision;
            if change.kind == self.kind && is_selected(&change.object, &self.parameters) {
                let event = json!({"type": change.event, "object": change.object});
                text += &event.to_string();
                text.push('\n');
            }
        }
        self.revision = last;
        text
    }
}

/// The state of one reader of a log.
struct PodLogStream {
    shared: Arc<Shared>,
    changed: watch::Receiver<u64>,
    name: String,
    uid: String,
    next: usize,
    has_times: bool,
    follows: bool,
}

pub(crate) fn log(
    shared: &Arc<Shared>,
    name: &str,
    call: &Call<'_>,
) -> Result<Response<ServerBody>, ApiError> {
    let state = shared.state();
    let pod = state
        .store
        .get(Kind::Pod, name)
        .ok_or_else(|| ApiError::not_found(name))?;
    let uid = pod["metadata"]["uid"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let count = call.parameter("tailLines").and_then(|it| it.parse().ok());
    let reader = PodLogStream {
        changed: shared.subscribe(),
        name: name.to_owned(),
        next: state.logs.tail(&uid, count),
        uid,
        has_times: call.is_set("timestamps"),
        follows: call.is_set("follow"),
        shared: Arc::clone(shared),
    };
    drop(state);
    Ok(streamed(stream::unfold(Some(reader), |reader| async {
        let mut reader = reader?;
        loop {
            reader.changed.mark_unchanged();
            let (text, has_ended) = reader.read();
            match (text.is_empty(), has_ended || !reader.follows) {
                (true, true) => return None,
                (_, true) => return Some((text, None)),
                (false, false) => return Some((text, Some(reader))),
                (true, false) => reader.changed.changed().await.ok()?,
            }
        }
    })))
}

impl PodLogStream {
    /// The lines since the last read, and whether there will be no more.
    fn read(&mut self) -> (String, bool) {
        let state = self.shared.state();
        let pod = state.store.get(Kind::Pod, &self.name);
        let pod = pod.filter(|pod| pod["metadata"]["uid"] == *self.uid);
        let (text, next) = state.logs.read(&self.uid, self.next, self.has_times);
        self.next = next;
        let runs = pod.is_some_and(|pod| pod["status"]["phase"] == "Running");
        (text, !runs)
    }
}

fn streamed(text: impl Stream<Item = String> + Send + 'static) -> Response<ServerBody> {
    let frames = text.map(|text| Ok(Frame::data(Bytes::from(text))));
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}
