//! The tables, the ledger and what the agents were told must agree. Every sentence it returns is a broken promise.

use std::collections::HashMap;

use serde_json::Value;
use testkit::Database;

use super::load::{Answer, Journal};

/// What must not have any row, and what it means if it has.
const CONTRADICTIONS: [(&str, &str); 11] = [
    ("a record is still pending", "select correlation_id from countersign.mutation where status = 'pending'"),
    (
        "a call without a key is answered from a record that is no success",
        "select correlation_id, status from countersign.record
         where slot is not null and status <> 'success' and idempotency_key is null",
    ),
    (
        "a tweet has not exactly one success record",
        "select t.id, t.text, count(a.id) from social.tweet t left join countersign.mutation a
             on a.tool_name = 'post_tweet' and a.status = 'success' and (a.result->>'id')::bigint = t.id
         where t.text like 'chaos-%' group by t.id having count(a.id) <> 1",
    ),
    (
        "a success record of post_tweet stands and has no such row",
        "select a.correlation_id, a.result from countersign.record a
         where a.tool_name = 'post_tweet' and a.status = 'success' and (countersign.standing_of(a.correlation_id)).stands_as is not null
           and not exists (select from social.tweet t
                           where t.id = (a.result->>'id')::bigint and t.text = a.params->>'text')",
    ),
    (
        "a success record of post_tweet was undone and has its row still there",
        "select a.correlation_id, a.params from countersign.record a
         join social.tweet t on t.id = (a.result->>'id')::bigint
         where a.tool_name = 'post_tweet' and a.status = 'success' and (countersign.standing_of(a.correlation_id)).stands_as is null",
    ),
    (
        "a success has no effects",
        "select r.correlation_id, r.tool_name from countersign.record r where r.status = 'success'
         and not exists (select from countersign.effect e where e.correlation_id = r.correlation_id)",
    ),
    (
        "effects have no success",
        "select distinct e.correlation_id from countersign.effect e where not exists (
             select from countersign.record r where r.correlation_id = e.correlation_id and r.status = 'success')",
    ),
    (
        "a write is marked as reversed by what is not its undo",
        "select v.correlation_id, v.reversed_by from countersign.reversal v
         left join countersign.record u on u.correlation_id = v.reversed_by and u.status = 'success'
         where u.undo_of is null or v.correlation_id <> all (u.undo_of)",
    ),
    (
        "an undo has marked nothing",
        "select u.correlation_id from countersign.record u where u.status = 'success' and u.undo_of is not null
         and not exists (select from countersign.reversal v where v.reversed_by = u.correlation_id)",
    ),
    (
        "the likes of a tweet are not those of the records",
        "with recorded as (
             select (params->>'tweet_id')::bigint as tweet_id,
                    sum(case tool_name when 'like_tweet' then 1 else -1 end) as likes
             from countersign.mutation
             where tool_name in ('like_tweet', 'unlike_tweet') and status = 'success' group by 1
         ), counted as (
             select l.tweet_id, count(*) as likes from social.tweet_like l join social.tweet t on t.id = l.tweet_id
             where l.account_id = 'default' and t.text like 'chaos-%' group by 1
         )
         select tweet_id, recorded.likes, counted.likes from recorded full join counted using (tweet_id)
         where coalesce(recorded.likes, 0) <> coalesce(counted.likes, 0)",
    ),
    (
        "a key has more than one success",
        "select idempotency_key, count(*) from countersign.mutation
         where idempotency_key is not null and status = 'success' group by 1 having count(*) > 1",
    ),
];

pub(super) async fn check(db: &Database, journal: &Journal) -> Vec<String> {
    let mut broken = journal.surprises.clone();
    for (meaning, sql) in CONTRADICTIONS {
        broken.extend(db.rows(sql).await.iter().map(|row| format!("{meaning}: {}", row.join(", "))));
    }
    let records = Records::read(db).await;
    broken.extend(journal.answers.iter().filter_map(|answer| records.contradict(answer)));
    broken.extend(not_as_told(db, journal).await);
    broken
}

/// What the agents know of the tables from the answers alone.
async fn not_as_told(db: &Database, journal: &Journal) -> Vec<String> {
    let mut broken = Vec::new();
    let rows = db.rows("select text, count(*) from social.tweet where text like 'chaos-%' group by text").await;
    let rows: HashMap<&str, usize> = rows.iter().map(|row| (row[0].as_str(), row[1].parse().unwrap())).collect();
    for (text, expected) in &journal.tweets {
        let found = rows.get(text.as_str()).copied().unwrap_or_default();
        if found != *expected {
            broken.push(format!("{text:?} has {found} rows where {expected} were acknowledged"));
        }
    }
    let liked = db.rows("select tweet_id from social.tweet_like where account_id = 'default'").await.concat();
    for (tweet, expected) in &journal.likes {
        if liked.contains(&tweet.to_string()) != *expected {
            broken.push(format!("that tweet {tweet} is liked was acknowledged as {expected}, and is not so"));
        }
    }
    broken
}

struct Record {
    status: String,
    result: Value,
    original: String,
}

/// Every record by its receipt.
struct Records(HashMap<String, Record>);

impl Records {
    async fn read(db: &Database) -> Self {
        let sql = "select correlation_id, status || coalesce(' ' || error_code || ' ' || error_message, ''), coalesce(result, 'null'), coalesce(duplicate_of::text, '') \
                   from countersign.mutation";
        let records = db.rows(sql).await.into_iter().map(|row| {
            let [receipt, status, result, original] = <[String; 4]>::try_from(row).unwrap();
            (receipt, Record { status, result: serde_json::from_str(&result).unwrap(), original })
        });
        Self(records.collect())
    }

    /// How the records contradict an answer, if they do.
    fn contradict(&self, Answer { call, envelope }: &Answer) -> Option<String> {
        let receipt = envelope["meta"]["correlation_id"].as_str();
        let record = receipt.and_then(|receipt| self.0.get(receipt));
        let status = record.map_or("missing", |record| record.status.as_str());
        let data = &envelope["data"];
        let holds = if envelope["success"] != true {
            envelope["error"]["code"] == "commit_outcome_unknown" || status != "success"
        } else if data["duplicate"] == true {
            let original = data["original_correlation_id"].as_str().unwrap();
            let of = self.0.get(original);
            // From memory there is no record of the duplicate itself, and its receipt is the original's.
            let is_receipt = receipt == Some(original)
                || status == "duplicate" && record.is_some_and(|record| record.original == original);
            is_receipt && of.is_some_and(|of| of.status == "success" && of.result == data["cached_result"])
        } else {
            status == "success" && record.is_some_and(|record| record.result == *data)
        };
        (!holds).then(|| format!("{call} was answered with {envelope}, and its record is {status}"))
    }
}
