//! What is compared with: a bare actix handler that does the same query through the same kind of pool, looks at nothing that
//! comes back, and answers with bytes that it was given.

use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use actix_web::http::header::ContentType;
use actix_web::{App, HttpResponse, HttpServer, web};
use anyhow::{Context as _, ensure};
use diesel::pg::{Pg, PgConnection};
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::r2d2::{ConnectionManager, Pool};
use diesel::sql_types::{BigInt, Text};
use serde::{Deserialize, Serialize};

/// What `main` is called with to be the handler instead.
pub(crate) const ROLE: &str = "bare-handler";

/// One route.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Route {
    /// With `$1`, `$2`, …, each of them once.
    pub(crate) sql: String,
    pub(crate) binds: Vec<Bind>,
    pub(crate) answer: String,
}

/// A parameter.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Bind {
    Text(String),
    Number(i64),
}

impl QueryFragment<Pg> for Route {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        let mut parts = self.sql.split('$');
        out.push_sql(parts.next().unwrap_or_default());
        for (part, bind) in parts.zip(&self.binds) {
            match bind {
                Bind::Text(text) => out.push_bind_param::<Text, _>(text)?,
                Bind::Number(number) => out.push_bind_param::<BigInt, _>(number)?,
            }
            out.push_sql(part.trim_start_matches(|it: char| it.is_ascii_digit()));
        }
        Ok(())
    }
}

impl QueryId for Route {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl RunQueryDsl<PgConnection> for Route {}

type Connections = Pool<ConnectionManager<PgConnection>>;

#[expect(clippy::disallowed_methods, reason = "what a bare handler does")]
async fn answer(pool: web::Data<Connections>, route: web::Data<Route>) -> HttpResponse {
    let asked = route.clone();
    let done = web::block(move || {
        let mut conn = pool.get().expect("a connection");
        Route::clone(&asked).execute(&mut conn)
    });
    match done.await {
        Ok(Ok(_)) => HttpResponse::Ok()
            .content_type(ContentType::json())
            .body(route.answer.clone()),
        failed => panic!("{failed:?}"),
    }
}

/// Serves for ever: database, connections, and the route from standard input; tells the port.
pub(crate) async fn serve(arguments: &[String]) -> anyhow::Result<()> {
    let [database, connections] = arguments else {
        anyhow::bail!("{ROLE} takes a database and a number of connections");
    };
    let route: Route = serde_json::from_reader(std::io::stdin())?;
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

/// The handler in a process of its own, as the service is.
pub(crate) struct Bare {
    child: Child,
    pub(crate) url: String,
}

impl Bare {
    pub(crate) fn start(database: &str, connections: u32, route: &Route) -> anyhow::Result<Self> {
        let own: &Path = &std::env::current_exe()?;
        let mut child = Command::new(own)
            .args([ROLE, database, &connections.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut input = child.stdin.take().context("a pipe")?;
        serde_json::to_writer(&mut input, route)?;
        drop(input);
        let mut line = String::new();
        let output = child.stdout.take().context("a pipe")?;
        std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line)?;
        let port = line.trim();
        ensure!(!port.is_empty(), "the bare handler does not start");
        let url = format!("http://127.0.0.1:{port}");
        Ok(Self { child, url })
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(QueryableByName)]
struct Activity {
    #[diesel(sql_type = Text)]
    query: String,
}

/// The statement that the service made for a page, as the server saw it.
pub(crate) async fn statement_of(
    database: &str,
    table: &str,
    page: &super::load::Page,
) -> anyhow::Result<String> {
    let mut conn = PgConnection::establish(database)?;
    for _ in 0..50 {
        drop(page.get().await);
        let found: Option<Activity> = diesel::sql_query(
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
    anyhow::bail!("the service's query of {table} is not to be seen");
}
