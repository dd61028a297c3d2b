//! The table of series in `docs/reference/metrics.md`, from the page `/metrics` of a running service.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use anyhow::Context as _;

use crate::docs::service::DocsService;
use crate::run::Programs;

/// Markers around the table.
const BEGIN: &str = "<!-- series: written by `cargo xtask docs` from `/metrics` -->\n";
const END: &str = "<!-- /series -->\n";
/// Labels whose values depend on the configuration or on the requests so far. A series with one of them shows no
/// values.
const OPEN_LABELS: [&str; 3] = ["method", "pool", "version"];
/// Endings of the samples of a histogram.
const HISTOGRAM_ENDINGS: [&str; 3] = ["_bucket", "_sum", "_count"];

/// The page with a new table.
pub(crate) fn page(current_page: &str, exposition: &str) -> anyhow::Result<String> {
    let parts = current_page
        .split_once(BEGIN)
        .and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) =
        parts.context("docs/reference/metrics.md lacks the markers of the table of series")?;
    Ok(format!(
        "{before}{BEGIN}\n{}\n{END}{after}",
        table(exposition)
    ))
}

/// The page `/metrics` of a new service that has answered one request.
pub(crate) fn exposition(programs: &Programs) -> anyhow::Result<String> {
    let service = DocsService::start(programs, "metrics")?;
    let mut connection = TcpStream::connect(&service.address)?;
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    connection.write_all(request.as_bytes())?;
    let mut answer = String::new();
    connection
        .read_to_string(&mut answer)
        .context("cannot read /metrics")?;
    Ok(answer)
}

/// The labels of one series, with their values.
type SeriesLabels<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

fn table(exposition: &str) -> String {
    let mut labels: BTreeMap<&str, SeriesLabels<'_>> = BTreeMap::new();
    for line in exposition.lines().filter(|line| !line.starts_with('#')) {
        let Some((name, rest)) = line.split_once('{') else {
            continue;
        };
        let histogram = HISTOGRAM_ENDINGS
            .iter()
            .find_map(|ending| name.strip_suffix(ending))
            .filter(|name| exposition.contains(&format!("# TYPE {name} histogram\n")));
        let of_series = labels.entry(histogram.unwrap_or(name)).or_default();
        for pair in rest.split("\",").filter_map(|it| it.split("\"} ").next()) {
            if let Some((label, value)) = pair.split_once("=\"")
                && label != "le"
            {
                of_series.entry(label).or_default().insert(value);
            }
        }
    }
    let mut table = String::from("| name | type | labels | meaning |\n|---|---|---|---|\n");
    let help = exposition
        .lines()
        .filter_map(|line| line.strip_prefix("# HELP ")?.split_once(' '));
    for (name, meaning) in help {
        let kind = exposition
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
            .find_map(|(of, kind)| (of == name).then_some(kind));
        let kind = kind.unwrap_or("untyped");
        let labels = labels.get(name).map(shown).unwrap_or_default();
        let _ = writeln!(table, "| `{name}` | {kind} | {labels} | {meaning} |");
    }
    table
}

/// The labels as a cell: with all values where these are fixed.
fn shown(labels: &SeriesLabels<'_>) -> String {
    let is_open = labels.keys().any(|label| OPEN_LABELS.contains(label));
    let quoted = |text: &&str| format!("`{text}`");
    let label_cell = |(label, values): (&&str, &BTreeSet<&str>)| {
        let values: Vec<String> = values.iter().map(quoted).collect();
        if is_open {
            quoted(label)
        } else {
            format!("{}: {}", quoted(label), values.join(", "))
        }
    };
    let cells: Vec<String> = labels.iter().map(label_cell).collect();
    cells.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPOSITION: &str = "HTTP/1.1 200 OK\r\n\r\n# HELP a_total How often.\n# TYPE a_total counter\n\
        a_total{how=\"x\"} 1\na_total{how=\"y, z\"} 0\n# HELP b_seconds How long.\n# TYPE b_seconds histogram\n\
        b_seconds_bucket{method=\"GET\",route=\"/{id}\",le=\"0.1\"} 1\nb_seconds_count{method=\"GET\",route=\"/{id}\"} 1\n\
        # HELP c Now.\n# TYPE c gauge\nc 1\n";

    #[test]
    fn a_table_has_each_series_with_its_labels() {
        let rows: Vec<_> = table(EXPOSITION)
            .lines()
            .skip(2)
            .map(str::to_owned)
            .collect();
        assert_eq!(
            rows,
            [
                "| `a_total` | counter | `how`: `x`, `y, z` | How often. |",
                "| `b_seconds` | histogram | `method`, `route` | How long. |",
                "| `c` | gauge |  | Now. |",
            ]
        );
    }

    #[test]
    fn only_the_table_of_a_page_changes() {
        let before = format!("# A\n\n{BEGIN}old\n{END}\n## B\n");
        let after = page(&before, EXPOSITION).unwrap();
        assert!(after.starts_with("# A\n\n<!-- series") && after.ends_with("-->\n\n## B\n"));
        assert!(after.contains("`a_total`") && !after.contains("old"));
        assert_eq!(page(&after, EXPOSITION).unwrap(), after);
        assert!(page("# A\n", EXPOSITION).is_err());
    }
}
