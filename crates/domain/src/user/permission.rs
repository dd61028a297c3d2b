//! Roles in organizations and what they permit. The table is fixed; front ends show and hide parts of their pages by it.

use crate::id::OrganizationId;
use crate::wire_enum::wire_enum;

wire_enum! {
    /// The role of a member. The roles are ordered by rank.
    MemberRole {
        /// Uses the organization.
        Member = "member",
        /// Also changes its profiles and its members.
        Admin = "admin",
        /// Also renames and deletes it, and appoints owners.
        Owner = "owner",
    }
}

wire_enum! {
    Permission {
        ManageSecrets = "manage_secrets",
        ManageMcp = "manage_mcp",
        ManageIntegrations = "manage_integrations",
        ManageApplicationSettings = "manage_application_settings",
        ManageApiKeys = "manage_api_keys",
        ViewLlmSettings = "view_llm_settings",
        EditLlmSettings = "edit_llm_settings",
        ViewOrgSettings = "view_org_settings",
        EditOrgSettings = "edit_org_settings",
        InviteUser = "invite_user_to_organization",
        ChangeRoleOfMember = "change_user_role:member",
        ChangeRoleOfAdmin = "change_user_role:admin",
        ChangeRoleOfOwner = "change_user_role:owner",
        ChangeOrganizationName = "change_organization_name",
        DeleteOrganization = "delete_organization",
        ViewAutomations = "view_automations",
        ManageAutomations = "manage_automations",
    }
}

/// What each member may do.
const OF_MEMBERS: [Permission; 8] = [
    Permission::ManageSecrets,
    Permission::ManageMcp,
    Permission::ManageIntegrations,
    Permission::ManageApplicationSettings,
    Permission::ManageApiKeys,
    Permission::ViewLlmSettings,
    Permission::ViewOrgSettings,
    Permission::ViewAutomations,
];

/// Who edits what belongs to the organization: model profiles, provider connections and agent profiles. Front ends allow that by
/// `edit_org_settings`. A member changes their own automations, an editor those of all members.
const OF_EDITORS: [Permission; 3] = [
    Permission::EditLlmSettings,
    Permission::EditOrgSettings,
    Permission::ManageAutomations,
];

const OF_ADMINS: [Permission; 3] = [
    Permission::InviteUser,
    Permission::ChangeRoleOfMember,
    Permission::ChangeRoleOfAdmin,
];

const OF_OWNERS: [Permission; 3] = [
    Permission::ChangeRoleOfOwner,
    Permission::ChangeOrganizationName,
    Permission::DeleteOrganization,
];

impl MemberRole {
    /// Rank on the wire: the highest role has the lowest number.
    pub const fn rank(self) -> u8 {
        match self {
            Self::Owner => 0,
            Self::Admin => 1,
            Self::Member => 2,
        }
    }

    /// The permissions of this role in a shared organization.
    pub fn permissions(self) -> Vec<Permission> {
        let more: &[&[Permission]] = match self {
            Self::Member => &[],
            Self::Admin => &[&OF_EDITORS, &OF_ADMINS],
            Self::Owner => &[&OF_EDITORS, &OF_ADMINS, &OF_OWNERS],
        };
        let more = more.iter().copied().flatten().copied();
        OF_MEMBERS.into_iter().chain(more).collect()
    }

    pub fn may(self, permission: Permission) -> bool {
        self.permissions().contains(&permission)
    }

    /// The permission to give this role to a member, and to take it from one.
    pub const fn change_permission(self) -> Permission {
        match self {
            Self::Member => Permission::ChangeRoleOfMember,
            Self::Admin => Permission::ChangeRoleOfAdmin,
            Self::Owner => Permission::ChangeRoleOfOwner,
        }
    }
}

impl Permission {
    /// The permissions of a user in their personal organization, which has no other members.
    pub fn personal() -> Vec<Self> {
        [&OF_MEMBERS[..], &OF_EDITORS].concat()
    }
}

/// The shared organization in which a request acts, and the caller's role there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActiveMembership {
    pub organization: OrganizationId,
    pub role: MemberRole,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_higher_role_has_all_permissions_of_a_lower_one() {
        let [member, admin, owner] = [MemberRole::Member, MemberRole::Admin, MemberRole::Owner];
        assert!(member < admin && admin < owner);
        for (low, high) in [(member, admin), (admin, owner)] {
            assert!(low.permissions().iter().all(|it| high.may(*it)));
            assert!(high.rank() < low.rank());
        }
        for (role, permission, expected) in [
            (member, Permission::ViewLlmSettings, true),
            (member, Permission::EditOrgSettings, false),
            (admin, Permission::EditOrgSettings, true),
            (member, Permission::ChangeOrganizationName, false),
            (member, Permission::InviteUser, false),
            (admin, Permission::ChangeRoleOfAdmin, true),
            (admin, Permission::ChangeRoleOfOwner, false),
            (admin, Permission::DeleteOrganization, false),
            (owner, Permission::ChangeOrganizationName, true),
        ] {
            assert_eq!(role.may(permission), expected, "{role:?} {permission:?}");
        }
    }

    #[test]
    fn a_personal_organization_is_not_shared_renamed_or_deleted() {
        for permission in Permission::personal() {
            assert!(MemberRole::Admin.may(permission), "{permission:?}");
            assert_ne!(permission, Permission::InviteUser);
        }
    }
}
