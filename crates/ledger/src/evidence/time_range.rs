//! Ranges of time by the clock of the database, which also sets the times of records.

use types::{EmptyRange, Moment, TimeRange};

use crate::evidence::records::Records;

const NOW_SQL: &str =
    "select to_char(clock_timestamp() at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"') as now";

/// The reason why there is no range of time.
#[derive(Debug, thiserror::Error)]
pub enum TimeRangeError {
    /// The range is empty.
    #[error(transparent)]
    Empty(#[from] EmptyRange),
    /// The query for the current time failed.
    #[error(transparent)]
    Database(#[from] pg::Error),
}

impl Records {
    /// The range between two points in time, both optional. Queries the clock of the database if one is given.
    pub(crate) async fn time_range(
        &self,
        from: Option<Moment>,
        to: Option<Moment>,
    ) -> Result<TimeRange, TimeRangeError> {
        if from.is_none() && to.is_none() {
            return Ok(TimeRange::default());
        }
        let row = self.objects(NOW_SQL, &[]).await?.into_iter().next().unwrap_or_default();
        let now = match row.get("now").and_then(|now| now.as_str()?.parse().ok()) {
            Some(Moment::At(now)) => now,
            _ => return Err(pg::Error::Lost(std::io::Error::other("the database does not tell the time")).into()),
        };
        Ok(TimeRange::new(from, to, now)?)
    }
}
