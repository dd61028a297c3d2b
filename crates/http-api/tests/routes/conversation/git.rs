//! The git routes; see `docs/reference/wire/git.md`.

use domain::git::GitProvider;
use domain::git::{
    GitBranch, GitError, GitRepository, GitUser, OwnerType, SuggestedTask, SuggestedTaskType,
};
use serde_json::{Value, json};
use store_memory::FakeProvider;

use crate::fixture::{ADA, BOB, World};

const REPOSITORIES: &str = "/api/v1/git/repositories/search?provider=github";
const BRANCHES: &str = "/api/v1/git/branches/search?provider=github&repository=o/r&query=";
const INSTALLATIONS: &str = "/api/v1/git/installations/search?provider=github";
const TASKS: &str = "/api/v1/git/suggested-tasks/search";
const INFO: &str = "/api/v1/users/git-info";

fn repository(number: usize) -> GitRepository {
    GitRepository {
        id: number.to_string(),
        full_name: format!("o/r{number}"),
        git_provider: GitProvider::Github,
        is_public: true,
        stargazers_count: Some(3),
        pushed_at: Some("2026-01-02T03:04:05Z".into()),
        owner_type: Some(OwnerType::Organization),
        main_branch: Some("main".into()),
    }
}

fn task(provider: GitProvider, number: i64) -> SuggestedTask {
    SuggestedTask {
        git_provider: provider,
        task_type: SuggestedTaskType::OpenIssue,
        repo: "o/r".into(),
        issue_number: number,
        title: format!("Task {number}"),
    }
}

fn user(login: &str) -> GitUser {
    GitUser {
        id: "7".into(),
        login: login.into(),
        avatar_url: "https://example.com/a.png".into(),
        company: None,
        name: Some("Ada".into()),
        email: None,
    }
}

fn failing(fault: fn(GitProvider) -> GitError) -> FakeProvider {
    FakeProvider {
        fault: Some(fault),
        ..FakeProvider::default()
    }
}

/// Gives Ada tokens of these providers, each named after its provider.
async fn connected(providers: &[GitProvider]) -> World {
    let world = World::idle().await;
    let tokens = providers.iter().map(|provider| {
        let token = json!({"token": format!("{provider}-token")});
        (provider.to_string(), token)
    });
    let tokens: serde_json::Map<String, Value> = tokens.collect();
    let body = json!({"provider_tokens": tokens});
    let stored = world
        .post(ADA, "/api/v1/secrets/git-providers", &body)
        .await;
    stored.ok();
    world
}

#[actix_web::test]
async fn a_token_is_required_and_parameters_are_validated_first() {
    let world = World::idle().await;
    for path in [REPOSITORIES, BRANCHES, INSTALLATIONS, TASKS] {
        let answer = world.get(ADA, path).await;
        answer.refuses(403, "Git provider token required (such as GitHub).");
        assert_eq!(world.get("aw_wrong", path).await.status, 401, "{path}");
    }
    world
        .get(ADA, INFO)
        .await
        .refuses(403, "Git provider not connected");
    for (path, kind, place) in [
        ("/api/v1/git/repositories/search", "missing", "provider"),
        (
            "/api/v1/git/repositories/search?provider=svn",
            "enum",
            "provider",
        ),
        (
            "/api/v1/git/repositories/search?provider=github&sort_order=stars",
            "enum",
            "sort_order",
        ),
        (
            "/api/v1/git/repositories/search?provider=github&limit=0",
            "greater_than",
            "limit",
        ),
        (
            "/api/v1/git/repositories/search?provider=github&limit=101",
            "less_than_equal",
            "limit",
        ),
        (
            "/api/v1/git/branches/search?provider=github&repository=o/r",
            "missing",
            "query",
        ),
        (
            "/api/v1/git/branches/search?provider=github&query=",
            "missing",
            "repository",
        ),
        (
            "/api/v1/git/installations/search?provider=github&limit=x",
            "int_parsing",
            "limit",
        ),
        (
            "/api/v1/git/suggested-tasks/search?limit=101",
            "less_than_equal",
            "limit",
        ),
    ] {
        let answer = world.get(ADA, path).await;
        assert_eq!(answer.status, 422, "{path}: {}", answer.text);
        let first = &answer.json()["detail"][0];
        assert_eq!(
            (&first["type"], &first["loc"]),
            (&json!(kind), &json!(["query", place]))
        );
    }
    let sorted = world
        .get(ADA, &format!("{REPOSITORIES}&sort_order=stars"))
        .await
        .json();
    let expected = "Input should be 'stars-desc', 'stars-asc', 'forks-desc', 'forks-asc', 'updated-desc' or 'updated-asc'";
    assert_eq!(sorted["detail"][0]["msg"], expected);
}

#[actix_web::test]
async fn repositories_in_pages() {
    let world = connected(&[GitProvider::Github]).await;
    let has = FakeProvider {
        repositories: (0..5).map(repository).collect(),
        ..FakeProvider::default()
    };
    world.git.set(GitProvider::Github, has);
    let first = world
        .get(ADA, &format!("{REPOSITORIES}&limit=2"))
        .await
        .ok();
    let expected = json!({"id": "0", "full_name": "o/r0", "git_provider": "github", "is_public": true,
        "stargazers_count": 3, "link_header": null, "pushed_at": "2026-01-02T03:04:05Z",
        "owner_type": "organization", "main_branch": "main"});
    assert_eq!(first["items"][0].to_string(), expected.to_string());
    let (mut seen, mut next) = (2, first["next_page_id"].clone());
    while let Some(token) = next.as_str() {
        let page = world
            .get(ADA, &format!("{REPOSITORIES}&limit=2&page_id={token}"))
            .await
            .ok();
        seen += page["items"].as_array().unwrap().len();
        next = page["next_page_id"].clone();
    }
    assert_eq!(seen, 5);
    let found = world
        .get(
            ADA,
            &format!("{REPOSITORIES}&query=r3&sort_order=stars-asc"),
        )
        .await
        .ok();
    assert_eq!(found["items"][0]["full_name"], "o/r3");
    let unsorted = world
        .get(ADA, &format!("{REPOSITORIES}&sort_order=stars-asc"))
        .await;
    assert_eq!(unsorted.status, 400, "{}", unsorted.text);
    let foreign = world
        .get(ADA, &format!("{REPOSITORIES}&page_id=not-ours"))
        .await;
    assert_eq!(foreign.status, 422);
    assert_eq!(
        foreign.json()["detail"][0]["loc"],
        json!(["query", "page_id"])
    );
    let calls = world.git.calls();
    assert!(
        calls
            .iter()
            .all(|call| *call == (GitProvider::Github, "github-token".into()))
    );
    // Bob has no token.
    assert_eq!(world.get(BOB, REPOSITORIES).await.status, 403);
}

#[actix_web::test]
async fn branches_and_installations() {
    let world = connected(&[GitProvider::Github, GitProvider::Gitlab]).await;
    let branch = |name: &str| GitBranch {
        name: name.into(),
        commit_sha: "abc".into(),
        protected: true,
        last_push_date: None,
    };
    let has = FakeProvider {
        branches: vec![branch("main"), branch("feature/x")],
        installations: Some(vec!["1".into(), "2".into()]),
        ..FakeProvider::default()
    };
    world.git.set(GitProvider::Github, has);
    world.git.set(GitProvider::Gitlab, FakeProvider::default());
    let found = world.get(ADA, &format!("{BRANCHES}feat")).await.ok();
    let expected = json!({"items": [{"name": "feature/x", "commit_sha": "abc", "protected": true,
        "last_push_date": null}], "next_page_id": null});
    assert_eq!(found.to_string(), expected.to_string());
    let installations = world.get(ADA, INSTALLATIONS).await.ok();
    assert_eq!(
        installations,
        json!({"items": ["1", "2"], "next_page_id": null})
    );
    let none = world
        .get(ADA, "/api/v1/git/installations/search?provider=gitlab")
        .await;
    none.refuses(400, "Provider gitlab doesn't support installations");
    let other = world
        .get(ADA, "/api/v1/git/repositories/search?provider=forgejo")
        .await;
    other.refuses(403, "Git provider token required (of forgejo).");
}

/// Creates a provider's error.
type MakeGitError = fn(GitProvider) -> GitError;

#[actix_web::test]
async fn provider_errors_are_not_server_errors() {
    let world = connected(&[GitProvider::Github]).await;
    let provider = GitProvider::Github;
    world
        .git
        .set(provider, failing(|provider| GitError::Denied { provider }));
    for path in [REPOSITORIES, BRANCHES, INSTALLATIONS] {
        let answer = world.get(ADA, path).await;
        assert_eq!(
            (answer.status, answer.text.as_str()),
            (401, "\"Invalid github token\"")
        );
    }
    let info = world.get(ADA, INFO).await;
    assert_eq!(
        (info.status, info.text.as_str()),
        (401, "\"Need valid provider token\"")
    );
    let table: [(MakeGitError, u16); 6] = [
        (|provider| GitError::NotFound { provider }, 404),
        (
            |provider| GitError::InvalidRepository {
                provider,
                expected: "owner/repository",
            },
            400,
        ),
        (
            |provider| GitError::Forbidden {
                provider,
                reason: "why".into(),
            },
            400,
        ),
        (
            |provider| GitError::Limited {
                provider,
                retry_after: Some(9),
            },
            429,
        ),
        (
            |provider| GitError::Unavailable {
                provider,
                source: "hush".into(),
            },
            502,
        ),
        (|_| GitError::InvalidPageToken, 422),
    ];
    for (fault, status) in table {
        world.git.set(provider, failing(fault));
        let answer = world.get(ADA, REPOSITORIES).await;
        assert_eq!(answer.status, status, "{}", answer.text);
        assert!(answer.json().get("detail").is_some() && !answer.text.contains("hush"));
    }
}

#[actix_web::test]
async fn tasks_of_all_providers_that_answer() {
    use GitProvider::{Bitbucket, Forgejo, Github, Gitlab};
    let world = connected(&[Github, Gitlab, Forgejo, Bitbucket]).await;
    let with = |provider| FakeProvider {
        tasks: (1..=2).map(|number| task(provider, number)).collect(),
        ..FakeProvider::default()
    };
    world.git.set(Github, with(Github));
    world
        .git
        .set(Gitlab, failing(|provider| GitError::Denied { provider }));
    world.git.set(Forgejo, with(Forgejo));
    world.git.set(
        Bitbucket,
        failing(|provider| GitError::Unavailable {
            provider,
            source: "x".into(),
        }),
    );
    let all = world.get(ADA, TASKS).await.ok();
    let expected = json!({"git_provider": "github", "task_type": "OPEN_ISSUE", "repo": "o/r", "issue_number": 1,
        "title": "Task 1"});
    assert_eq!(all["items"][0].to_string(), expected.to_string());
    assert_eq!(all["items"].as_array().unwrap().len(), 4);
    let first = world.get(ADA, &format!("{TASKS}?limit=3")).await.ok();
    let next = first["next_page_id"].as_str().unwrap();
    let last = world
        .get(ADA, &format!("{TASKS}?limit=3&page_id={next}"))
        .await
        .ok();
    assert_eq!(last["items"][0], all["items"][3]);
    assert_eq!(last["next_page_id"], Value::Null);
    let foreign = world.get(ADA, &format!("{TASKS}?page_id=Mg")).await;
    assert_eq!(foreign.status, 422);
}

#[actix_web::test]
async fn the_first_provider_with_a_valid_token_returns_the_user() {
    use GitProvider::{Forgejo, Github, Gitlab};
    let world = connected(&[Github, Gitlab, Forgejo]).await;
    world
        .git
        .set(Github, failing(|provider| GitError::Denied { provider }));
    for (provider, login) in [(Gitlab, "ada-gl"), (Forgejo, "ada-fj")] {
        let has = FakeProvider {
            user: Some(user(login)),
            ..FakeProvider::default()
        };
        world.git.set(provider, has);
    }
    let info = world.get(ADA, INFO).await.ok();
    let expected = json!({"id": "7", "login": "ada-gl", "avatar_url": "https://example.com/a.png",
        "company": null, "name": "Ada", "email": null});
    assert_eq!(info.to_string(), expected.to_string());
    for provider in [Gitlab, Forgejo] {
        let fault = |provider| GitError::Unavailable {
            provider,
            source: "x".into(),
        };
        world.git.set(provider, failing(fault));
    }
    assert_eq!(world.get(ADA, INFO).await.status, 502);
}
