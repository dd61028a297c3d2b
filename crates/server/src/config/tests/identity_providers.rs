//! Tables `[[auth.oidc]]`.

use super::{CANARY, load};

/// A file with one provider.
const PROVIDER: &str = "[auth]\nmode = 'accounts'\n[[auth.oidc]]\nname = 'corp'\nissuer = 'https://login.example/realms/a'\n\
                client_id = 'w'\nclient_secret = 'canary-7f3a'\nnew_users = 'domains'\nnew_user_domains = ['X.example']\n";

#[test]
fn identity_providers_are_numbered_tables() {
    let variables = [
        ("WORKSPACE_AUTH__OIDC__0__CLIENT_ID", "other"),
        ("WORKSPACE_AUTH__OIDC__1__NAME", "lab"),
        ("WORKSPACE_AUTH__OIDC__1__ISSUER", "http://127.0.0.1:9"),
        ("WORKSPACE_AUTH__OIDC__1__CLIENT_ID", "w"),
        ("WORKSPACE_AUTH__OIDC__1__CLIENT_SECRET", CANARY),
    ];
    let config = load(Some(PROVIDER), &variables).unwrap();
    let all = &config.auth.oidc;
    let names: Vec<_> = all
        .iter()
        .map(|it| (it.name.as_str(), it.label.as_str()))
        .collect();
    assert_eq!(names, [("corp", "Corp"), ("lab", "Lab")]);
    assert_eq!(all[0].client_id, "other");
    assert_eq!(all[1].scopes, ["profile", "email"]);
    let shown = format!("{config:?}\n{}", config.as_toml());
    assert!(!shown.contains(CANARY), "{shown}");
    assert!(config.as_toml().contains("[[auth.oidc]]"), "{shown}");
    let printed = config.as_toml().replace(settings::REDACTED, "s3cret");
    assert_eq!(load(Some(&printed), &[]).unwrap().auth.oidc.len(), 2);
}

#[test]
fn problems_of_identity_providers_name_their_key() {
    for (text, variables, expected) in [
        (
            PROVIDER,
            vec![("WORKSPACE_AUTH__OIDC__1__NAME", "lab")],
            "`issuer` is required",
        ),
        (
            PROVIDER,
            vec![("WORKSPACE_AUTH__OIDC__0__NAME", "A b")],
            "lower-case letters",
        ),
        (
            PROVIDER,
            vec![("WORKSPACE_AUTH__OIDC__0__ISSUER", "http://login.example")],
            "https URL",
        ),
        (
            PROVIDER,
            vec![("WORKSPACE_AUTH__OIDC__0__NAMES", "x")],
            "WORKSPACE_AUTH__OIDC__0__NAME`",
        ),
        (
            PROVIDER,
            vec![("WORKSPACE_AUTH__OIDC__ISSUER", "https://x.example")],
            "unknown variable",
        ),
        (
            PROVIDER,
            vec![("WORKSPACE_AUTH__MODE", "api_key")],
            "must be `accounts`",
        ),
        (
            "[auth.oidc]\nname = 'x'\n",
            vec![],
            "under a line [[auth.oidc]]",
        ),
        (
            PROVIDER,
            vec![("WORKSPACE_AUTH__OIDC__0__NEW_USERS", "everyone")],
            "closed, domains or open",
        ),
    ] {
        let error = load(Some(text), &variables).unwrap_err();
        assert!(
            error.contains(expected) && !error.contains(CANARY),
            "{error}"
        );
    }
}
