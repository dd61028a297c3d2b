//! `HostRepository`.

use async_trait::async_trait;
use diesel::dsl::{exists, select};
use diesel::prelude::*;
use domain::clock::Timestamp;
use domain::coordination::host::HostRepository;
use domain::error::StoreError;
use domain::id::HostId;

use crate::database::connection::AnyConnection;
use crate::database::pool::{JobMode, Workload};
use crate::error::TransactionError;
use crate::schema::column_types::TimestampCol;
use crate::schema::hosts;
use crate::store::SqlStore;

fn is_known(conn: &mut AnyConnection, host: &str) -> Result<bool, TransactionError> {
    Ok(select(exists(hosts::table.find(host))).get_result(conn)?)
}

#[async_trait]
impl HostRepository for SqlStore {
    async fn is_known(&self, host: &HostId) -> Result<bool, StoreError> {
        let host = host.to_string();
        self.run(Workload::Background, JobMode::Read, move |conn| {
            is_known(conn, &host)
        })
        .await
    }

    async fn register(&self, host: &HostId, at: Timestamp) -> Result<(), StoreError> {
        let host = host.to_string();
        self.run(Workload::Background, JobMode::Write, move |conn| {
            if is_known(conn, &host)? {
                return Ok(());
            }
            let row = (
                hosts::id.eq(&host),
                hosts::registered_at.eq(TimestampCol(at)),
            );
            diesel::insert_into(hosts::table)
                .values(row)
                .execute(conn)?;
            Ok(())
        })
        .await
    }
}
