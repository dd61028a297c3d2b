use secrecy::ExposeSecret;
use serde_json::{Value, json};

use super::super::secret::{MASK, SecretVisibility};
use super::*;

const VALUES: &str = "https://llm.example/v1";

fn with(llm: Value) -> SaveProfile {
    let Value::Object(llm) = llm else { panic!() };
    SaveProfile {
        llm: Some(llm),
        ..SaveProfile::default()
    }
}

fn saved(settings: Settings, name: &str, input: &SaveProfile) -> Settings {
    save::save(settings, name, input).unwrap()
}

fn refused(settings: Settings, llm: Value) -> Vec<(String, &'static str)> {
    match save::save(settings, "p", &with(llm)) {
        Err(ProfileRefusal::Invalid(issues)) => {
            let issue = |i: &Issue| (i.at.join("."), i.kind.code());
            issues.iter().map(issue).collect()
        }
        other => panic!("{other:?}"),
    }
}

/// Name, model, own endpoint and own key of all.
fn shown(settings: &Settings) -> Vec<(String, String, Option<String>, Option<String>)> {
    let key = |p: &Profile| p.agent.llm_api_key().map(|k| k.expose_secret().to_owned());
    let all = settings.profiles.iter();
    all.map(|p| {
        let url = p.base_url().map(str::to_owned);
        (p.name().to_owned(), p.model(), url, key(p))
    })
    .collect()
}

fn key_in_force(settings: &Settings) -> Option<&str> {
    settings
        .agent
        .llm_api_key()
        .map(ExposeSecret::expose_secret)
}

/// Two profiles, of two vendors.
fn two() -> Settings {
    let s = saved(
        Settings::default(),
        "a",
        &with(json!({"model": "openai/gpt-5", "api_key": "ka"})),
    );
    let b = json!({"model": "anthropic/claude", "api_key": "kb", "base_url": VALUES, "temperature": 0.5});
    saved(s, "b", &with(b))
}

#[test]
fn a_profile_is_put_in_force_whole() {
    let s = two().with_active("b").unwrap();
    assert_eq!(s.profiles.active(), Some("b"));
    assert_eq!(s.agent.llm_model(), Some("anthropic/claude"));
    assert_eq!(s.agent.llm_base_url(), Some(VALUES));
    assert_eq!(s.agent.effective("llm.temperature"), 0.5);
    assert_eq!(key_in_force(&s), Some("kb"));
    let s = s.with_active("a").unwrap();
    assert_eq!(s.agent.llm_base_url(), None);
    assert_eq!(s.agent.effective("llm.temperature"), Value::Null);
    assert_eq!(key_in_force(&s), Some("ka"));
    assert!(two().with_active("c").is_none());
}

#[test]
fn a_profile_without_a_key_keeps_the_key_of_the_same_destination_only() {
    let s = two().with_active("a").unwrap();
    let s = saved(s, "same", &with(json!({"model": "gpt-4.1"})));
    let s = saved(s, "vendor", &with(json!({"model": "anthropic/claude"})));
    let s = saved(
        s,
        "place",
        &with(json!({"model": "openai/gpt-5", "base_url": VALUES})),
    );
    for (name, key) in [("same", Some("ka")), ("vendor", None), ("place", None)] {
        let s = s.clone().with_active(name).unwrap();
        assert_eq!(key_in_force(&s), key, "{name}");
        let mut settled = s.clone();
        settled.reconcile_profiles();
        assert_eq!(settled.profiles.active(), Some(name));
    }
}

#[test]
fn the_active_profile_is_the_one_in_force() {
    let mut s = two().with_active("a").unwrap();
    s.reconcile_profiles();
    assert_eq!(s.profiles.active(), Some("a"));
    let change = json!({"llm": {"temperature": 0.1}});
    super::super::fields::AGENT.merge(
        &mut s.agent.overlay,
        change.as_object().unwrap(),
        &mut |_, _| Ok(()),
    );
    s.reconcile_profiles();
    assert_eq!(s.profiles.active(), None);
    // Saved over what is in force, it is not what is in force.
    let s = two().with_active("a").unwrap();
    let s = saved(s, "a", &with(json!({"model": "openai/gpt-5-mini"})));
    assert_eq!(s.profiles.active(), None);
    assert_eq!(s.agent.llm_model(), Some("openai/gpt-5"));
}

#[test]
fn the_configuration_in_force_is_saved_with_its_key_or_without() {
    let s = two().with_active("b").unwrap();
    let s = saved(s, "copy", &SaveProfile::default());
    let bare = SaveProfile {
        include_secrets: false,
        ..SaveProfile::default()
    };
    let s = saved(s, "bare", &bare);
    let model = "anthropic/claude".to_owned();
    let url = Some(VALUES.to_owned());
    let all = shown(&s);
    assert_eq!(
        all[2],
        ("copy".into(), model.clone(), url.clone(), Some("kb".into()))
    );
    assert_eq!(all[3], ("bare".into(), model, url, None));
    let fresh = saved(Settings::default(), "d", &SaveProfile::default());
    assert_eq!(
        shown(&fresh)[0].1,
        "gpt-5.5",
        "the default of today is written down"
    );
}

#[test]
fn keys_stay_while_they_are_not_named() {
    let key = |llm: Value| {
        let s = saved(two(), "a", &with(llm));
        shown(&s)[0].3.clone()
    };
    let model = "openai/gpt-5";
    assert_eq!(key(json!({"model": model})).as_deref(), Some("ka"));
    assert_eq!(
        key(json!({"model": model, "api_key": null})).as_deref(),
        Some("ka")
    );
    assert_eq!(
        key(json!({"model": model, "api_key": MASK})).as_deref(),
        Some("ka")
    );
    assert_eq!(key(json!({"model": model, "api_key": ""})), None);
    assert_eq!(
        key(json!({"model": model, "api_key": "new"})).as_deref(),
        Some("new")
    );
    let new = saved(two(), "n", &with(json!({"model": model, "api_key": MASK})));
    assert_eq!(shown(&new)[2].3, None, "a mask is never stored");
    let preserving = SaveProfile {
        preserve_existing_api_key: true,
        ..SaveProfile::default()
    };
    let s = saved(two().with_active("b").unwrap(), "a", &preserving);
    assert_eq!(shown(&s)[0].1, "anthropic/claude");
    assert_eq!(shown(&s)[0].3.as_deref(), Some("ka"));
    // The key remembers whose it is, so it is not sent to another vendor.
    assert_eq!(
        s.profiles.list[0].agent.key_vendor.as_deref(),
        Some("openai")
    );
}

#[test]
fn a_shown_profile_can_be_saved_again() {
    let llm = json!({"model": "openai/gpt-5", "api_key": "k", "aws_secret_access_key": "aws",
        "extra_headers": {"X-Key": "h"}, "litellm_extra_body": {"token": "t", "n": 1}});
    let s = saved(Settings::default(), "p", &with(llm));
    let now = domain::clock::Timestamp::from_micros(0);
    let view = s.profiles.list[0].view(SecretVisibility::Hidden, now);
    assert_eq!(view["api_key"], Value::Null);
    assert_eq!(view["extra_headers"], json!({"X-Key": MASK}));
    assert!(!view.to_string().contains("aws\""));
    let before = s.profiles.to_json();
    let s = saved(s, "p", &with(view));
    let view = |json: &Value| json["list"][0]["secrets"].clone();
    assert_eq!(view(&s.profiles.to_json()), view(&before));
    let values = s.profiles.list[0].agent.llm_values().unwrap();
    assert_eq!(values["extra_headers"], json!({"X-Key": "h"}));
    assert_eq!(values["litellm_extra_body"], json!({"token": "t", "n": 1}));
}

#[test]
fn all_that_is_wrong_is_named() {
    let deep = (0..40).fold(json!(1), |inner, _| json!([inner]));
    for (llm, issues) in [
        (json!({}), vec![("llm.model", "missing")]),
        (json!({"model": " "}), vec![("llm.model", "value_error")]),
        (json!({"model": null}), vec![("llm.model", "string_type")]),
        (
            json!({"model": 5, "custom_header": "x", "temperature": "hot"}),
            vec![
                ("llm.custom_header", "extra_forbidden"),
                ("llm.model", "string_type"),
                ("llm.temperature", "float_parsing"),
            ],
        ),
        (
            json!({"model": "m", "api_key": 7}),
            vec![("llm.api_key", "string_type")],
        ),
        (
            json!({"model": "m", "litellm_extra_body": {"a": "x\u{0}"}}),
            vec![("llm.litellm_extra_body.a", "value_error")],
        ),
        (
            json!({"model": "m", "litellm_extra_body": {"a": deep}}),
            vec![("llm.litellm_extra_body", "value_error")],
        ),
    ] {
        let expected: Vec<(String, &str)> = issues
            .into_iter()
            .map(|(at, code)| (at.to_owned(), code))
            .collect();
        assert_eq!(refused(Settings::default(), llm.clone()), expected, "{llm}");
    }
}

#[test]
fn there_are_at_most_ten() {
    let llm = with(json!({"model": "m"}));
    let s =
        (0..MAX_PROFILES_PER_USER).fold(Settings::default(), |s, n| saved(s, &n.to_string(), &llm));
    let more = save::save(s.clone(), "more", &llm);
    assert!(matches!(more, Err(ProfileRefusal::Full)));
    assert_eq!(
        saved(s, "3", &llm).profiles.list.len(),
        MAX_PROFILES_PER_USER
    );
}

#[test]
fn names_change_in_place_and_the_first_follows_the_active_one() {
    let s = two().with_active("a").unwrap();
    let s = rename(s, "a", "z").unwrap().unwrap();
    assert_eq!(s.profiles.active(), Some("z"));
    assert_eq!(shown(&s)[0].0, "z");
    assert!(rename(s.clone(), "z", "z").unwrap().is_none());
    let gone = ProfileRefusal::NotFound("a".into());
    assert_eq!(rename(s.clone(), "a", "x").unwrap_err(), gone);
    let taken = ProfileRefusal::NameTaken("b".into());
    assert_eq!(rename(s.clone(), "z", "b").unwrap_err(), taken);

    assert!(
        delete(s.clone(), "a").is_none(),
        "nothing to delete, nothing to store"
    );
    let s = delete(s, "z").unwrap();
    assert_eq!(s.profiles.active(), Some("b"));
    assert_eq!(s.agent.llm_model(), Some("anthropic/claude"));
    let s = delete(s, "b").unwrap();
    assert_eq!(s.profiles.active(), None);
    assert_eq!(
        s.agent.llm_model(),
        Some("anthropic/claude"),
        "what is in force stays"
    );
    let s = delete(two(), "b").unwrap();
    assert_eq!(s.profiles.active(), Some("a"), "the first one saved");
}

#[test]
fn unreadable_profiles_are_kept() {
    let stored = json!({"active": "p", "list": [5, {"name": "p", "llm": {"model": "m"}, "secrets": {"/llm/api_key": "k"},
        "key_vendor": null}, {"name": "later"}]});
    let profiles = Profiles::read(&stored).unwrap();
    assert_eq!(profiles.active(), Some("p"));
    assert_eq!(profiles.iter().count(), 1);
    let again = profiles.to_json();
    assert_eq!(again["list"][0], stored["list"][1]);
    assert_eq!(again["list"].as_array().unwrap().len(), 3);
    assert!(!format!("{profiles:?}").contains("\"k\""));
    assert!(Profiles::read(&json!([])).is_none());
}
