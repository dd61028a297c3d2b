//! `ChangeFeed`.

use domain::change::{Change, ChangeFeed};
use futures::stream::{self, BoxStream, StreamExt};

use crate::store::SqlStore;

impl ChangeFeed for SqlStore {
    fn changes(&self) -> BoxStream<'static, Change> {
        // A SQLite file belongs to one process.
        stream::pending().boxed()
    }
}
