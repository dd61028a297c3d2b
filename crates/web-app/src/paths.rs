//! Which paths belong to the web application. Pure; the tables in this file are the whole policy.

/// First segments of paths of the service and of agent servers: no page of the web application is below them.
const SERVICE_SEGMENTS: [&str; 17] = [
    "alive",
    "api",
    "app-backends",
    "console",
    "docs",
    "health",
    "invite",
    "login",
    "logout",
    "metrics",
    "password",
    "ready",
    "redoc",
    "s",
    "server_info",
    "sockets",
    "v1",
];

/// Paths of the service whose first segment also has pages.
const SERVICE_PATHS: [&str; 3] = ["/mcp/mcp", "/oauth/device/authorize", "/oauth/device/token"];

/// Pages that the package expects from its host: it links to them, and its router does not have them.
const HOST_PAGES: [&str; 4] = ["/login", "/logout", "/settings", "/settings/skills"];

/// Folders of such pages.
const HOST_PAGE_FOLDERS: [&str; 2] = ["/invite", "/password"];

/// The folder of files whose names contain a hash of their content.
const HASHED_FILES: &str = "/assets/";

/// What a path is for the web application, if it names no file of the build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathUse {
    /// A page: the router in `index.html` shows it.
    Page,
    /// A page that the package leaves to the service.
    HostPage,
    /// Not the web application's.
    Other,
}

impl PathUse {
    /// Classifies a path, given as it stands in the request. Call it for paths without a route and without a file.
    #[must_use]
    pub fn of(path: &str) -> Self {
        let path = match path.trim_end_matches('/') {
            "" => "/",
            trimmed => trimmed,
        };
        if HOST_PAGES.contains(&path) || HOST_PAGE_FOLDERS.iter().any(|it| is_below(path, it)) {
            return Self::HostPage;
        }
        let first = path.split('/').nth(1).unwrap_or_default();
        let is_of_service =
            SERVICE_SEGMENTS.contains(&first) || SERVICE_PATHS.iter().any(|it| is_below(path, it));
        // A missing file must not be a page: a stale tab would load it as a module.
        if is_of_service || path.starts_with(HASHED_FILES) || has_extension(path) {
            return Self::Other;
        }
        Self::Page
    }

    /// Whether a file at this path never changes.
    #[must_use]
    pub fn is_immutable(path: &str) -> bool {
        path.starts_with(HASHED_FILES)
    }
}

fn is_below(path: &str, place: &str) -> bool {
    path.strip_prefix(place)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn has_extension(path: &str) -> bool {
    let last = path.rsplit('/').next().unwrap_or_default();
    last.contains('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_pages_or_of_others() {
        let pages = [
            "/",
            "/conversations",
            "/conversations/123e4567-e89b-12d3-a456-426614174000",
            "/launch",
            "/mcp",
            "/skills",
            "/settings/llm",
            "/settings/app",
            "/oauth/device/verify",
            "/automations/new/x",
            "/shared/conversations/x",
            "/apis",
        ];
        let host_pages = [
            "/login",
            "/logout",
            "/settings",
            "/settings/",
            "/settings/skills",
            "/settings/skills/",
            "/invite/x",
            "/invite",
            "/password/reset/x",
        ];
        let others = [
            "/api",
            "/api/x",
            "/api/v1/unknown",
            "/console/x",
            "/s/a/b",
            "/v1/models",
            "/v1",
            "/mcp/mcp",
            "/mcp/mcp/x",
            "/sockets/events/x",
            "/assets/missing",
            "/assets/x.js",
            "/favicon.png",
            "/conversations/x.js",
            "/.env",
            "/oauth/device/token",
        ];
        for (paths, expected) in [
            (&pages[..], PathUse::Page),
            (&host_pages, PathUse::HostPage),
            (&others, PathUse::Other),
        ] {
            for path in paths {
                assert_eq!(PathUse::of(path), expected, "{path}");
            }
        }
        assert!(PathUse::is_immutable("/assets/a.js") && !PathUse::is_immutable("/a.js"));
    }
}
