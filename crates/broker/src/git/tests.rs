//! Paths, headers and lists of git calls.

use domain::git::CloneSource;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};

use super::paths::{GitRequest, moved, url};
use super::{GitOperation, headers, large_files};

fn host(base: &str) -> CloneSource {
    CloneSource {
        url: base.parse().unwrap(),
        username: "oauth2".to_owned(),
        token: Some("glpat-real".into()),
    }
}

/// Purpose and repository.
type Meaning = Option<(GitOperation, &'static str)>;

/// Method, path, query, meaning.
const PATHS: &[(&str, &str, &str, Meaning)] = &[
    (
        "GET",
        "o/r.git/info/refs",
        "service=git-upload-pack",
        Some((GitOperation::Read, "o/r")),
    ),
    (
        "GET",
        "o/r.git/info/refs",
        "service=git-receive-pack",
        Some((GitOperation::PushBegin, "o/r")),
    ),
    (
        "GET",
        "a/b/c/r/info/refs",
        "service=git-upload-pack",
        Some((GitOperation::Read, "a/b/c/r")),
    ),
    (
        "GET",
        "org/My%20project/_git/r/info/refs",
        "service=git-upload-pack",
        Some((GitOperation::Read, "org/My%20project/_git/r")),
    ),
    (
        "POST",
        "o/r.git/git-upload-pack",
        "",
        Some((GitOperation::Read, "o/r")),
    ),
    (
        "POST",
        "o/r.git/git-receive-pack",
        "",
        Some((GitOperation::Push, "o/r")),
    ),
    (
        "POST",
        "o/r.git/info/lfs/objects/batch",
        "",
        Some((GitOperation::ListOfLargeFiles, "o/r")),
    ),
    (
        "GET",
        "o/r.git/info/lfs/objects/0f",
        "",
        Some((GitOperation::ReadLargeFile, "o/r")),
    ),
    (
        "PUT",
        "o/r.git/gitlab-lfs/objects/0f/12",
        "",
        Some((GitOperation::WriteLargeFile, "o/r")),
    ),
    (
        "POST",
        "o/r.git/info/lfs/verify",
        "",
        Some((GitOperation::WriteLargeFile, "o/r")),
    ),
    (
        "GET",
        "o/r.git/info/lfs/locks",
        "path=a&limit=1",
        Some((GitOperation::ReadLargeFile, "o/r")),
    ),
    (
        "POST",
        "o/r.git/info/lfs/locks/7/unlock",
        "",
        Some((GitOperation::WriteLargeFile, "o/r")),
    ),
    // The older protocol, and other pages and APIs.
    ("GET", "o/r.git/info/refs", "", None),
    (
        "GET",
        "o/r.git/info/refs",
        "service=git-upload-archive",
        None,
    ),
    (
        "GET",
        "o/r.git/info/refs",
        "service=git-upload-pack&x=1",
        None,
    ),
    ("GET", "o/r.git/HEAD", "", None),
    ("GET", "o/r.git/objects/info/packs", "", None),
    ("GET", "api/v4/user", "", None),
    ("POST", "api/graphql", "", None),
    ("GET", "o/r/settings", "", None),
    ("DELETE", "o/r.git/info/lfs/locks/7", "", None),
    ("POST", "o/r.git/git-upload-pack", "x=1", None),
    ("POST", "git-upload-pack", "", None),
    ("GET", "info/lfs/objects/0f", "", None),
    // Paths that lead elsewhere once they are decoded.
    ("GET", "o/../api/v4/user/info/lfs/objects/0f", "", None),
    ("GET", "o/%2e%2e/api/info/lfs/objects/0f", "", None),
    ("GET", "o/%2E./api/info/lfs/objects/0f", "", None),
    ("GET", "o/%252e%252e/api/info/lfs/objects/0f", "", None),
    ("GET", "o/r%2f..%2fapi/info/lfs/objects/0f", "", None),
    ("GET", "o/r%5c..%5capi/info/lfs/objects/0f", "", None),
    ("GET", "o/r%00/info/lfs/objects/0f", "", None),
    ("GET", "o//info/lfs/objects/0f", "", None),
    (
        "GET",
        "o/r.git/info/lfs/objects/0f/../../../../../api",
        "",
        None,
    ),
    ("GET", "", "", None),
];

#[test]
fn only_paths_of_git_and_large_files_pass() {
    for (method, path, query, expected) in PATHS {
        let read = GitRequest::parse(method, path, query);
        let read = read
            .as_ref()
            .map(|request| (request.operation, request.repository()));
        assert_eq!(read, *expected, "{method} {path}?{query}");
    }
    let long = format!("o/{}/git-upload-pack", "r".repeat(5_000));
    assert_eq!(GitRequest::parse("POST", &long, ""), None);
}

#[test]
fn a_path_stays_below_the_base_of_its_host() {
    for (base, path, query, expected) in [
        (
            "https://github.com",
            "o/r.git/info/refs",
            "service=git-upload-pack",
            "https://github.com/o/r.git/info/refs?service=git-upload-pack",
        ),
        (
            "http://h:3000/forgejo/",
            "o/a%20b.git/git-upload-pack",
            "",
            "http://h:3000/forgejo/o/a%20b.git/git-upload-pack",
        ),
    ] {
        let found = url(&base.parse().unwrap(), path, query).unwrap();
        assert_eq!(found.as_str(), expected);
    }
}

#[test]
fn a_redirect_is_followed_through_the_service_within_its_host_only() {
    let at = host("https://git.acme.test/x");
    let service = "http://service/git/git.acme.test/x";
    for (to, expected) in [
        (
            "https://git.acme.test/x/new/r.git/info/refs",
            Some("/new/r.git/info/refs"),
        ),
        (
            "/x/new/r.git/info/refs?service=git-upload-pack",
            Some("/new/r.git/info/refs?service=git-upload-pack"),
        ),
        ("https://evil.test/x/r.git", None),
        ("https://git.acme.test.evil.test/x/r.git", None),
        ("https://git.acme.test@evil.test/x/r.git", None),
        ("http://git.acme.test/x/r.git", None),
        ("https://git.acme.test:8443/x/r.git", None),
        ("https://git.acme.test/y/r.git", None),
        ("https://git.acme.test/x/../y/r.git", None),
        ("//evil.test/x/r.git", None),
        ("not a url\u{0}", None),
    ] {
        let found = moved(&at, service, to);
        let expected = expected.map(|rest| format!("{service}{rest}"));
        assert_eq!(found, expected, "{to}");
    }
}

#[test]
fn only_listed_headers_pass_with_the_credentials_of_the_host() {
    let given = |name: &str, value: &str| (name.to_owned(), value.as_bytes().to_vec());
    let all = [
        given("X-Access-Token", "gb_token"),
        given("Authorization", "Basic b3duOm93bg=="),
        given("Cookie", "a=b"),
        given("Host", "elsewhere"),
        given("Transfer-Encoding", "chunked"),
        given("Content-Length", "7"),
        given("Git-Protocol", "version=2"),
        given("Content-Type", "application/x-git-upload-pack-request"),
        given("User-Agent", "git/2.39"),
    ];
    let credentials = headers::credentials(&host("https://h"));
    assert_eq!(
        credentials.as_deref(),
        Some("Basic b2F1dGgyOmdscGF0LXJlYWw=")
    );
    let passed = headers::of_call(credentials.as_deref(), &all).unwrap();
    let mut names: Vec<&str> = passed.keys().map(HeaderName::as_str).collect();
    names.sort_unstable();
    let expected = [
        "authorization",
        "content-type",
        "git-protocol",
        "user-agent",
    ];
    assert_eq!(names, expected);
    assert_eq!(passed["authorization"], "Basic b2F1dGgyOmdscGF0LXJlYWw=");
    assert!(
        headers::of_call(None, &all)
            .unwrap()
            .get("authorization")
            .is_none()
    );
    let broken = given("git-protocol", "a\r\nx: b");
    assert!(headers::of_call(None, &[broken]).is_none());
}

#[test]
fn no_header_of_a_host_asks_for_a_password_or_sets_a_cookie() {
    let mut headers = HeaderMap::new();
    for name in [
        "set-cookie",
        "www-authenticate",
        "lfs-authenticate",
        "location",
        "content-type",
    ] {
        headers.insert(name, HeaderValue::from_static("1"));
    }
    let passed = headers::of_answer(&headers);
    let names: Vec<&str> = passed.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["content-type"]);
}

#[test]
fn a_list_of_large_files_names_the_service_and_repeats_no_credentials() {
    let credentials = "Basic b2F1dGgyOmdscGF0LXJlYWw=";
    let list = json!({"transfer": "basic", "objects": [
        {"oid": "0f", "size": 3, "actions": {
            "download": {"href": "https://h/o/r.git/info/lfs/objects/0f", "header": {
                "Authorization": "RemoteAuth short", "Accept": "application/vnd.git-lfs"}},
            "verify": {"href": "https://h/o/r.git/info/lfs/verify", "header": {"authorization": credentials}}}},
        {"oid": "1f", "actions": {
            "upload": {"href": "https://storage.test/1f?signature=s", "header": {
                "Authorization": "AWS4 signed", "x-amz": "1"}},
            "download": {"href": "https://storage.test/1f", "header": {"Authorization": credentials}}}},
        {"oid": "2f", "error": {"code": 404, "message": "gone"}},
    ]});
    let changed = large_files::through_the_service(
        list.to_string().as_bytes(),
        &"https://h/".parse().unwrap(),
        "http://service/git/h",
        Some(credentials),
    );
    let changed: Value = serde_json::from_slice(&changed.unwrap()).unwrap();
    let expected = json!({"transfer": "basic", "objects": [
        {"oid": "0f", "size": 3, "actions": {
            "download": {"href": "http://service/git/h/o/r.git/info/lfs/objects/0f", "header": {
                "Accept": "application/vnd.git-lfs"}},
            "verify": {"href": "http://service/git/h/o/r.git/info/lfs/verify", "header": {}}}},
        {"oid": "1f", "actions": {
            "upload": {"href": "https://storage.test/1f?signature=s", "header": {
                "Authorization": "AWS4 signed", "x-amz": "1"}},
            "download": {"href": "https://storage.test/1f", "header": {}}}},
        {"oid": "2f", "error": {"code": 404, "message": "gone"}},
    ]});
    assert_eq!(changed, expected);
    for broken in [
        "",
        "[",
        "5",
        "null",
        "{\"objects\": 5}",
        "{\"objects\": [5, {\"actions\": {\"a\": 5}}]}",
    ] {
        let base = "https://h/".parse().unwrap();
        let _ = large_files::through_the_service(broken.as_bytes(), &base, "http://s", None);
    }
}
