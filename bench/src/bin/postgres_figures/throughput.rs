//! Requests a second and processor time per request, against bare handlers.

use anyhow::ensure;

use super::bare::{self, BareAnswer, BareRoute, BareServer, BoundValue};
use super::load::{self, PageQuery, Sample};
use super::seed::{READER, SeededDatabase};
use crate::{BenchmarkRows, BenchmarkSize, LIST};

/// Connections for users' reads that the service has by default.
const CONNECTIONS: u32 = 4;

/// A route, and how its rows are found.
struct BenchmarkCase {
    what: &'static str,
    path: &'static str,
    table: &'static str,
    binds: Vec<BoundValue>,
    answer: BareAnswer,
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
        answer: BareAnswer::Settings,
    };
    [
        BenchmarkCase {
            what: "GET app-conversations/search, 100",
            path: LIST,
            table: "conversations",
            binds: list(101),
            answer: BareAnswer::List(100),
        },
        BenchmarkCase {
            what: "GET app-conversations/search, 20",
            path: "/api/v1/app-conversations/search?limit=20",
            table: "conversations",
            binds: list(21),
            answer: BareAnswer::List(20),
        },
        settings("GET /api/v1/settings", "/api/v1/settings"),
        settings("GET /api/settings", "/api/settings"),
    ]
}

/// Rows of the table: each route against both.
pub(crate) async fn rows(
    table: &mut BenchmarkRows,
    size: &BenchmarkSize,
    large: &SeededDatabase,
) -> anyhow::Result<()> {
    for case in cases() {
        let ours = PageQuery::new(&large.service.url(), case.path, &large.reader);
        let sql = bare::statement_of(&large.url, case.table, &ours).await?;
        let answer = String::from_utf8(ours.get().await.to_vec())?;
        let database = match case.answer {
            BareAnswer::Settings => bare::with_plain_settings(&large.url, &answer)?,
            _ => large.url.clone(),
        };
        let start = |database: &str, answer| {
            let (sql, binds) = (sql.clone(), case.binds.clone());
            BareServer::start(database, CONNECTIONS, &BareRoute { sql, binds, answer })
        };
        let handlers = [
            start(&database, case.answer)?,
            start(&large.url, BareAnswer::Given(answer))?,
        ];
        let pages = handlers
            .each_ref()
            .map(|it| PageQuery::new(&it.url, case.path, &large.reader));
        for page in &pages {
            check_same(case.what, &ours, page).await?;
        }
        let taken = load::throughput(
            size.clients,
            size.lasting / 15,
            [
                (&ours, large.service.pid()),
                (&pages[0], handlers[0].pid()),
                (&pages[1], handlers[1].pid()),
            ],
        );
        print(
            table,
            &format!("{}, {} clients", case.what, size.clients),
            taken.await,
        );
    }
    Ok(())
}

/// That both answer alike, but for the time: settings have the present one in them.
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
        anyhow::bail!("{what}: not the same answers: {ours} and {theirs}");
    }
    ensure!(ours.len() == theirs.len(), "{what}: not equally long");
    Ok(())
}

fn print(table: &mut BenchmarkRows, what: &str, [ours, bare, floor]: [Sample; 3]) {
    let summary = |taken: Sample| {
        let (rate, micros) = (taken.per_second(), taken.micros());
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
