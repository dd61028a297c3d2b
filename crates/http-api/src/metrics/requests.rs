//! Requests, by method and route. Every route has its counters before the first request comes, so counting one costs a
//! look-up and some additions; and a path that is no route's is never a label.

use std::collections::HashMap;
use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::http::{Method, StatusCode};
use domain::metrics::{Counter, DurationHistogram, Gauge};

/// Longest pattern of a route, in bytes.
const MAX_PATTERN_BYTES: usize = 256;
/// The route of what no route took.
const UNMATCHED_ROUTE: &str = "unmatched";
/// The route of what went to an agent server.
const FORWARDED_ROUTE: &str = "gateway";
/// The method of both.
const ANY_METHOD: &str = "ANY";
const STATUS_CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// What came in.
#[derive(Debug, Default)]
pub(crate) struct RequestMetrics {
    /// By method, and pattern of the path.
    routes: HashMap<String, Vec<(Method, RouteMetrics)>>,
    unmatched: RouteMetrics,
    /// What the gateway took.
    forwarded: RouteMetrics,
    pub(crate) in_flight: Gauge,
}

/// What came to one route.
#[derive(Debug, Default)]
pub(crate) struct RouteMetrics {
    classes: [Counter; STATUS_CLASSES.len()],
    pub(crate) durations: DurationHistogram,
}

impl RouteMetrics {
    fn note(&self, status: StatusCode, took: Duration) {
        let class = usize::from(status.as_u16() / 100).clamp(1, STATUS_CLASSES.len()) - 1;
        self.classes[class].add(1);
        self.durations.record(took);
    }

    /// How often it answered, by class of the status. Only those that it has given.
    pub(crate) fn answers(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = STATUS_CLASSES.iter().zip(&self.classes);
        counts
            .map(|(class, count)| (*class, count.get()))
            .filter(|(_, count)| *count > 0)
    }
}

impl RequestMetrics {
    /// For these routes.
    pub(crate) fn of<'a>(routes: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let mut known: HashMap<_, Vec<_>> = HashMap::new();
        for (method, pattern) in routes {
            if let Ok(method) = method.to_ascii_uppercase().parse() {
                let methods = known.entry(pattern.to_owned()).or_default();
                // Most have one method; room for four would be the rule.
                methods.reserve_exact(1);
                methods.push((method, RouteMetrics::default()));
            }
        }
        Self {
            routes: known,
            ..Self::default()
        }
    }

    /// One was answered.
    pub(crate) fn note(&self, req: &HttpRequest, status: StatusCode, took: Duration) {
        let mut buffer = [0; MAX_PATTERN_BYTES];
        let route = pattern(req, &mut buffer).and_then(|pattern| {
            let methods = self.routes.get(pattern)?;
            methods.iter().find(|(method, _)| method == req.method())
        });
        route
            .map_or(&self.unmatched, |(_, route)| route)
            .note(status, took);
    }

    /// The pattern of the route that took this request.
    pub(crate) fn route_of(&self, req: &HttpRequest) -> Option<&str> {
        let mut buffer = [0; MAX_PATTERN_BYTES];
        let pattern = pattern(req, &mut buffer)?;
        let (known, _) = self.routes.get_key_value(pattern)?;
        Some(known)
    }

    /// One was answered by an agent server.
    pub(crate) fn note_forwarded(&self, status: StatusCode, took: Duration) {
        self.forwarded.note(status, took);
    }

    /// One was answered before it was looked for a route, or nobody knows any more which it was.
    pub(crate) fn note_unmatched(&self, status: StatusCode, took: Duration) {
        self.unmatched.note(status, took);
    }

    /// All that have had a request, with method and pattern.
    pub(crate) fn routes(&self) -> Vec<(&str, &str, &RouteMetrics)> {
        let routes = self.routes.iter().flat_map(|(pattern, methods)| {
            let methods = methods.iter();
            methods.map(|(method, route)| (method.as_str(), pattern.as_str(), route))
        });
        let all = routes.chain([
            (ANY_METHOD, UNMATCHED_ROUTE, &self.unmatched),
            (ANY_METHOD, FORWARDED_ROUTE, &self.forwarded),
        ]);
        let mut had: Vec<_> = all
            .filter(|(.., route)| route.answers().next().is_some())
            .collect();
        had.sort_unstable_by_key(|(method, pattern, _)| (*pattern, *method));
        had
    }
}

/// The pattern of the route that took this request: its path, with names in braces instead of what they matched. Where that
/// is no route's pattern, no route took it.
fn pattern<'a>(req: &'a HttpRequest, buffer: &'a mut [u8; MAX_PATTERN_BYTES]) -> Option<&'a str> {
    let info = req.match_info();
    let path = info.as_str();
    if info.is_empty() {
        return Some(path);
    }
    let (mut at, mut length) = (0, 0);
    let mut push = |text: &str| {
        let place = buffer.get_mut(length..length + text.len())?;
        place.copy_from_slice(text.as_bytes());
        length += text.len();
        Some(())
    };
    for (name, value) in info.iter() {
        // Values are parts of the path.
        let from = (value.as_ptr() as usize).checked_sub(path.as_ptr() as usize)?;
        push(path.get(at..from)?)?;
        push("{")?;
        push(name)?;
        push("}")?;
        at = from + value.len();
    }
    push(path.get(at..)?)?;
    std::str::from_utf8(&buffer[..length]).ok()
}
