//! Values that a column does not usually have, by the statistics of PostgreSQL. They are for people: the writer's login
//! looks, and the agent may not be allowed to read the column.

use std::time::Duration;

use pg::WriterPool;
use pg::value::text_array;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;
use types::{ColumnEffect, Effects, RowEffect};

/// The maximum number of values that are looked up, and their maximum length in characters.
const MAX_LOOKED_UP: usize = 500;
/// The number of least values of a column that are looked up if it has many, and of greatest ones.
const MAX_ENDS: usize = 50;
const MAX_VALUE_CHARS: usize = 200;

/// The time limit of the look-up.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A new value that differs from all that the statistics know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnusualValue {
    pub table: String,
    pub column: String,
    pub value: String,
    /// The number of values that the statistics list; `None` for a number or time that is far outside of them.
    pub listed: Option<u64>,
    /// The day of the statistics, in UTC; `None` if it is unknown.
    pub analyzed: Option<String>,
}

/// `pg_stats` has the columns that the login may select, of tables without row security for it. A list counts if it is
/// the whole column, and bounds if the value is further outside of them than they are apart: a number that grows is not
/// unusual. The only number of a column is as far from 0 as its bounds are apart. Keys are never looked up.
const UNUSUAL_SQL: &str = "\
with given as materialized ( \
    select g.place, g.value, s.n_distinct, s.null_frac, s.most_common_freqs, s.histogram_bounds is not null as has_more, \
        y.typcategory in ('S', 'E') as is_text, y.typcategory = 'D' as is_time, \
        s.most_common_vals::text::text[] as common, s.histogram_bounds::text::text[] as bounds, \
        greatest(pg_stat_get_last_analyze_time(c.oid), pg_stat_get_last_autoanalyze_time(c.oid)) as analyzed \
    from unnest($1::text[], $2::text[], $3::text[]) with ordinality g (table_name, column_name, value, place) \
    join countersign.tracked t on t.name = g.table_name and t.is_current \
    join pg_class c on c.oid = t.relation and c.reltuples >= 100 \
    join pg_namespace n on n.oid = c.relnamespace \
    join pg_attribute a on a.attrelid = c.oid and a.attname = g.column_name and not a.attisdropped \
    join pg_type y on y.oid = a.atttypid and (y.typcategory in ('S', 'E') or y.oid in ('int2'::regtype, 'int4'::regtype, \
        'int8'::regtype, 'numeric'::regtype, 'float4'::regtype, 'float8'::regtype, 'date'::regtype, 'timestamp'::regtype, \
        'timestamptz'::regtype)) \
    join pg_stats s on s.schemaname = n.nspname and s.tablename = c.relname and s.attname = a.attname \
        and s.inherited = (c.relkind = 'p') \
    where not exists (select from pg_constraint k where k.conrelid = c.oid and k.contype in ('p', 'u', 'f') \
        and a.attnum = any (k.conkey)) \
), known as ( \
    select g.*, cardinality(g.common) as listed, g.null_frac + (select sum(f) from unnest(g.most_common_freqs) f) as covered \
    from given g \
) \
select k.place - 1, case when k.is_text then k.listed end, to_char(k.analyzed at time zone 'UTC', 'YYYY-MM-DD') from known k \
cross join lateral ( \
    select r.low, r.high, r.number, case when r.low < r.high then r.high - r.low \
        when not k.is_time and not k.has_more and k.covered > 0.99 then nullif(abs(r.high), 0) end as spread \
    from (select min(n.number) filter (where not n.is_new) as low, max(n.number) filter (where not n.is_new) as high, \
        max(n.number) filter (where n.is_new) as number from (select v.is_new, case when k.is_time then extract(epoch from v.value::timestamptz) else v.value::numeric end as number \
          from (select true as is_new, k.value union all select false, o from unnest(k.common || k.bounds) o) v \
          where not k.is_text) n) r \
) b \
where case when k.is_text \
    then not k.has_more and k.listed between 2 and 100 and k.listed >= k.n_distinct and k.n_distinct > 0 and k.covered > 0.99 \
        and k.value <> all (k.common) \
    else b.number < b.low - b.spread or b.number > b.high + b.spread end \
order by k.place limit 10";

/// The unusual values among those that a write would store, at most 10. Without statistics there are none.
pub(super) async fn of_effects(
    writer: &WriterPool,
    effects: Option<&Effects<Value>>,
    deadline: Instant,
) -> Vec<UnusualValue> {
    let stored = ends(effects.into_iter().flat_map(|effects| &effects.rows).flat_map(stored).collect());
    if stored.is_empty() {
        return Vec::new();
    }
    let all = |part: usize| stored.iter().filter_map(move |place| place.get(part)).map(|text| (*text).to_owned());
    let params: Vec<Option<String>> = (0..3).map(|part| Some(text_array(&all(part).collect::<Vec<_>>()))).collect();
    let found = match writer.run_one(UNUSUAL_SQL, &params, deadline.min(Instant::now() + TIMEOUT)).await {
        Ok(found) => found.rows,
        Err(error) => {
            tracing::debug!(%error, "the statistics of the changed columns cannot be read");
            return Vec::new();
        }
    };
    let value = |row: Vec<Option<String>>| {
        let [place, listed, analyzed] = <[Option<String>; 3]>::try_from(row).ok()?;
        let [table, column, value] = stored.get(place?.parse::<usize>().ok()?)?.map(str::to_owned);
        Some(UnusualValue { table, column, value, listed: listed.and_then(|listed| listed.parse().ok()), analyzed })
    };
    found.into_iter().filter_map(value).collect()
}

/// The values to look up. Of many numbers of a column, the least and the greatest: those are far outside first.
fn ends(stored: Vec<[&str; 3]>) -> Vec<[&str; 3]> {
    let numbered = stored
        .into_iter()
        .map(|[table, column, value]| (table, column, value.parse::<f64>().unwrap_or_default(), value));
    let mut numbered: Vec<_> = numbered.collect();
    numbered.sort_unstable_by(|(table, column, number, value), (other_table, other_column, other_number, other)| {
        let by_number = number.total_cmp(other_number).then(value.cmp(other));
        (table, column).cmp(&(other_table, other_column)).then(by_number)
    });
    let mut stored: Vec<[&str; 3]> =
        numbered.into_iter().map(|(table, column, _, value)| [table, column, value]).collect();
    stored.dedup();
    let columns = stored.chunk_by(|[table, column, _], [next_table, next, _]| (table, column) == (next_table, next));
    let is_end = |at: usize, count: usize| at < MAX_ENDS || at + MAX_ENDS >= count;
    let ends = columns.flat_map(|values| {
        values.iter().enumerate().filter(|(at, _)| is_end(*at, values.len())).map(|(_, value)| *value)
    });
    ends.take(MAX_LOOKED_UP).collect()
}

/// The table, the column and the text of each value that a row would have.
fn stored(row: &RowEffect<Value>) -> impl Iterator<Item = [&str; 3]> {
    let is_key = |name: &String| row.key.as_ref().is_some_and(|key| key.contains_key(name));
    let columns = row.columns.iter().filter(move |(name, _)| !is_key(name) && !row.generated.contains(name));
    columns.filter_map(|(name, effect)| {
        let value = match (effect, row.change) {
            (_, types::ChangeKind::Delete) => return None,
            (ColumnEffect::Changed { after, .. }, _) => after,
            (ColumnEffect::Whole(value), _) => value,
        };
        let value = value.as_str().filter(|text| text.chars().nth(MAX_VALUE_CHARS).is_none())?;
        Some([row.table.as_str(), name.as_str(), value])
    })
}
