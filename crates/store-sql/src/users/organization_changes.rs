//! The steps of changes to organizations, and of disabling users, in the caller's transaction.

use diesel::prelude::*;
use domain::clock::Timestamp;
use domain::error::{Entity, StoreError};
use domain::id::{OrganizationId, OwnerId, UserId};
use domain::user::identity::{ApiKey, KeyHash, PurgeCounts, Role};
use domain::user::organization::{
    Invitation, MAX_INVITATIONS_PER_ORGANIZATION, MAX_MEMBERS_PER_ORGANIZATION,
    MAX_ORGANIZATIONS_PER_USER, Membership, Organization, OrganizationChange,
};
use domain::user::permission::MemberRole;

use crate::database::connection::AnyConnection;
use crate::error::{
    QueryResultExt, TransactionError, conflict, map_unique_violation, not_found, stale,
};
use crate::schema::codec::replace_nul;
use crate::schema::column_types::{TimestampCol, UuidCol};
use crate::schema::{api_keys, invitations, memberships, organizations, users as user_rows};
use crate::users::organizations::{
    InvitationRow, MembershipRow, OrganizationRow, load, membership, owners_of_organization,
    owners_of_user,
};
use crate::users::{self, passwords, purge, sessions};

/// Disables a user or enables them. `false` if there is no such user.
pub(super) fn set_disabled(
    conn: &mut AnyConnection,
    user: &UserId,
    disabled: bool,
    at: Timestamp,
) -> Result<bool, TransactionError> {
    let user = user.as_str();
    let present = user_rows::table
        .find(user)
        .filter(user_rows::deleted_at.is_null());
    let is_changed = diesel::update(present)
        .set(user_rows::disabled_at.eq(disabled.then_some(TimestampCol(at))))
        .execute(conn)?
        > 0;
    if is_changed && disabled {
        sessions::end_others(conn, user, None)?;
        passwords::delete_links(conn, user)?;
        let owners = owners_of_user(conn, user)?;
        purge::suspend(conn, &owners, at)?;
    }
    Ok(is_changed)
}

/// Refuses a key that is bound to an organization of which its user is no member.
pub(super) fn check_key_organization(
    conn: &mut AnyConnection,
    key: &ApiKey,
) -> Result<(), TransactionError> {
    match key.organization {
        Some(id) if id != OrganizationId::personal(&key.user) => {
            let found = membership(conn, id, key.user.as_str())?;
            found
                .map(drop)
                .ok_or_else(|| not_found(Entity::Organization))
        }
        _ => Ok(()),
    }
}

/// Refuses to leave a shared organization, or all of them, without an owner.
pub(super) fn check_not_last_owner(
    conn: &mut AnyConnection,
    user: &str,
    of: Option<OrganizationId>,
) -> Result<(), TransactionError> {
    let owned: Vec<UuidCol> = memberships::table
        .filter(memberships::user_id.eq(user))
        .filter(memberships::role.eq(MemberRole::Owner.as_str()))
        .filter(memberships::removed_at.is_null())
        .select(memberships::organization_id)
        .load(conn)?;
    for id in owned {
        if of.is_some_and(|of| UuidCol::from(of) != id) {
            continue;
        }
        let owners: i64 = memberships::table
            .filter(memberships::organization_id.eq(id))
            .filter(memberships::role.eq(MemberRole::Owner.as_str()))
            .filter(memberships::removed_at.is_null())
            .count()
            .get_result(conn)?;
        if owners <= 1 {
            let organization = load(conn, id.into())?;
            return Err(StoreError::LastOwner {
                user: user.to_owned(),
                organization: organization.map(|it| it.name).unwrap_or_default(),
            }
            .into());
        }
    }
    Ok(())
}

pub(super) fn change(
    conn: &mut AnyConnection,
    change: &OrganizationChange,
    at: Timestamp,
) -> Result<PurgeCounts, TransactionError> {
    let id = change.organization();
    let is_new = matches!(change, OrganizationChange::Create { .. });
    let is_personal = matches!(change, OrganizationChange::Switch { user, .. }
        if OrganizationId::personal(user) == id);
    if !is_new && !is_personal && load(conn, id)?.is_none() {
        return Err(not_found(Entity::Organization));
    }
    match change {
        OrganizationChange::Create {
            organization,
            owner,
        } => create(conn, organization, owner, at)?,
        OrganizationChange::Update { update, .. } => {
            let budget = update.month_budget.clone().into_update();
            let changes = (
                update
                    .name
                    .as_deref()
                    .map(|name| organizations::name.eq(replace_nul(name))),
                budget.map(|budget| {
                    let budget = budget.map(|it| i64::try_from(it.nanos()).unwrap_or(i64::MAX));
                    organizations::month_budget.eq(budget)
                }),
            );
            if !matches!(changes, (None, None)) {
                diesel::update(organizations::table.find(UuidCol::from(id)))
                    .set(changes)
                    .execute(conn)?;
            }
        }
        OrganizationChange::Delete { .. } => return delete(conn, id, at),
        OrganizationChange::Invite { invitations, .. } => invite(conn, id, invitations)?,
        OrganizationChange::WithdrawInvitation { id: invitation, .. } => {
            let row = invitations::table
                .find(UuidCol::from(*invitation))
                .filter(invitations::organization_id.eq(UuidCol::from(id)));
            if diesel::delete(row).execute(conn)? == 0 {
                return Err(not_found(Entity::Invitation));
            }
        }
        _ => change_membership(conn, change, at)?,
    }
    Ok(PurgeCounts::default())
}

/// Changes who is a member, and with which role.
fn change_membership(
    conn: &mut AnyConnection,
    change: &OrganizationChange,
    at: Timestamp,
) -> Result<(), TransactionError> {
    let id = change.organization();
    match change {
        OrganizationChange::AcceptInvitation {
            invitation, user, ..
        } => accept(conn, id, invitation, user, at),
        OrganizationChange::Enrol {
            invitation,
            user,
            password,
            ..
        } => {
            if !users::ensure_exists(conn, user.as_str(), Role::User, at)? {
                return Err(conflict(Entity::User));
            }
            passwords::set_first(conn, user.as_str(), password)?;
            accept(conn, id, invitation, user, at)?;
            switch(conn, id, user)
        }
        OrganizationChange::SetMemberRole {
            user, before, role, ..
        } => {
            check_member(conn, id, user, *before)?;
            if *role != MemberRole::Owner {
                check_not_last_owner(conn, user.as_str(), Some(id))?;
            }
            diesel::update(memberships::table.find((UuidCol::from(id), user.as_str())))
                .set(memberships::role.eq(role.as_str()))
                .execute(conn)?;
            Ok(())
        }
        OrganizationChange::RemoveMember { user, before, .. } => {
            check_member(conn, id, user, *before)?;
            check_not_last_owner(conn, user.as_str(), Some(id))?;
            remove_member(conn, id, user, at)
        }
        OrganizationChange::Switch { user, .. } => switch(conn, id, user),
        _ => Ok(()),
    }
}

fn create(
    conn: &mut AnyConnection,
    organization: &Organization,
    owner: &UserId,
    at: Timestamp,
) -> Result<(), TransactionError> {
    if !users::exists(conn, owner.as_str())? {
        return Err(not_found(Entity::User));
    }
    diesel::insert_into(organizations::table)
        .values(OrganizationRow::from(organization))
        .execute(conn)
        .map_err(map_unique_violation(conflict(Entity::Organization)))?;
    add_member(conn, organization.id, owner, MemberRole::Owner, at)
}

fn delete(
    conn: &mut AnyConnection,
    id: OrganizationId,
    at: Timestamp,
) -> Result<PurgeCounts, TransactionError> {
    let key = UuidCol::from(id);
    diesel::update(organizations::table.find(key))
        .set(organizations::deleted_at.eq(TimestampCol(at)))
        .execute(conn)?;
    let members = memberships::table
        .filter(memberships::organization_id.eq(key))
        .filter(memberships::removed_at.is_null());
    diesel::update(members)
        .set(memberships::removed_at.eq(TimestampCol(at)))
        .execute(conn)?;
    let pending = invitations::table.filter(invitations::organization_id.eq(key));
    diesel::delete(pending).execute(conn)?;
    let bound = api_keys::table.filter(api_keys::organization_id.eq(key));
    let api_keys = diesel::delete(bound).execute(conn)?;
    let owners = owners_of_organization(conn, id)?;
    Ok(PurgeCounts {
        api_keys: api_keys as u64,
        ..purge::erase_owned(conn, &owners, at)?
    })
}

fn invite(
    conn: &mut AnyConnection,
    id: OrganizationId,
    new: &[Invitation],
) -> Result<(), TransactionError> {
    let pending: i64 = invitations::table
        .filter(invitations::organization_id.eq(UuidCol::from(id)))
        .count()
        .get_result(conn)?;
    let pending = usize::try_from(pending).unwrap_or(usize::MAX);
    if pending.saturating_add(new.len()) > MAX_INVITATIONS_PER_ORGANIZATION {
        return Err(StoreError::Full {
            entity: "pending invitations",
            limit: MAX_INVITATIONS_PER_ORGANIZATION,
        }
        .into());
    }
    for invitation in new {
        diesel::insert_into(invitations::table)
            .values(InvitationRow::from(invitation))
            .execute(conn)
            .map_err(map_unique_violation(conflict(Entity::Invitation)))?;
    }
    Ok(())
}

fn accept(
    conn: &mut AnyConnection,
    id: OrganizationId,
    hash: &KeyHash,
    user: &UserId,
    at: Timestamp,
) -> Result<(), TransactionError> {
    let row: Option<InvitationRow> = invitations::table
        .filter(invitations::hash.eq(hash.to_string()))
        .filter(invitations::organization_id.eq(UuidCol::from(id)))
        .filter(invitations::expires_at.gt(TimestampCol(at)))
        .select(InvitationRow::as_select())
        .first(conn)
        .optional()
        .map_decode_error(Entity::Invitation)?;
    let invitation = Invitation::from(row.ok_or_else(|| not_found(Entity::Invitation))?);
    if !users::exists(conn, user.as_str())? {
        return Err(not_found(Entity::User));
    }
    if membership(conn, id, user.as_str())?.is_some() {
        return Err(conflict(Entity::Member));
    }
    diesel::delete(invitations::table.find(UuidCol::from(invitation.id))).execute(conn)?;
    add_member(conn, id, user, invitation.role, at)
}

/// Makes a user a member, for the first time or again.
fn add_member(
    conn: &mut AnyConnection,
    id: OrganizationId,
    user: &UserId,
    role: MemberRole,
    at: Timestamp,
) -> Result<(), TransactionError> {
    let active = || memberships::table.filter(memberships::removed_at.is_null());
    let members: i64 = active()
        .filter(memberships::organization_id.eq(UuidCol::from(id)))
        .count()
        .get_result(conn)?;
    let of_user: i64 = active()
        .filter(memberships::user_id.eq(user.as_str()))
        .count()
        .get_result(conn)?;
    for (count, limit, entity) in [
        (
            members,
            MAX_MEMBERS_PER_ORGANIZATION,
            "members of this organization",
        ),
        (
            of_user,
            MAX_ORGANIZATIONS_PER_USER,
            "organizations of this user",
        ),
    ] {
        if usize::try_from(count).is_ok_and(|count| count >= limit) {
            return Err(StoreError::Full { entity, limit }.into());
        }
    }
    // A former membership.
    diesel::delete(memberships::table.find((UuidCol::from(id), user.as_str()))).execute(conn)?;
    let row = MembershipRow::from(&Membership {
        organization: id,
        user: user.clone(),
        role,
        created_at: at,
    });
    diesel::insert_into(memberships::table)
        .values(row)
        .execute(conn)?;
    Ok(())
}

fn check_member(
    conn: &mut AnyConnection,
    id: OrganizationId,
    user: &UserId,
    before: MemberRole,
) -> Result<(), TransactionError> {
    match membership(conn, id, user.as_str())? {
        None => Err(not_found(Entity::Member)),
        Some(found) if found.role != before => Err(stale(Entity::Member)),
        Some(_) => Ok(()),
    }
}

fn remove_member(
    conn: &mut AnyConnection,
    id: OrganizationId,
    user: &UserId,
    at: Timestamp,
) -> Result<(), TransactionError> {
    diesel::update(memberships::table.find((UuidCol::from(id), user.as_str())))
        .set(memberships::removed_at.eq(TimestampCol(at)))
        .execute(conn)?;
    let bound = api_keys::table
        .filter(api_keys::user_id.eq(user.as_str()))
        .filter(api_keys::organization_id.eq(UuidCol::from(id)));
    diesel::delete(bound).execute(conn)?;
    purge::suspend(conn, &[OwnerId::new(user, id).to_string()], at)
}

fn switch(
    conn: &mut AnyConnection,
    id: OrganizationId,
    user: &UserId,
) -> Result<(), TransactionError> {
    let current = if id == OrganizationId::personal(user) {
        None
    } else {
        membership(conn, id, user.as_str())?.ok_or_else(|| not_found(Entity::Organization))?;
        Some(UuidCol::from(id))
    };
    diesel::update(user_rows::table.find(user.as_str()))
        .set(user_rows::current_organization.eq(current))
        .execute(conn)?;
    Ok(())
}
