//! `OrganizationRepository`.

use async_trait::async_trait;
use diesel::prelude::*;
use domain::clock::Timestamp;
use domain::error::{Entity, StoreError};
use domain::id::{OrganizationId, OwnerId, UserId};
use domain::user::identity::KeyHash;
use domain::user::organization::{
    ActiveMembership, Invitation, MemberFilter, Membership, Organization, OrganizationRepository,
};
use domain::user::permission::MemberRole;
use domain::user::settings::SettingsOwner;

use crate::database::connection::{AnyBackend, AnyConnection};
use crate::database::pool::{JobMode, Workload};
use crate::error::{QueryResultExt, TransactionError};
use crate::queries::filter_by;
use crate::queries::text_functions::{lower, replace};
use crate::schema::codec::row_limit;
use crate::schema::column_types::{TextCol, TimestampCol, UuidCol};
use crate::schema::rows::same_fields;
use crate::schema::{invitations, memberships, organizations};
use crate::store::SqlStore;

#[derive(Queryable, Selectable, Insertable)]
#[diesel(table_name = organizations)]
pub(crate) struct OrganizationRow {
    id: UuidCol,
    name: String,
    month_budget: Option<i64>,
    created_at: TimestampCol,
}

same_fields! {
    OrganizationRow, Organization, [
        id, name, month_budget, created_at,
    ]
}

#[derive(Queryable, Selectable, Insertable)]
#[diesel(table_name = memberships)]
pub(crate) struct MembershipRow {
    #[diesel(column_name = organization_id)]
    organization: UuidCol,
    #[diesel(column_name = user_id)]
    user: TextCol<UserId>,
    role: TextCol<MemberRole>,
    created_at: TimestampCol,
}

same_fields! {
    MembershipRow, Membership, [
        organization, user, role, created_at,
    ]
}

#[derive(Queryable, Selectable, Insertable)]
#[diesel(table_name = invitations, treat_none_as_default_value = false)]
pub(crate) struct InvitationRow {
    id: UuidCol,
    hash: TextCol<KeyHash>,
    #[diesel(column_name = organization_id)]
    organization: UuidCol,
    email: Option<String>,
    role: TextCol<MemberRole>,
    inviter: TextCol<UserId>,
    created_at: TimestampCol,
    expires_at: TimestampCol,
}

same_fields! {
    InvitationRow, Invitation, [
        id, hash, organization, email, role, inviter, created_at, expires_at,
    ]
}

/// Organization and role of an outer join with the memberships.
pub(crate) type MembershipColumns = Option<(UuidCol, TextCol<MemberRole>)>;

pub(crate) fn active_membership((id, role): (UuidCol, TextCol<MemberRole>)) -> ActiveMembership {
    ActiveMembership {
        organization: id.into(),
        role: role.0,
    }
}

/// Loads an organization whose deletion has not begun.
pub(crate) fn load(
    conn: &mut AnyConnection,
    id: OrganizationId,
) -> Result<Option<Organization>, TransactionError> {
    let row = organizations::table
        .find(UuidCol::from(id))
        .filter(organizations::deleted_at.is_null())
        .select(OrganizationRow::as_select())
        .first(conn)
        .optional()?;
    Ok(row.map(Organization::from))
}

/// Loads the membership of a user, unless it was ended.
pub(crate) fn membership(
    conn: &mut AnyConnection,
    id: OrganizationId,
    user: &str,
) -> Result<Option<Membership>, TransactionError> {
    let row = memberships::table
        .find((UuidCol::from(id), user))
        .filter(memberships::removed_at.is_null())
        .select(MembershipRow::as_select())
        .first(conn)
        .optional()
        .map_decode_error(Entity::Member)?;
    Ok(row.map(Membership::from))
}

/// The owners of rows of a user: the personal membership, and all present and former memberships.
pub(crate) fn owners_of_user(
    conn: &mut AnyConnection,
    user: &str,
) -> Result<Vec<String>, TransactionError> {
    let shared: Vec<UuidCol> = memberships::table
        .filter(memberships::user_id.eq(user))
        .order(memberships::organization_id.asc())
        .select(memberships::organization_id)
        .load(conn)?;
    let shared = shared.into_iter().map(|id| {
        let id: OrganizationId = id.into();
        format!("{user} {id}")
    });
    Ok(std::iter::once(user.to_owned()).chain(shared).collect())
}

/// The owners of rows in an organization: all present and former memberships, and the organization for its settings.
pub(crate) fn owners_of_organization(
    conn: &mut AnyConnection,
    id: OrganizationId,
) -> Result<Vec<String>, TransactionError> {
    let users: Vec<TextCol<UserId>> = memberships::table
        .filter(memberships::organization_id.eq(UuidCol::from(id)))
        .order(memberships::user_id.asc())
        .select(memberships::user_id)
        .load(conn)
        .map_decode_error(Entity::Member)?;
    let owners = users.into_iter().map(|user| OwnerId::new(&user.0, id));
    let own = SettingsOwner::Organization(id).to_string();
    let owners = owners.map(|owner| owner.to_string());
    Ok(owners.chain([own]).collect())
}

pub(crate) fn end_memberships_of_user(
    conn: &mut AnyConnection,
    user: &str,
    at: Timestamp,
) -> Result<(), TransactionError> {
    let active = memberships::table
        .filter(memberships::user_id.eq(user))
        .filter(memberships::removed_at.is_null());
    diesel::update(active)
        .set(memberships::removed_at.eq(TimestampCol(at)))
        .execute(conn)?;
    Ok(())
}

/// The members that a filter selects.
fn members<'a>(
    id: OrganizationId,
    filter: &MemberFilter,
) -> memberships::BoxedQuery<'a, AnyBackend> {
    let mut query = memberships::table
        .filter(memberships::organization_id.eq(UuidCol::from(id)))
        .filter(memberships::removed_at.is_null())
        .into_boxed::<AnyBackend>();
    let part = filter.name.as_deref().map(str::to_ascii_lowercase);
    let part = part.filter(|part| !part.is_empty());
    filter_by! {
        query,
        part => |part| {
            replace(lower(memberships::user_id), part, "").ne(lower(memberships::user_id))
        };
    }
    query
}

#[async_trait]
impl OrganizationRepository for SqlStore {
    async fn find(&self, id: OrganizationId) -> Result<Option<Organization>, StoreError> {
        self.run(Workload::Requests, JobMode::Query, move |conn| {
            load(conn, id)
        })
        .await
    }

    async fn membership(
        &self,
        id: OrganizationId,
        user: &UserId,
    ) -> Result<Option<Membership>, StoreError> {
        let user = user.to_string();
        self.run(Workload::Requests, JobMode::Query, move |conn| {
            membership(conn, id, &user)
        })
        .await
    }

    async fn list_of_user(
        &self,
        user: &UserId,
    ) -> Result<Vec<(Organization, MemberRole)>, StoreError> {
        let user = user.to_string();
        self.run(Workload::Requests, JobMode::Query, move |conn| {
            let rows: Vec<(OrganizationRow, TextCol<MemberRole>)> = memberships::table
                .inner_join(
                    organizations::table.on(organizations::id.eq(memberships::organization_id)),
                )
                .filter(memberships::user_id.eq(&user))
                .filter(memberships::removed_at.is_null())
                .filter(organizations::deleted_at.is_null())
                .order((organizations::name.asc(), organizations::id.asc()))
                .select((OrganizationRow::as_select(), memberships::role))
                .load(conn)
                .map_decode_error(Entity::Member)?;
            Ok(rows
                .into_iter()
                .map(|(row, role)| (row.into(), role.0))
                .collect())
        })
        .await
    }

    async fn members(
        &self,
        id: OrganizationId,
        filter: &MemberFilter,
        skip: usize,
        limit: usize,
    ) -> Result<Vec<Membership>, StoreError> {
        let filter = filter.clone();
        self.run(Workload::Requests, JobMode::Read, move |conn| {
            let rows = members(id, &filter)
                .order(memberships::user_id.asc())
                .offset(row_limit(skip))
                .limit(row_limit(limit))
                .select(MembershipRow::as_select())
                .load(conn)
                .map_decode_error(Entity::Member)?;
            Ok(rows.into_iter().map(Membership::from).collect())
        })
        .await
    }

    async fn count_members(
        &self,
        id: OrganizationId,
        filter: &MemberFilter,
    ) -> Result<u64, StoreError> {
        let filter = filter.clone();
        self.run(Workload::Requests, JobMode::Query, move |conn| {
            let count: i64 = members(id, &filter).count().get_result(conn)?;
            Ok(u64::try_from(count).unwrap_or_default())
        })
        .await
    }

    async fn invitations(&self, id: OrganizationId) -> Result<Vec<Invitation>, StoreError> {
        self.run(Workload::Requests, JobMode::Query, move |conn| {
            let rows = invitations::table
                .filter(invitations::organization_id.eq(UuidCol::from(id)))
                .order((invitations::created_at.asc(), invitations::id.asc()))
                .select(InvitationRow::as_select())
                .load(conn)
                .map_decode_error(Entity::Invitation)?;
            Ok(rows.into_iter().map(Invitation::from).collect())
        })
        .await
    }

    async fn find_invitation(
        &self,
        hash: &KeyHash,
    ) -> Result<Option<(Invitation, Organization)>, StoreError> {
        let hash = hash.to_string();
        self.run(Workload::Requests, JobMode::Query, move |conn| {
            let row: Option<(InvitationRow, OrganizationRow)> = invitations::table
                .inner_join(
                    organizations::table.on(organizations::id.eq(invitations::organization_id)),
                )
                .filter(invitations::hash.eq(&hash))
                .filter(organizations::deleted_at.is_null())
                .select((InvitationRow::as_select(), OrganizationRow::as_select()))
                .first(conn)
                .optional()
                .map_decode_error(Entity::Invitation)?;
            Ok(row.map(|(invitation, organization)| (invitation.into(), organization.into())))
        })
        .await
    }
}
