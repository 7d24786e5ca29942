//! The tree of the log, as it is stored in the database: its size and its tiles.

use std::collections::BTreeSet;

use pg::Session;
use tlog::{Hash, TileId, TileSet};

use super::{ask, number, one_row, unreadable};

// This calls no function of the ledger. An auditor may only read tables, and a person who can alter records can alter
// functions as well.
const STATE_SQL: &str = "\
    select i.no::text, (select coalesce(max(l.leaf_index) + 1, 0) from countersign.leaf l where l.log_no = i.no)::text \
    from (select max(no) as no from countersign.identity) i";
const LEAVES_SQL: &str = "select encode(string_agg(l.hash, '' order by l.leaf_index), 'hex') from countersign.leaf l \
    where l.log_no = $1::integer and l.leaf_index >= $2::bigint and l.leaf_index < $3::bigint";
const NODES_SQL: &str = "select encode(string_agg(n.hash, '' order by n.node_index), 'hex') from countersign.tree_node n \
    where n.log_no = $1::integer and n.node_index >= $2::bigint and n.node_index < $3::bigint and n.level = $4::integer";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LogState {
    /// `identity.no`.
    pub(super) log_no: i64,
    /// The number of its leaves.
    pub(super) size: u64,
}

impl LogState {
    pub(super) async fn load(session: &mut Session) -> Result<Self, pg::Error> {
        let [log_no, size] = one_row(ask(session, STATE_SQL, &[]).await?)?;
        Ok(Self { log_no: number(log_no.as_ref())?, size: unsigned(size.as_ref())? })
    }
}

/// Loads tiles of a log, with the widths that the ids name. A tile that the database lacks is omitted.
pub(super) async fn tiles(
    session: &mut Session,
    log_no: i64,
    ids: impl IntoIterator<Item = TileId>,
) -> Result<TileSet, pg::Error> {
    let mut set = TileSet::default();
    for id in ids.into_iter().collect::<BTreeSet<_>>() {
        let first = id.index() * 256;
        let mut params = vec![log_no.to_string(), first.to_string(), (first + u64::from(id.width())).to_string()];
        let sql = if id.level() == 0 {
            LEAVES_SQL
        } else {
            params.push(id.level().to_string());
            NODES_SQL
        };
        let params: Vec<_> = params.into_iter().map(Some).collect();
        let [hashes] = one_row(ask(session, sql, &params).await?)?;
        let hashes = hashes.map_or_else(|| Ok(Vec::new()), |hex| hash_list(&hex))?;
        if hashes.len() == usize::from(id.width()) {
            set.insert(id, hashes);
        }
    }
    Ok(set)
}

/// Parses concatenated hashes in hexadecimal.
pub(super) fn hash_list(hex: &str) -> Result<Vec<Hash>, pg::Error> {
    hex.as_bytes()
        .chunks(64)
        .map(|digits| std::str::from_utf8(digits).map_or_else(|_| Err(unreadable()), hash))
        .collect()
}

pub(super) fn hash(hex: &str) -> Result<Hash, pg::Error> {
    Hash::from_hex(hex).ok_or_else(unreadable)
}

/// Parses a number that is not negative; NULL is 0.
pub(super) fn unsigned(text: Option<&String>) -> Result<u64, pg::Error> {
    u64::try_from(number(text)?).map_err(|_| unreadable())
}
