//! The client against `config/openapi.json`: whatever the document says, the client asks and reads.
//!
//! Each answer and each body is generated from its schema (all members; those that are always there; nulls where they may
//! be; every word) and must come out of the client's types as it went in. A member, a word, a type or an operation that only
//! one of both knows fails here.

mod generate;

use std::fmt::Debug;

use client::operations::{self, Operation};
use client::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::generate::{Generator, MemberSelection, difference, without_nulls};

/// More than the longest enumeration has words.
const MAX_VARIANTS: usize = 24;

fn document() -> Value {
    let text = include_str!("../../../../config/openapi.json");
    serde_json::from_str(text).expect("the checked-in document is JSON")
}

fn described<'a>(document: &'a Value, operation: &Operation) -> &'a Value {
    &document["paths"][operation.path][operation.method.to_lowercase()]
}

fn name(operation: &Operation) -> String {
    format!("{} {}", operation.method, operation.path)
}

/// The content of its success.
fn success<'a>(document: &'a Value, operation: &Operation) -> &'a Value {
    let responses = &described(document, operation)["responses"];
    let found = ["200", "201"]
        .into_iter()
        .find(|status| !responses[status].is_null());
    &responses[found.unwrap_or("200")]["content"]
}

fn parameters(operation: &Value, place: &str) -> Vec<String> {
    let all = operation["parameters"].as_array().into_iter().flatten();
    let there = all.filter(|parameter| parameter["in"] == place);
    there
        .filter_map(|parameter| parameter["name"].as_str().map(str::to_owned))
        .collect()
}

#[test]
fn every_operation_is_in_the_document_with_its_parameters() {
    let document = document();
    let mut wrong = Vec::new();
    for operation in operations::ALL {
        let described = described(&document, operation);
        if described.is_null() {
            wrong.push(format!("{} is not in the document", name(operation)));
            continue;
        }
        let known = parameters(described, "query");
        for parameter in operation.query {
            if !known.iter().any(|name| name == parameter) {
                wrong.push(format!("{} has no parameter {parameter}", name(operation)));
            }
        }
        let takes_key = parameters(described, "header")
            .iter()
            .any(|it| it == "Idempotency-Key");
        if takes_key != operation.repeatable {
            wrong.push(format!("{}: whether it takes a key", name(operation)));
        }
        let is_filled = |it: &&str| it.starts_with('{');
        let in_path = parameters(described, "path").len();
        if operation.path.split('/').filter(is_filled).count() != in_path {
            wrong.push(format!("{}: parameters of its path", name(operation)));
        }
    }
    assert_eq!(wrong, [""; 0]);
}

/// What is lost of documents of this schema in this type.
fn losses<T: DeserializeOwned + Serialize + Debug>(schemas: &Value, schema: &Value) -> Vec<String> {
    let mut losses = Vec::new();
    for members in [
        MemberSelection::All,
        MemberSelection::Null,
        MemberSelection::Required,
    ] {
        for choice in 0..MAX_VARIANTS {
            let generator = Generator {
                schemas,
                members,
                choice,
            };
            let given = generator.of(schema);
            let read: T = match serde_json::from_value(given.clone()) {
                Ok(read) => read,
                Err(error) => {
                    losses.push(format!("{members:?}: {error}"));
                    continue;
                }
            };
            if format!("{read:?}").contains("Other(") {
                losses.push(format!("{members:?}: a word is not known ({choice})"));
            }
            let written = serde_json::to_value(&read).expect("what was read can be written");
            let (given, written) = (without_nulls(given), without_nulls(written));
            losses.extend(difference("", &given, &written).map(|it| format!("{members:?}: {it}")));
        }
    }
    losses.dedup();
    losses.truncate(3);
    losses
}

/// Every answer with its type.
struct ResponseSamples<'a> {
    document: &'a Value,
    seen: Vec<&'static Operation>,
    wrong: Vec<String>,
}

impl ResponseSamples<'_> {
    fn read<T: DeserializeOwned + Serialize + Debug>(&mut self, operation: &'static Operation) {
        let schema = &success(self.document, operation)["application/json"]["schema"];
        self.read_as::<T>(operation, &schema.clone());
    }

    fn read_as<T: DeserializeOwned + Serialize + Debug>(
        &mut self,
        operation: &'static Operation,
        schema: &Value,
    ) {
        self.seen.push(operation);
        if schema.is_null() {
            self.wrong
                .push(format!("{} has no described answer", name(operation)));
            return;
        }
        let losses = losses::<T>(&self.document["components"]["schemas"], schema);
        self.wrong.extend(
            losses
                .into_iter()
                .map(|loss| format!("{}: {loss}", name(operation))),
        );
    }

    fn streamed(&mut self, operation: &'static Operation, kind: &str) {
        self.seen.push(operation);
        if success(self.document, operation)[kind].is_null() {
            self.wrong
                .push(format!("{} does not answer {kind}", name(operation)));
        }
    }
}

fn administration(answers: &mut ResponseSamples<'_>) {
    answers.read::<Page<ApiKey>>(&operations::KEYS);
    answers.read::<NewApiKey>(&operations::CREATE_KEY);
    answers.read::<NewApiKey>(&operations::ROTATE_KEY);
    answers.read::<SuccessResponse>(&operations::REVOKE_KEY);
    answers.read::<Page<AdministeredUser>>(&operations::SEARCH_USERS);
    answers.read::<AdministeredUser>(&operations::CREATE_USER);
    answers.read::<AdministeredUser>(&operations::USER);
    answers.read::<AdministeredUser>(&operations::UPDATE_USER);
    answers.read::<SuccessResponse>(&operations::DELETE_USER);
    answers.read::<Page<ApiKey>>(&operations::USER_KEYS);
    answers.read::<NewApiKey>(&operations::CREATE_USER_KEY);
    answers.read::<NewApiKey>(&operations::ROTATE_USER_KEY);
    answers.read::<SuccessResponse>(&operations::REVOKE_USER_KEY);
    answers.read::<Page<AuditEntry>>(&operations::AUDIT);
}

fn egress_requests(answers: &mut ResponseSamples<'_>) {
    answers.read::<Page<EgressRequest>>(&operations::SEARCH_EGRESS_REQUESTS);
    answers.read::<EgressRequest>(&operations::APPROVE_EGRESS_REQUEST);
    answers.read::<EgressRequest>(&operations::DENY_EGRESS_REQUEST);
    answers.read::<SuccessResponse>(&operations::DELETE_EGRESS_REQUEST);
}

fn organizations(answers: &mut ResponseSamples<'_>) {
    answers.read::<OrganizationList>(&operations::ORGANIZATIONS);
    answers.read::<OrganizationMemberPage>(&operations::ORGANIZATION_MEMBERS);
    answers.read::<OrganizationInviteResult>(&operations::INVITE_MEMBERS);
    answers.read::<SuccessResponse>(&operations::REMOVE_MEMBER);
}

#[test]
fn every_response_is_read_without_loss() {
    let document = document();
    let mut answers = ResponseSamples {
        document: &document,
        seen: Vec::new(),
        wrong: Vec::new(),
    };
    answers.read::<AliveStatus>(&operations::ALIVE);
    answers.read::<String>(&operations::HEALTH);
    answers.read::<String>(&operations::READY);
    answers.read::<ServerInfo>(&operations::SERVER_INFO);
    answers.read::<StartTask>(&operations::START);
    answers.read::<Vec<StartTask>>(&operations::STREAM_START);
    // Without ids it is a page, which this client asks for by another path.
    let listed = &document["components"]["schemas"]["ListedConversations"]["oneOf"][0];
    answers.read_as::<Vec<Option<Conversation>>>(&operations::CONVERSATIONS, listed);
    answers.read::<Page<Conversation>>(&operations::SEARCH_CONVERSATIONS);
    answers.read::<u64>(&operations::COUNT_CONVERSATIONS);
    answers.read::<Conversation>(&operations::UPDATE_CONVERSATION);
    answers.read::<SuccessResponse>(&operations::DELETE_CONVERSATION);
    answers.read::<MessageSent>(&operations::SEND_MESSAGE);
    answers.read::<MessageQueued>(&operations::QUEUE_MESSAGE);
    answers.streamed(&operations::DOWNLOAD, "application/zip");
    answers.read::<Vec<Option<StartTask>>>(&operations::START_TASKS);
    answers.read::<Page<StartTask>>(&operations::SEARCH_START_TASKS);
    answers.read::<u64>(&operations::COUNT_START_TASKS);
    answers.read::<Vec<Option<Event>>>(&operations::EVENTS);
    answers.read::<Page<Event>>(&operations::SEARCH_EVENTS);
    answers.read::<u64>(&operations::COUNT_EVENTS);
    answers.streamed(&operations::FOLLOW_EVENTS, "text/event-stream");
    answers.read::<Vec<Option<Sandbox>>>(&operations::SANDBOXES);
    answers.read::<Page<Sandbox>>(&operations::SEARCH_SANDBOXES);
    answers.read::<Sandbox>(&operations::CREATE_SANDBOX);
    answers.read::<SuccessResponse>(&operations::PAUSE_SANDBOX);
    answers.read::<SuccessResponse>(&operations::RESUME_SANDBOX);
    answers.read::<SuccessResponse>(&operations::DELETE_SANDBOX);
    answers.read::<Vec<Option<Spec>>>(&operations::SPECS);
    answers.read::<Page<Spec>>(&operations::SEARCH_SPECS);
    answers.read::<UserSettings>(&operations::SETTINGS);
    answers.read::<ActionResponse>(&operations::UPDATE_SETTINGS);
    answers.read::<Page<SecretName>>(&operations::SEARCH_SECRETS);
    answers.read::<ActionResponse>(&operations::CREATE_SECRET);
    answers.read::<ActionResponse>(&operations::UPDATE_SECRET);
    answers.read::<ActionResponse>(&operations::DELETE_SECRET);
    answers.read::<UserInfo>(&operations::ME);
    answers.streamed(&operations::SANDBOX_LOGS, "text/plain");
    administration(&mut answers);
    organizations(&mut answers);
    egress_requests(&mut answers);
    let unseen = operations::ALL
        .iter()
        .filter(|it| !answers.seen.contains(it));
    let unseen: Vec<String> = unseen.map(|operation| name(operation)).collect();
    assert_eq!(unseen, [""; 0], "these answers are not read here");
    assert!(answers.wrong.is_empty(), "{}", answers.wrong.join("\n"));
}

/// Every member of a body can be said.
fn body<T: DeserializeOwned + Serialize + Debug>(operation: &Operation) -> Vec<String> {
    let document = document();
    let described = described(&document, operation);
    let schema = &described["requestBody"]["content"]["application/json"]["schema"];
    if schema.is_null() {
        return vec![format!("{} has no described body", name(operation))];
    }
    let losses = losses::<T>(&document["components"]["schemas"], schema);
    losses
        .into_iter()
        .map(|loss| format!("{}: {loss}", name(operation)))
        .collect()
}

#[test]
fn every_member_of_a_body_can_be_set() {
    let wrong = [
        body::<StartRequest>(&operations::START),
        body::<StartRequest>(&operations::STREAM_START),
        body::<ConversationChange>(&operations::UPDATE_CONVERSATION),
        body::<EgressApproval>(&operations::APPROVE_EGRESS_REQUEST),
        body::<Message>(&operations::SEND_MESSAGE),
        body::<NewKey>(&operations::CREATE_KEY),
        body::<KeyRotation>(&operations::ROTATE_KEY),
        body::<NewKey>(&operations::CREATE_USER_KEY),
        body::<KeyRotation>(&operations::ROTATE_USER_KEY),
        body::<NewUser>(&operations::CREATE_USER),
        body::<UserChange>(&operations::UPDATE_USER),
        body::<OrganizationInvite>(&operations::INVITE_MEMBERS),
        body::<Message>(&operations::QUEUE_MESSAGE),
        body::<SettingsChange>(&operations::UPDATE_SETTINGS),
        body::<NewSecret>(&operations::CREATE_SECRET),
        body::<SecretChange>(&operations::UPDATE_SECRET),
    ];
    assert!(wrong.concat().is_empty(), "{}", wrong.concat().join("\n"));
}

#[test]
fn drift_is_found() {
    let document = document();
    let schemas = &document["components"]["schemas"];
    let schema = &schemas["SandboxInfo"];
    assert_eq!(losses::<Sandbox>(schemas, schema), [""; 0]);
    let drifts: [fn(&mut Value, &mut Value); 5] = [
        // A member more, one that is no longer always there, another type, another nullability, a word more.
        |it, _| it["properties"]["colour"] = serde_json::json!({"type": "string"}),
        |it, _| {
            it["required"]
                .as_array_mut()
                .unwrap()
                .retain(|name| name != "id");
        },
        |it, _| it["properties"]["status_detail"]["type"] = "integer".into(),
        |it, _| it["properties"]["sandbox_spec_id"]["type"] = serde_json::json!(["string", "null"]),
        |_, all| {
            all["SandboxStatus"]["enum"]
                .as_array_mut()
                .unwrap()
                .push("FROZEN".into());
        },
    ];
    for (number, drift) in drifts.iter().enumerate() {
        let (mut schema, mut schemas) = (schema.clone(), schemas.clone());
        drift(&mut schema, &mut schemas);
        assert!(
            !losses::<Sandbox>(&schemas, &schema).is_empty(),
            "drift {number}"
        );
    }
}
