//! Queries of the service's `SQLite` file.

use diesel::prelude::*;
use diesel::sql_types::Text;

use super::Service;

#[derive(QueryableByName)]
struct Value {
    #[diesel(sql_type = Text)]
    value: String,
}

impl Service {
    /// One value of the service's `SQLite` database, which is read only.
    ///
    /// # Panics
    /// When the database cannot be opened, or the query fails.
    #[must_use]
    pub fn query(&self, sql: &str) -> String {
        let file = self.data_dir().join("agent-workspace.db");
        let url = format!("file:{}?mode=ro", file.display());
        let mut database = SqliteConnection::establish(&url)
            .unwrap_or_else(|error| panic!("cannot open {url}: {error}"));
        // The service may have a lock.
        let waited = diesel::sql_query("pragma busy_timeout = 10000").execute(&mut database);
        let value = waited.and_then(|_| {
            diesel::sql_query(format!("select cast(({sql}) as text) as value"))
                .get_result::<Value>(&mut database)
        });
        value.unwrap_or_else(|error| panic!("{sql}: {error}")).value
    }
}
