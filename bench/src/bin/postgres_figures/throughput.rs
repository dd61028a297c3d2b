//! Throughput and processor time per request, compared with bare handlers.

use anyhow::ensure;

use super::bare::{self, BareBody, BareRoute, BareServer, BoundValue};
use super::load::{self, PageQuery, Sample};
use super::seed::{READER, SeededDatabase};
use crate::{BenchmarkSize, LIST};
use benchmarks::table::Table;

/// The service's default number of connections for users' reads.
const CONNECTIONS: u32 = 4;

/// A route and its query.
struct BenchmarkCase {
    what: &'static str,
    path: &'static str,
    table: &'static str,
    binds: Vec<BoundValue>,
    answer: BareBody,
}

fn cases() -> [BenchmarkCase; 4] {
    let user = || BoundValue::Text(READER.to_owned());
    let list = |rows| {
        vec![
            BoundValue::Text("deleted".to_owned()),
            user(),
            BoundValue::Number(rows),
        ]
    };
    let settings = |what, path| BenchmarkCase {
        what,
        path,
        table: "settings",
        binds: vec![user(), BoundValue::Number(1)],
        answer: BareBody::Settings,
    };
    [
        BenchmarkCase {
            what: "GET app-conversations/search, 100",
            path: LIST,
            table: "conversations",
            binds: list(101),
            answer: BareBody::List(100),
        },
        BenchmarkCase {
            what: "GET app-conversations/search, 20",
            path: "/api/v1/app-conversations/search?limit=20",
            table: "conversations",
            binds: list(21),
            answer: BareBody::List(20),
        },
        settings("GET /api/v1/settings", "/api/v1/settings"),
        settings("GET /api/settings", "/api/settings"),
    ]
}

/// Compares each route with both handlers.
pub(crate) async fn rows(
    table: &mut Table,
    size: &BenchmarkSize,
    large: &SeededDatabase,
) -> anyhow::Result<()> {
    for case in cases() {
        let ours = PageQuery::new(&large.service.url(), case.path, &large.reader);
        let sql = bare::statement_of(&large.url, case.table, &ours).await?;
        let answer = String::from_utf8(ours.get().await.to_vec())?;
        let database = match case.answer {
            BareBody::Settings => bare::with_plain_settings(&large.url, &answer)?,
            _ => large.url.clone(),
        };
        let start = |database: &str, answer| {
            let (sql, binds) = (sql.clone(), case.binds.clone());
            BareServer::start(database, CONNECTIONS, &BareRoute { sql, binds, answer })
        };
        let handlers = [
            start(&database, case.answer)?,
            start(&large.url, BareBody::Fixed(answer))?,
        ];
        let pages = handlers
            .each_ref()
            .map(|it| PageQuery::new(&it.url, case.path, &large.reader));
        for page in &pages {
            check_same(case.what, &ours, page).await?;
        }
        let samples = load::throughput(
            size.clients,
            size.duration / 15,
            [
                (&ours, large.service.pid()),
                (&pages[0], handlers[0].pid()),
                (&pages[1], handlers[1].pid()),
            ],
        );
        add_rows(
            table,
            &format!("{}, {} clients", case.what, size.clients),
            samples.await,
        );
    }
    Ok(())
}

/// Checks that both responses are the same except for digits: settings contain the current time.
async fn check_same(what: &str, ours: &PageQuery, theirs: &PageQuery) -> anyhow::Result<()> {
    let summary = |page: &[u8]| -> Vec<u8> {
        let signs = page.iter();
        signs
            .map(|it| if it.is_ascii_digit() { b'0' } else { *it })
            .collect()
    };
    let (ours, theirs) = (summary(&ours.get().await), summary(&theirs.get().await));
    let differ = ours.iter().zip(&theirs).position(|(a, b)| a != b);
    if let Some(at) = differ {
        let at = at.saturating_sub(100);
        let [ours, theirs] = [ours, theirs].map(|it| {
            let part = &it[at..it.len().min(at + 200)];
            String::from_utf8_lossy(part).into_owned()
        });
        anyhow::bail!("{what}: different responses: {ours} and {theirs}");
    }
    ensure!(
        ours.len() == theirs.len(),
        "{what}: responses of different length"
    );
    Ok(())
}

fn add_rows(table: &mut Table, what: &str, [ours, bare, floor]: [Sample; 3]) {
    let summary = |samples: Sample| {
        let (rate, micros) = (samples.per_second(), samples.micros());
        format!("{rate:.0} requests/s, {micros:.0} µs of processor time")
    };
    let rows = [
        (what, summary(ours), "bare handler", bare, "≥ 0.9"),
        ("…", String::new(), "floor", floor, ""),
    ];
    for (what, this, with, other, target) in rows {
        let ratio = format!("{:.2}", ours.per_second() / other.per_second());
        table.row([
            what,
            &this,
            &format!("{with} {}", summary(other)),
            &ratio,
            target,
        ]);
    }
}
