//! Bare actix handlers to compare with. Each runs the same query through the same kind of pool, without authentication, limits or
//! logs:
//!
//! * the *bare handler* reads typed rows and serializes the response with serde ([`super::typed`]): an implementation of one route
//!   only;
//! * the *floor* ignores the rows and responds with fixed bytes: the cost of the query, the pool and the server alone.

use std::io::Write as _;
use std::marker::PhantomData;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use actix_web::http::header::ContentType;
use actix_web::{App, HttpResponse, HttpServer, web};
use anyhow::{Context as _, ensure};
use diesel::connection::SimpleConnection as _;
use diesel::pg::{Pg, PgConnection};
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::r2d2::{ConnectionManager, Pool};
use diesel::sql_types::{BigInt, Text};
use serde::{Deserialize, Serialize};

use super::typed::{ListColumns, ListRow, SettingsColumns, SettingsRow, page};

/// The argument that makes `main` run the handler.
pub(crate) const ROLE_ARGUMENT: &str = "bare-handler";

/// One route.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct BareRoute {
    /// With `$1`, `$2`, …, each once.
    pub(crate) sql: String,
    pub(crate) binds: Vec<BoundValue>,
    pub(crate) answer: BareBody,
}

/// The body of the response.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum BareBody {
    /// These bytes, whatever the rows are.
    Fixed(String),
    /// A list of conversations of this length.
    List(usize),
    /// The document in the row.
    Settings,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum BoundValue {
    Text(String),
    Number(i64),
}

/// The statement of a route, with these columns.
struct QueryStatement<'a, Columns>(&'a BareRoute, PhantomData<Columns>);

impl<Columns> QueryFragment<Pg> for QueryStatement<'_, Columns> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        let mut parts = self.0.sql.split('$');
        out.push_sql(parts.next().unwrap_or_default());
        for (part, bind) in parts.zip(&self.0.binds) {
            match bind {
                BoundValue::Text(text) => out.push_bind_param::<Text, _>(text)?,
                BoundValue::Number(number) => out.push_bind_param::<BigInt, _>(number)?,
            }
            out.push_sql(part.trim_start_matches(|it: char| it.is_ascii_digit()));
        }
        Ok(())
    }
}

impl<Columns: 'static> QueryId for QueryStatement<'_, Columns> {
    type QueryId = QueryStatement<'static, Columns>;
    // The process has one route, so diesel can cache the statement by its type.
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl<Columns> Query for QueryStatement<'_, Columns> {
    type SqlType = Columns;
}

impl<Columns> RunQueryDsl<PgConnection> for QueryStatement<'_, Columns> {}

type Connections = Pool<ConnectionManager<PgConnection>>;

/// Runs `job` with a connection, on a thread that may block.
#[expect(clippy::disallowed_methods, reason = "a bare handler blocks so")]
async fn run_blocking<T: Send + 'static>(
    pool: web::Data<Connections>,
    job: impl FnOnce(&mut PgConnection) -> QueryResult<T> + Send + 'static,
) -> T {
    let done =
        web::block(move || job(&mut pool.get().expect("cannot get a database connection"))).await;
    let done = done.expect("the thread pool has stopped");
    done.unwrap_or_else(|error| panic!("{error}"))
}

async fn answer(pool: web::Data<Connections>, route: web::Data<BareRoute>) -> HttpResponse {
    let bound_route = route.clone().into_inner();
    match &route.answer {
        BareBody::Fixed(bytes) => {
            run_blocking(pool, move |conn| {
                QueryStatement::<Text>(&bound_route, PhantomData).execute(conn)
            })
            .await;
            json(bytes.clone())
        }
        BareBody::List(limit) => {
            let rows: Vec<ListRow> = run_blocking(pool, move |conn| {
                QueryStatement::<ListColumns>(&bound_route, PhantomData).load(conn)
            })
            .await;
            HttpResponse::Ok().json(page(rows, *limit))
        }
        BareBody::Settings => {
            let row: SettingsRow = run_blocking(pool, move |conn| {
                QueryStatement::<SettingsColumns>(&bound_route, PhantomData).get_result(conn)
            })
            .await;
            json(row.document)
        }
    }
}

fn json(body: String) -> HttpResponse {
    HttpResponse::Ok()
        .content_type(ContentType::json())
        .body(body)
}

/// Serves the route on standard input until the process is killed; prints its port. `arguments` are the database and the number
/// of connections.
pub(crate) async fn serve(arguments: &[String]) -> anyhow::Result<()> {
    let [database, connections] = arguments else {
        anyhow::bail!("{ROLE_ARGUMENT} takes a database and a number of connections");
    };
    let route: BareRoute = serde_json::from_reader(std::io::stdin())?;
    let pool: Connections = Pool::builder()
        .max_size(connections.parse()?)
        .test_on_check_out(false)
        .build(ConnectionManager::new(database))?;
    let (pool, route) = (web::Data::new(pool), web::Data::new(route));
    let server = HttpServer::new(move || {
        App::new()
            .app_data(pool.clone())
            .app_data(route.clone())
            .default_service(web::get().to(answer))
    })
    .bind(("127.0.0.1", 0))?;
    let port = server.addrs()[0].port();
    writeln!(std::io::stdout(), "{port}")?;
    Ok(server.run().await?)
}

/// The handler in its own process. Dropping it kills it.
pub(crate) struct BareServer {
    child: Child,
    pub(crate) url: String,
}

impl BareServer {
    pub(crate) fn start(
        database: &str,
        connections: u32,
        route: &BareRoute,
    ) -> anyhow::Result<Self> {
        let own: &Path = &std::env::current_exe()?;
        let mut child = Command::new(own)
            .args([ROLE_ARGUMENT, database, &connections.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut input = child.stdin.take().context("the handler has no pipe")?;
        serde_json::to_writer(&mut input, route)?;
        drop(input);
        let mut line = String::new();
        let output = child.stdout.take().context("the handler has no pipe")?;
        std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line)?;
        let port = line.trim();
        ensure!(!port.is_empty(), "the bare handler does not start");
        let url = format!("http://127.0.0.1:{port}");
        Ok(Self { child, url })
    }
}

impl BareServer {
    /// Process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for BareServer {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(QueryableByName)]
struct ConnectionActivity {
    #[diesel(sql_type = Text)]
    query: String,
}

/// The service's statement for a page, from the database server's activity.
pub(crate) async fn statement_of(
    database: &str,
    table: &str,
    page: &super::load::PageQuery,
) -> anyhow::Result<String> {
    let mut conn = PgConnection::establish(database)?;
    for _ in 0..50 {
        drop(page.get().await);
        let found: Option<ConnectionActivity> = diesel::sql_query(
            "SELECT query FROM pg_stat_activity WHERE datname = current_database() \
             AND query LIKE 'SELECT%FROM%' || $1 || '%' AND pid <> pg_backend_pid() ORDER BY query_start DESC LIMIT 1",
        )
        .bind::<Text, _>(format!("\"{table}\""))
        .get_result(&mut conn)
        .optional()?;
        if let Some(found) = found {
            return Ok(found.query);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    anyhow::bail!("the database server shows no query of {table}");
}

/// Stores the response as every user's settings in another schema, where the same query reads it. Returns the URL with that schema.
pub(crate) fn with_plain_settings(database: &str, answer: &str) -> anyhow::Result<String> {
    let mut conn = PgConnection::establish(database)?;
    conn.batch_execute(
        "DROP SCHEMA IF EXISTS bare CASCADE; CREATE SCHEMA bare; \
         CREATE TABLE bare.settings (LIKE public.settings INCLUDING ALL)",
    )?;
    diesel::sql_query(
        "INSERT INTO bare.settings (owner, document, revision, updated_at) \
         SELECT owner, $1, revision, updated_at FROM public.settings",
    )
    .bind::<Text, _>(answer)
    .execute(&mut conn)?;
    conn.batch_execute("ANALYZE bare.settings")?;
    Ok(format!("{database}?options=-csearch_path%3Dbare"))
}
