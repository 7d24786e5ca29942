//! The columns that a reader of the ledger may not select in their own tables.

use pg::value::text_array;
use types::MaskedColumn;

use super::Audit;

/// The positions, from 1, of the given columns that the login may not select, or that do not exist.
const UNREADABLE_SQL: &str = "\
select m.place from rows from (unnest($1::text[]), unnest($2::text[]), unnest($3::text[])) \
    with ordinality m (schema_name, table_name, column_name, place) \
left join pg_namespace n on n.nspname = m.schema_name \
left join pg_class c on c.relnamespace = n.oid and c.relname = m.table_name \
left join pg_attribute a on a.attrelid = c.oid and a.attname = m.column_name and a.attnum > 0 and not a.attisdropped \
where a.attnum is null or not has_schema_privilege(n.oid, 'usage') or not has_column_privilege(c.oid, a.attnum, 'select')";

impl Audit {
    /// The given columns that the login of this ledger may not select.
    pub async fn unreadable(&self, columns: &[MaskedColumn]) -> Result<Vec<MaskedColumn>, pg::Error> {
        let names =
            |of: fn(&MaskedColumn) -> &String| Some(text_array(&columns.iter().map(of).cloned().collect::<Vec<_>>()));
        let params = [names(|it| &it.schema), names(|it| &it.table), names(|it| &it.column)];
        let rows = self.ask(UNREADABLE_SQL, &params).await?;
        let places = rows.into_iter().flatten().flatten().filter_map(|place| place.parse::<usize>().ok());
        Ok(places.filter_map(|place| columns.get(place.checked_sub(1)?)).cloned().collect())
    }
}
