//! Hints from the system catalogs for errors of PostgreSQL in writes. A failed transaction cannot run queries, so
//! they run after its rollback.

use pg::{PipelineStatement, ServerError, StatementResult};

/// The definition of a constraint or a unique index. It names columns but contains no values of rows.
const CONSTRAINT_SQL: &str = "\
select pg_catalog.format('Constraint %I of %I.%I: %s', $3::text, $1::text, $2::text, \
    coalesce(pg_catalog.pg_get_constraintdef(con.oid), pg_catalog.pg_get_indexdef(i.oid))) \
from pg_catalog.pg_namespace n join pg_catalog.pg_class c on c.relnamespace = n.oid \
left join pg_catalog.pg_constraint con on con.conrelid = c.oid and con.conname = $3::text \
left join pg_catalog.pg_class i on i.relnamespace = n.oid and i.relkind in ('i', 'I') and i.relname = $3::text \
where n.nspname = $1::text and c.relname = $2::text and (con.oid is not null or i.oid is not null)";

/// The trigger functions in PostgreSQL's CONTEXT ($1), the innermost one first. CONTEXT omits the schema of a
/// function that is in the search_path in force there.
macro_rules! innermost_trigger {
    () => {
        "from (select p.oid::pg_catalog.regprocedure::text as name, n.nspname as schema_name, \
        exists(select from pg_catalog.unnest(p.proconfig) c where pg_catalog.starts_with(c, 'search_path=')) as has_path, \
        case when p.prosecdef then pg_catalog.pg_get_userbyid(p.proowner) else current_user end as login, \
        (select pg_catalog.string_agg(pg_catalog.format('%I of %I.%I', t.tgname, tn.nspname, c.relname), ', ' \
            order by tn.nspname, c.relname, t.tgname) \
        from pg_catalog.pg_trigger t join pg_catalog.pg_class c on c.oid = t.tgrelid \
        join pg_catalog.pg_namespace tn on tn.oid = c.relnamespace \
        where t.tgfoid = p.oid and not t.tgisinternal) as triggers, \
        coalesce(nullif(pg_catalog.strpos($1::text, p.oid::pg_catalog.regprocedure::text), 0), \
            pg_catalog.strpos($1::text, pg_catalog.format(' %I()', p.proname))) as place \
    from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace \
    where p.prorettype = 'pg_catalog.trigger'::pg_catalog.regtype) f \
where f.place > 0 and f.triggers is not null"
    };
}

/// A trigger function that lacks a privilege, and the GRANT that it needs. The relations are found by name in
/// PostgreSQL's message ($2), as PostgreSQL quotes them there; $3 is the privilege.
const PRIVILEGE_SQL: &str = concat!(
    "select pg_catalog.format('%s runs as a trigger (%s) and needs a privilege that %I does not have.', \
        f.name, f.triggers, f.login) \
    || coalesce(pg_catalog.format(' The owner can grant it: GRANT %s TO %I;', \
        coalesce((select pg_catalog.format('USAGE ON SCHEMA %I', n.nspname) from pg_catalog.pg_namespace n \
            where pg_catalog.strpos($2::text, n.nspname) > 0 \
                and not pg_catalog.has_schema_privilege(f.login, n.oid, 'usage') \
            order by pg_catalog.length(n.nspname) desc limit 1), \
            (select pg_catalog.format('%s ON %I.%I', pg_catalog.upper($3::text), n.nspname, c.relname) \
            from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace \
            where c.relkind in ('r', 'p', 'v', 'f') and pg_catalog.strpos($2::text, c.relname) > 0 \
                and not pg_catalog.has_table_privilege(f.login, c.oid, $3::text) \
            order by pg_catalog.length(c.relname) desc, n.nspname limit 1)), f.login), '') ",
    innermost_trigger!(),
    " order by f.place limit 1"
);

/// A trigger function that finds a name in the search_path of its usual callers, but not in that of tools.
const SEARCH_PATH_SQL: &str = concat!(
    "select pg_catalog.format('%1$s runs as a trigger (%2$s), and looks names up in the search_path of its caller, which is %3$s \
here. The operator can add the schema to write_search_path, or its owner give it a path: ALTER FUNCTION %1$s SET search_path = %4$I, pg_temp;', \
        f.name, f.triggers, pg_catalog.current_setting('search_path'), f.schema_name) ",
    innermost_trigger!(),
    " and not f.has_path and f.schema_name <> all (pg_catalog.current_schemas(true)) order by f.place limit 1"
);

/// A query that turns an error into a hint.
#[derive(Debug, Clone)]
pub(crate) struct HintQuery {
    sql: &'static str,
    params: Vec<Option<String>>,
}

impl HintQuery {
    /// The query for an error about a constraint, or about a privilege or a name within a function; `None` for other
    /// errors.
    pub(crate) fn of(error: &ServerError) -> Option<Self> {
        let texts = |texts: &[&str]| texts.iter().map(|text| Some((*text).to_owned())).collect();
        match (error.sqlstate.as_str(), &error.context) {
            (INSUFFICIENT_PRIVILEGE, Some(context)) => {
                let params = texts(&[context, &error.message, privilege(context)]);
                Some(Self { sql: PRIVILEGE_SQL, params })
            }
            (UNDEFINED_TABLE | UNDEFINED_FUNCTION | UNDEFINED_OBJECT, Some(context)) => {
                Some(Self { sql: SEARCH_PATH_SQL, params: texts(&[context]) })
            }
            _ => {
                let name = vec![error.schema.clone(), error.table.clone(), error.constraint.clone()];
                name.iter().all(Option::is_some).then_some(Self { sql: CONSTRAINT_SQL, params: name })
            }
        }
    }

    pub(crate) fn step(&self) -> PipelineStatement<'_> {
        PipelineStatement::new(self.sql, &self.params)
    }

    /// The hint in the result of [`HintQuery::step`].
    pub(crate) fn hint(answer: Option<StatementResult>) -> Option<String> {
        answer?.into_value()
    }
}

/// insufficient_privilege: "permission denied for ..".
const INSUFFICIENT_PRIVILEGE: &str = "42501";
const UNDEFINED_TABLE: &str = "42P01";
const UNDEFINED_FUNCTION: &str = "42883";
const UNDEFINED_OBJECT: &str = "42704";

/// The privilege that the first statement in CONTEXT needs.
fn privilege(context: &str) -> &'static str {
    let quoted = context.split_once('"').map_or("", |(_, statement)| statement.trim_start());
    let starts_with = |word: &&str| quoted.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    ["insert", "update", "delete", "select"].into_iter().find(starts_with).unwrap_or("select, insert, update, delete")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_privilege_is_that_of_the_quoted_statement() {
        for (context, expected) in [
            ("SQL statement \"insert into s.log values (1)\"\nPL/pgSQL function s.f() line 1", "insert"),
            ("SQL-Anweisung »x«, \"\n  DELETE FROM s.log\"", "delete"),
            ("PL/pgSQL function s.f() line 1", "select, insert, update, delete"),
        ] {
            assert_eq!(privilege(context), expected);
        }
    }
}
