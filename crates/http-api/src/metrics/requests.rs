//! Counts requests by method and route. Every route has its counters from the start, so counting costs a look-up and some
//! additions, and a path outside the routes never becomes a label.

use std::collections::HashMap;
use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::http::{Method, StatusCode};
use domain::metrics::{Counter, DurationHistogram, Gauge};

/// The label of requests that matched no route.
const UNMATCHED_ROUTE: &str = "unmatched";
/// The label of requests that were forwarded to agent servers.
const FORWARDED_ROUTE: &str = "gateway";
/// The method label of both.
const ANY_METHOD: &str = "ANY";
const STATUS_CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

#[derive(Debug, Default)]
pub(crate) struct RequestMetrics {
    /// By path pattern, then by method.
    routes: HashMap<String, Vec<(Method, RouteMetrics)>>,
    unmatched: RouteMetrics,
    forwarded: RouteMetrics,
    pub(crate) in_flight: Gauge,
}

#[derive(Debug, Default)]
pub(crate) struct RouteMetrics {
    classes: [Counter; STATUS_CLASSES.len()],
    pub(crate) durations: DurationHistogram,
}

impl RouteMetrics {
    fn record(&self, status: StatusCode, took: Duration) {
        let class = usize::from(status.as_u16() / 100).clamp(1, STATUS_CLASSES.len()) - 1;
        self.classes[class].add(1);
        self.durations.record(took);
    }

    /// The number of responses by status class; only classes that occurred.
    pub(crate) fn answers(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = STATUS_CLASSES.iter().zip(&self.classes);
        counts
            .map(|(class, count)| (*class, count.get()))
            .filter(|(_, count)| *count > 0)
    }
}

impl RequestMetrics {
    pub(crate) fn of<'a>(routes: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let mut known: HashMap<_, Vec<_>> = HashMap::new();
        for (method, pattern) in routes {
            if let Ok(method) = method.to_ascii_uppercase().parse() {
                let methods = known.entry(pattern.to_owned()).or_default();
                // Most paths have one method; a vector would reserve space for four.
                methods.reserve_exact(1);
                methods.push((method, RouteMetrics::default()));
            }
        }
        Self {
            routes: known,
            ..Self::default()
        }
    }

    pub(crate) fn record(&self, req: &HttpRequest, status: StatusCode, took: Duration) {
        let route = pattern(req).and_then(|pattern| {
            let methods = self.routes.get(&pattern)?;
            methods.iter().find(|(method, _)| method == req.method())
        });
        route
            .map_or(&self.unmatched, |(_, route)| route)
            .record(status, took);
    }

    /// The pattern of the route that handled this request.
    pub(crate) fn route_of(&self, req: &HttpRequest) -> Option<&str> {
        let (known, _) = self.routes.get_key_value(&pattern(req)?)?;
        Some(known)
    }

    /// Counts a response of an agent server.
    pub(crate) fn record_forwarded(&self, status: StatusCode, took: Duration) {
        self.forwarded.record(status, took);
    }

    /// Counts a response without a route: it was sent before routing, or the request is consumed.
    pub(crate) fn record_unmatched(&self, status: StatusCode, took: Duration) {
        self.unmatched.record(status, took);
    }

    /// All routes that had a request, with method and pattern.
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

/// The pattern of the route that handled this request. Actix would match all routes again to find it.
fn pattern(req: &HttpRequest) -> Option<String> {
    let path = req.match_info().as_str();
    let (mut pattern, mut at) = (String::with_capacity(path.len()), 0);
    for (name, value) in req.match_info().iter() {
        // Values are slices of the path.
        let from = (value.as_ptr() as usize).checked_sub(path.as_ptr() as usize)?;
        pattern.push_str(path.get(at..from)?);
        pattern.extend(["{", name, "}"]);
        at = from + value.len();
    }
    pattern.push_str(path.get(at..)?);
    Some(pattern)
}
