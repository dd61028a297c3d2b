//! Records what a model call took, however it ends.

use actix_web::web::Bytes;
use application::spending::{CallResult, OpenSpending};
use broker::{AnswerBroken, ModelBroker, UsageScanner};
use futures::{Stream, StreamExt as _, stream};
use tokio::sync::oneshot;

use crate::extract::Application;

/// A call that is metered. Dropped at any time, it is recorded in the background.
pub(super) struct CallMeter {
    app: Application,
    broker: ModelBroker,
    /// The model's name in the settings.
    model: String,
    /// `None` once it is settled.
    open: Option<OpenSpending>,
    scanner: UsageScanner,
    result: CallResult,
}

impl CallMeter {
    pub(super) fn new(
        app: &Application,
        broker: &ModelBroker,
        model: &str,
        open: OpenSpending,
        request_bytes: u64,
    ) -> Self {
        Self {
            app: app.clone(),
            broker: broker.clone(),
            model: model.to_owned(),
            open: Some(open),
            scanner: UsageScanner::new(""),
            result: CallResult {
                request_bytes,
                ..CallResult::default()
            },
        }
    }

    /// The provider answers with this status and content type.
    pub(super) fn answered(&mut self, status: u16, content_type: &str) {
        self.result.is_success = (200..300).contains(&status);
        self.scanner = UsageScanner::new(content_type);
    }

    /// The answer as it comes. The call is recorded before it ends.
    pub(super) fn watch(
        self,
        chunks: impl Stream<Item = Result<Bytes, AnswerBroken>>,
    ) -> impl Stream<Item = Result<Bytes, AnswerBroken>> {
        let state = Some((Box::pin(chunks), self));
        stream::unfold(state, |state| async move {
            let (mut chunks, mut meter) = state?;
            match chunks.next().await {
                Some(Ok(chunk)) => {
                    meter.read(&chunk);
                    Some((Ok(chunk), Some((chunks, meter))))
                }
                end => {
                    // Frees the slot of the call.
                    drop(chunks);
                    if let Some(settled) = meter.settle() {
                        let _ = settled.await;
                    }
                    end.map(|broken| (broken, None))
                }
            }
        })
    }

    fn read(&mut self, chunk: &Bytes) {
        self.scanner.read(chunk);
        let length = chunk.len() as u64;
        self.result.answer_bytes = self.result.answer_bytes.saturating_add(length);
    }

    /// Records the call in the background, unless that has begun: a client that hangs up must not cut it off. The receiver
    /// ends with it.
    fn settle(&mut self) -> Option<oneshot::Receiver<()>> {
        let open = self.open.take()?;
        self.result.tokens = self.scanner.tokens();
        let prices = self.broker.prices();
        let (model, price) = prices.find(&self.model, self.scanner.model());
        let spent = self.result.spent(price);
        self.broker.count_spent(&spent);
        let (done, settled) = oneshot::channel();
        let app = self.app.clone();
        self.app.spawn(async move {
            app.spending.settle(open, &model, &spent).await;
            let _ = done.send(());
        });
        Some(settled)
    }
}

impl Drop for CallMeter {
    fn drop(&mut self) {
        let _ = self.settle();
    }
}
