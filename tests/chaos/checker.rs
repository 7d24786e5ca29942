//! The checker compares the tables, the ledger and the answers that the agents got. Each text that it returns is a broken promise.

use std::collections::{HashMap, HashSet};

use serde_json::Value;
use testkit::Database;

use super::load::{Answer, Journal};
use super::operator::{Operations, Run};

/// What must not have any row, and what it means if it has.
const CONTRADICTIONS: [(&str, &str); 18] = [
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
         where a.tool_name = 'post_tweet' and a.status = 'success' and (countersign.reversal_state(a.correlation_id)).effective_as is not null
           and not exists (select from social.tweet t
                           where t.id = (a.result->>'id')::bigint and t.text = a.params->>'text')",
    ),
    (
        "a success record of post_tweet was undone and has its row still there",
        "select a.correlation_id, a.params from countersign.record a
         join social.tweet t on t.id = (a.result->>'id')::bigint
         where a.tool_name = 'post_tweet' and a.status = 'success' and (countersign.reversal_state(a.correlation_id)).effective_as is null",
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
        "an undo has not marked what it undid",
        "select u.correlation_id, w from countersign.record u cross join unnest(u.undo_of) w where u.status = 'success'
         and not exists (select from countersign.reversal v where v.correlation_id = w and v.reversed_by = u.correlation_id)",
    ),
    (
        "a write was undone twice",
        "select w, string_agg(u.correlation_id::text, ' ') from countersign.record u cross join unnest(u.undo_of) w
         where u.status = 'success' group by w having count(*) > 1",
    ),
    (
        "a write is marked as reversed, and a row of it was not put back",
        "select v.correlation_id, v.reversed_by, e.relation::regclass, e.key from countersign.reversal v
         join countersign.effect e on e.correlation_id = v.correlation_id
         where not exists (select from countersign.effect u
                           where u.correlation_id = v.reversed_by and u.relation = e.relation and u.key = e.key)",
    ),
    (
        "an undo of a plan is none of the parts that were shown",
        "select u.correlation_id, u.params from countersign.record u
         left join countersign.stored_plan p on p.plan_id = (u.params->>'plan_id')::uuid
         where u.tool_name = 'undo_run' and u.status = 'success' and not exists (
             select from json_array_elements(p.parts) part
             where array(select json_array_elements_text(part->'writes')::uuid) = u.undo_of)",
    ),
    (
        "a row is not what its last effect left",
        "with last as (
             select distinct on (e.relation, e.key) e.relation, e.after from countersign.effect e
             where e.relation in ('chaos.entry'::regclass, 'chaos.total'::regclass) order by e.relation, e.key, e.position desc
         ), there as (
             select 'chaos.entry'::regclass::oid as relation, t::text as image from chaos.entry t
             union all select 'chaos.total'::regclass, t::text from chaos.total t
         )
         (select relation::regclass, after, 'is not there' from last where after is not null
          except all select relation::regclass, image, 'is not there' from there)
         union all
         (select relation::regclass, image, 'has no effect' from there
          except all select relation::regclass, after, 'has no effect' from last where after is not null)",
    ),
    (
        "an entry stands and is not there, or was taken back and is there",
        "select a.correlation_id, a.params, t.id from countersign.record a
         left join chaos.entry t on t.id = (a.result->>'id')::bigint and t.text = a.params->>'text'
         where a.tool_name = 'add_entry' and a.status = 'success'
           and ((countersign.reversal_state(a.correlation_id)).effective_as is null) <> (t.id is null)",
    ),
    (
        "an entry has not exactly one success record",
        "select t.id, t.text, count(a.id) from chaos.entry t left join countersign.record a
             on a.tool_name = 'add_entry' and a.status = 'success' and (a.result->>'id')::bigint = t.id
         group by t.id having count(a.id) <> 1",
    ),
    (
        "a total is not the sum of what stands",
        "with recorded as (
             select (a.params->>'id')::bigint as id, sum((a.params->>'amount')::bigint) as amount from countersign.record a
             where a.tool_name = 'add_to_total' and a.status = 'success'
               and (countersign.reversal_state(a.correlation_id)).effective_as is not null group by 1
         )
         select id, recorded.amount, t.amount from recorded full join chaos.total t using (id)
         where recorded.amount is distinct from t.amount",
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

pub(super) async fn check(db: &Database, journal: &Journal, operations: &Operations) -> Vec<String> {
    let mut broken = journal.surprises.clone();
    for (meaning, sql) in CONTRADICTIONS {
        broken.extend(db.rows(sql).await.iter().map(|row| format!("{meaning}: {}", row.join(", "))));
    }
    let records = Records::read(db).await;
    broken.extend(journal.answers.iter().filter_map(|answer| records.contradict(answer)));
    broken.extend(not_as_told(db, journal).await);
    broken.extend(operator_not_as_told(db, operations).await);
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
    let keys =
        "select idempotency_key from countersign.record where status = 'success' and idempotency_key is not null";
    let keys: HashSet<String> = db.rows(keys).await.concat().into_iter().collect();
    let missing = journal.written.iter().filter(|key| !keys.contains(*key));
    broken
        .extend(missing.map(|key| format!("the write with the key {key} was acknowledged, and has no success record")));
    let liked = db.rows("select tweet_id from social.tweet_like where account_id = 'default'").await.concat();
    for (tweet, expected) in &journal.likes {
        if liked.contains(&tweet.to_string()) != *expected {
            broken.push(format!("that tweet {tweet} is liked was acknowledged as {expected}, and is not so"));
        }
    }
    broken
}

/// What the operator knows from the commands alone.
async fn operator_not_as_told(db: &Database, operations: &Operations) -> Vec<String> {
    let mut broken = Vec::new();
    let undos = "select coalesce(params->>'plan_id', params->>'correlation_id'), correlation_id from countersign.record \
                 where status = 'success' and tool_name in ('undo_run', 'undo_mutation')";
    let mut recorded: HashMap<String, HashSet<String>> = HashMap::new();
    for row in db.rows(undos).await {
        let [subject, undo] = <[String; 2]>::try_from(row).unwrap();
        recorded.entry(subject).or_default().insert(undo);
    }
    let reversed = db.rows("select correlation_id from countersign.reversal").await.concat();
    let reversed: HashSet<String> = reversed.into_iter().collect();
    let mut runs: HashMap<&str, Vec<&Run>> = HashMap::new();
    for run in &operations.runs {
        runs.entry(&run.subject).or_default().push(run);
    }
    for (subject, runs) in runs {
        let told: Vec<String> = runs.iter().flat_map(|run| run.undone()).collect();
        let distinct: HashSet<String> = told.iter().cloned().collect();
        let recorded = recorded.remove(subject).unwrap_or_default();
        if distinct.len() < told.len() {
            broken.push(format!("{subject}: two commands have reported the same undo: {told:?}"));
        }
        let is_in_doubt = runs.iter().any(|run| run.is_in_doubt());
        if !distinct.is_subset(&recorded) || !is_in_doubt && distinct != recorded {
            broken.push(format!("{subject}: the commands have reported {told:?}, the records are {recorded:?}"));
        }
        let writes = operations.writes.get(subject).into_iter().flatten();
        let standing: Vec<&String> = writes.filter(|write| !reversed.contains(*write)).collect();
        if runs.iter().any(|run| run.says_all_undone()) && !standing.is_empty() {
            broken.push(format!("the plan {subject} was carried out, and does not count as undone: {standing:?}"));
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
