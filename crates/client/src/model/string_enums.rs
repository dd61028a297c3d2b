//! Enumerations of the API.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

macro_rules! string_enums {
    ($($(#[$doc:meta])* $name:ident { $($variant:ident = $text:literal),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($variant,)*
            /// A value that this client does not know.
            Other(String),
        }

        impl $name {
            /// The value as in the API.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $text,)*
                    Self::Other(text) => text,
                }
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                match text {
                    $($text => Self::$variant,)*
                    other => Self::Other(other.to_owned()),
                }
            }
        }

        impl PartialEq<&str> for $name {
            fn eq(&self, other: &&str) -> bool {
                self.as_str() == *other
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer).map(|text| text.as_str().into())
            }
        }
    )*};
}

string_enums! {
    /// The status of a sandbox.
    SandboxStatus {
        Starting = "STARTING", Running = "RUNNING", Paused = "PAUSED", Error = "ERROR", Missing = "MISSING",
    }

    /// The status of a conversation's agent.
    ExecutionStatus {
        Idle = "idle", Running = "running", Paused = "paused", WaitingForConfirmation = "waiting_for_confirmation",
        Finished = "finished", Error = "error", Stuck = "stuck", Deleting = "deleting",
    }

    /// The status of a start.
    StartStatus {
        Working = "WORKING", WaitingForSandbox = "WAITING_FOR_SANDBOX", PreparingRepository = "PREPARING_REPOSITORY",
        RunningSetupScript = "RUNNING_SETUP_SCRIPT", SettingUpGitHooks = "SETTING_UP_GIT_HOOKS",
        SettingUpSkills = "SETTING_UP_SKILLS", StartingConversation = "STARTING_CONVERSATION", Ready = "READY",
        Error = "ERROR",
    }

    /// A git provider.
    GitProvider {
        Github = "github", Gitlab = "gitlab", Bitbucket = "bitbucket", BitbucketDataCenter = "bitbucket_data_center",
        Forgejo = "forgejo", AzureDevops = "azure_devops", EnterpriseSso = "enterprise_sso",
    }

    /// What triggered a conversation.
    Trigger {
        Resolver = "resolver", Gui = "gui", SuggestedTask = "suggested_task", OpenhandsApi = "openhands_api",
        Slack = "slack", MicroagentManagement = "microagent_management", Jira = "jira", JiraDc = "jira_dc",
        Linear = "linear", Bitbucket = "bitbucket", Automation = "automation",
    }

    /// The type of an agent.
    AgentType { Default = "default", Plan = "plan" }

    /// What a user decided about a host that the egress policy refused.
    EgressDecision {
        Pending = "pending", ApprovedForSandbox = "approved_for_sandbox", Approved = "approved", Denied = "denied",
    }

    /// An order of events.
    EventOrder { OldestFirst = "TIMESTAMP", NewestFirst = "TIMESTAMP_DESC" }

    /// The role of a user.
    UserRole { User = "user", Admin = "admin" }

    /// The role of a member of an organization.
    MemberRole { Member = "member", Admin = "admin", Owner = "owner" }

    /// Whether a mail was sent; `Pending` while the service is still trying.
    MailDelivery { Sent = "sent", Failed = "failed", Pending = "pending" }

    /// The outcome of an audited action.
    AuditOutcome { Ok = "ok", Refused = "refused", Failed = "failed" }

    /// An order of starts.
    StartOrder { OldestFirst = "CREATED_AT", NewestFirst = "CREATED_AT_DESC" }
}

impl StartStatus {
    /// Whether the status is final.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Ready | Self::Error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_values_are_kept() {
        let read: SandboxStatus = serde_json::from_str("\"FROZEN\"").unwrap();
        assert_eq!(read, SandboxStatus::Other("FROZEN".into()));
        assert_eq!(serde_json::to_string(&read).unwrap(), "\"FROZEN\"");
        assert_eq!(SandboxStatus::from("PAUSED"), SandboxStatus::Paused);
    }
}
