//! A bare actix handler in its own process, to compare with: an implementation of one route only. It runs the same query on a copy
//! of the service's database and gives the same response, without authentication, limits, deadlines, headers or logs. The copy
//! has decrypted values.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use actix_web::http::header::ContentType;
use actix_web::{App, HttpResponse, HttpServer, web};
use anyhow::{Context as _, ensure};
use diesel::connection::SimpleConnection as _;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, CustomizeConnection, Error, Pool};
use diesel::sql_types::Text;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::typed::{Conversations, Rows, Sandboxes};

/// The argument that makes `main` run the handler.
pub(crate) const ROLE_ARGUMENT: &str = "bare-handler";
/// As many connections as the service uses for reads.
const CONNECTIONS: u32 = 4;

/// One route.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct BareRoute {
    /// The copied database.
    pub(crate) database: PathBuf,
    pub(crate) owner: String,
    pub(crate) what: BareEndpoint,
}

/// The response of a route.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum BareEndpoint {
    /// These bytes, for responses without a query.
    Fixed(String),
    /// The document of the owner's row.
    Settings,
    /// Rows of sandboxes.
    Sandboxes,
    /// Rows of conversations with their sandboxes.
    Conversations,
}

type Connections = Pool<ConnectionManager<SqliteConnection>>;

#[derive(Debug)]
struct ServiceSettings;

impl CustomizeConnection<SqliteConnection, Error> for ServiceSettings {
    fn on_acquire(&self, conn: &mut SqliteConnection) -> Result<(), Error> {
        let setup =
            "PRAGMA busy_timeout = 5000; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL";
        conn.batch_execute(setup).map_err(Error::QueryError)
    }
}

fn pool(database: &Path) -> anyhow::Result<Connections> {
    let manager = ConnectionManager::new(database.to_string_lossy());
    Ok(Pool::builder()
        .max_size(CONNECTIONS)
        .test_on_check_out(false)
        .connection_customizer(Box::new(ServiceSettings))
        .build(manager)?)
}

/// Runs `job` with a connection, on a thread that may block.
#[expect(clippy::disallowed_methods, reason = "a bare handler blocks so")]
async fn run_blocking<T: Send + 'static>(
    pool: web::Data<Connections>,
    job: impl FnOnce(&mut SqliteConnection) -> QueryResult<T> + Send + 'static,
) -> T {
    let done =
        web::block(move || job(&mut pool.get().expect("cannot get a database connection"))).await;
    let done = done.expect("the thread pool has stopped");
    done.unwrap_or_else(|error| panic!("{error}"))
}

#[derive(QueryableByName)]
struct Settings {
    #[diesel(sql_type = Text)]
    document: String,
}

async fn answer(pool: web::Data<Connections>, route: web::Data<BareRoute>) -> HttpResponse {
    let owner = route.owner.clone();
    match &route.what {
        BareEndpoint::Fixed(bytes) => json(bytes.clone()),
        BareEndpoint::Settings => {
            let stored = run_blocking(pool, move |conn| {
                diesel::sql_query(
                    "SELECT document, revision, updated_at FROM settings WHERE owner = ?",
                )
                .bind::<Text, _>(owner)
                .get_result::<Settings>(conn)
            });
            json(stored.await.document)
        }
        BareEndpoint::Sandboxes => HttpResponse::Ok()
            .json(run_blocking(pool, move |conn| Sandboxes::load(conn, &owner)).await),
        BareEndpoint::Conversations => HttpResponse::Ok()
            .json(run_blocking(pool, move |conn| Conversations::load(conn, &owner)).await),
    }
}

fn json(body: String) -> HttpResponse {
    HttpResponse::Ok()
        .content_type(ContentType::json())
        .body(body)
}

/// Serves the route on standard input until the process is killed; prints its address.
pub(crate) async fn serve() -> anyhow::Result<()> {
    let route: BareRoute = serde_json::from_reader(std::io::stdin())?;
    let (pool, route) = (
        web::Data::new(pool(&route.database)?),
        web::Data::new(route),
    );
    let server = HttpServer::new(move || {
        App::new()
            .app_data(pool.clone())
            .app_data(route.clone())
            .default_service(web::get().to(answer))
    })
    .tcp_nodelay(true)
    .bind(("127.0.0.1", 0))?;
    writeln!(std::io::stdout(), "{}", server.addrs()[0])?;
    Ok(server.run().await?)
}

/// The handler in its own process. Dropping it kills it.
pub(crate) struct BareServer {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl BareServer {
    pub(crate) fn start(route: &BareRoute) -> anyhow::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg(ROLE_ARGUMENT)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut input = child.stdin.take().context("the handler has no pipe")?;
        serde_json::to_writer(&mut input, route)?;
        drop(input);
        let mut line = String::new();
        let output = child.stdout.take().context("the handler has no pipe")?;
        BufReader::new(output).read_line(&mut line)?;
        ensure!(!line.is_empty(), "the bare handler does not start");
        let address = line.trim().parse()?;
        Ok(Self { child, address })
    }

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

/// Copies the service's database. Stores the owner's `settings`, and the keys and URLs of `sandboxes`, as in the service's
/// responses.
pub(crate) fn copy(
    from: &Path,
    to: &Path,
    settings: &str,
    sandboxes: &[Value],
) -> anyhow::Result<()> {
    let mut conn = SqliteConnection::establish(&from.to_string_lossy())?;
    diesel::sql_query("VACUUM INTO ?")
        .bind::<Text, _>(to.to_string_lossy())
        .execute(&mut conn)?;
    let mut conn = SqliteConnection::establish(&to.to_string_lossy())?;
    diesel::sql_query("UPDATE settings SET document = ?")
        .bind::<Text, _>(settings)
        .execute(&mut conn)?;
    for sandbox in sandboxes {
        diesel::sql_query("UPDATE sandboxes SET session_key = ?, exposed_urls = ? WHERE id = ?")
            .bind::<Text, _>(sandbox["session_api_key"].as_str().unwrap_or_default())
            .bind::<Text, _>(sandbox["exposed_urls"].to_string())
            .bind::<Text, _>(sandbox["id"].as_str().unwrap_or_default())
            .execute(&mut conn)?;
    }
    Ok(())
}
