//! `LeaseRepository`.

use async_trait::async_trait;
use diesel::prelude::*;
use domain::clock::Timestamp;
use domain::coordination::lease::LeaseRepository;
use domain::error::{Entity, StoreError};

use crate::database::pool::{JobMode, Workload};
use crate::error::{conflict, map_unique_violation};
use crate::schema::column_types::TimestampCol;
use crate::schema::leases;
use crate::store::SqlStore;

#[async_trait]
impl LeaseRepository for SqlStore {
    async fn acquire(
        &self,
        name: &str,
        holder: &str,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<bool, StoreError> {
        let (name, holder) = (name.to_owned(), holder.to_owned());
        let acquired = self
            .run(Workload::Background, JobMode::Write, move |conn| {
                let free = leases::holder
                    .eq(holder.clone())
                    .or(leases::ends_at.le(TimestampCol(now)));
                let values = (
                    leases::holder.eq(holder.clone()),
                    leases::ends_at.eq(TimestampCol(until)),
                );
                let extended = diesel::update(leases::table.find(&name).filter(free))
                    .set(values.clone())
                    .execute(conn)?;
                if extended == 0 {
                    diesel::insert_into(leases::table)
                        .values((leases::name.eq(&name), values))
                        .execute(conn)
                        .map_err(map_unique_violation(conflict(Entity::Lease)))?;
                }
                Ok(())
            })
            .await;
        match acquired {
            Ok(()) => Ok(true),
            Err(StoreError::Conflict { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn release(&self, name: &str, holder: &str) -> Result<(), StoreError> {
        let (name, holder) = (name.to_owned(), holder.to_owned());
        self.run(Workload::Background, JobMode::Write, move |conn| {
            let held = leases::table.find(&name).filter(leases::holder.eq(&holder));
            diesel::delete(held).execute(conn)?;
            Ok(())
        })
        .await
    }

    async fn prune(&self, before: Timestamp, limit: usize) -> Result<u64, StoreError> {
        let rows = ("leases", "name", "ends_at");
        self.prune_rows(rows, before, limit).await
    }
}
