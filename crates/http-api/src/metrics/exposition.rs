//! The text format of Prometheus, version 0.0.4.

use std::fmt::Write as _;
use std::time::Duration;

use domain::metrics::{BUCKET_BOUNDS_MS, HistogramSnapshot};

pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

const PREFIX: &str = "agent_workspace_";

/// A page of metrics that is being written. Names are given without the prefix; labels are never free text.
#[derive(Debug, Default)]
pub(crate) struct MetricsPage {
    text: String,
    prefix: &'static str,
}

/// A value without labels.
pub(super) fn one<V>(value: V) -> [([(&'static str, &'static str); 0], V); 1] {
    [([], value)]
}

/// Values by the value of one label.
pub(super) fn by<'a, V>(
    label: &'a str,
    values: impl IntoIterator<Item = (&'a str, V)>,
) -> impl Iterator<Item = ([(&'a str, &'a str); 1], V)> {
    let values = values.into_iter();
    values.map(move |(name, value)| ([(label, name)], value))
}

impl MetricsPage {
    pub(crate) fn new() -> Self {
        Self {
            text: String::with_capacity(16 * 1024),
            prefix: PREFIX,
        }
    }

    /// Writes standard process metrics, whose names have no prefix.
    pub(crate) fn with_standard_names(&mut self, write: impl FnOnce(&mut Self)) {
        self.prefix = "";
        write(self);
        self.prefix = PREFIX;
    }

    pub(crate) fn finish(self) -> String {
        self.text
    }

    /// Writes a counter. `name` ends with `_total`.
    pub(super) fn counter<'a, L: AsRef<[(&'a str, &'a str)]>>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (L, u64)>,
    ) {
        self.numbers(name, "counter", help, samples);
    }

    pub(super) fn gauge<'a, L: AsRef<[(&'a str, &'a str)]>>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (L, u64)>,
    ) {
        self.numbers(name, "gauge", help, samples);
    }

    fn numbers<'a, L: AsRef<[(&'a str, &'a str)]>>(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        samples: impl IntoIterator<Item = (L, u64)>,
    ) {
        self.head(name, kind, help);
        for (labels, value) in samples {
            self.sample(name, labels.as_ref(), value);
        }
    }

    /// Writes a time or a duration in seconds.
    pub(crate) fn seconds(&mut self, name: &str, kind: &str, help: &str, value: Duration) {
        self.head(name, kind, help);
        self.sample(name, &[], value.as_secs_f64());
    }

    /// Writes a histogram of durations. `name` ends with `_seconds`.
    pub(super) fn histogram<'a, L: AsRef<[(&'a str, &'a str)]>>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (L, HistogramSnapshot)>,
    ) {
        self.head(name, "histogram", help);
        let (bucket, sum, count) = (
            format!("{name}_bucket"),
            format!("{name}_sum"),
            format!("{name}_count"),
        );
        for (labels, measured) in samples {
            let labels = labels.as_ref();
            let bounds = BUCKET_BOUNDS_MS.iter().map(|ms| seconds(*ms));
            let bounds = bounds.chain(["+Inf".to_owned()]);
            for (bound, at_most) in bounds.zip(measured.cumulative_counts) {
                let labels = [labels, &[("le", bound.as_str())]].concat();
                self.sample(&bucket, &labels, at_most);
            }
            self.sample(&sum, labels, measured.sum.as_secs_f64());
            self.sample(
                &count,
                labels,
                measured.cumulative_counts[BUCKET_BOUNDS_MS.len()],
            );
        }
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let prefix = self.prefix;
        // Writing to a `String` does not fail.
        let _ = write!(
            self.text,
            "# HELP {prefix}{name} {help}\n# TYPE {prefix}{name} {kind}\n"
        );
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        self.text.push_str(self.prefix);
        self.text.push_str(name);
        for (at, (label, value)) in labels.iter().enumerate() {
            let before = if at == 0 { '{' } else { ',' };
            let value = value.replace('\\', "\\\\").replace('"', "\\\"");
            let value = value.replace('\n', "\\n");
            let _ = write!(self.text, "{before}{label}=\"{value}\"");
        }
        let after = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{after} {value}");
    }
}

/// Formats milliseconds as seconds, without binary rounding.
fn seconds(ms: u64) -> String {
    let (whole, rest) = (ms / 1000, ms % 1000);
    let text = format!("{whole}.{rest:03}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use domain::metrics::DurationHistogram;

    use super::*;

    #[test]
    fn a_page_has_the_form_that_prometheus_reads() {
        let mut page = MetricsPage::new();
        page.counter("x_total", "How often.", by("a", [("b\"c\\d\ne", 3)]));
        page.with_standard_names(|page| page.gauge("up", "Now.", one(1)));
        let durations = DurationHistogram::default();
        durations.record(Duration::from_millis(1500));
        page.histogram(
            "t_seconds",
            "How long.",
            by("k", [("v", durations.snapshot())]),
        );
        let text = page.finish();
        let start = "# HELP agent_workspace_x_total How often.\n# TYPE agent_workspace_x_total counter\n\
             agent_workspace_x_total{a=\"b\\\"c\\\\d\\ne\"} 3\n# HELP up Now.\n# TYPE up gauge\nup 1\n";
        assert!(text.starts_with(start), "{text}");
        for line in [
            "agent_workspace_t_seconds_bucket{k=\"v\",le=\"0.001\"} 0\n",
            "agent_workspace_t_seconds_bucket{k=\"v\",le=\"1\"} 0\n",
            "agent_workspace_t_seconds_bucket{k=\"v\",le=\"2.5\"} 1\n",
            "agent_workspace_t_seconds_bucket{k=\"v\",le=\"+Inf\"} 1\n",
            "agent_workspace_t_seconds_sum{k=\"v\"} 1.5\n",
            "agent_workspace_t_seconds_count{k=\"v\"} 1\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
