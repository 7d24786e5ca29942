//! Types by oid. PostgreSQL's own come from a built-in table; all others are looked up in the catalog once.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};

use postgres_types::{Kind, Type};
use types::{CompositeField, PgType, Scalar, TypeKind};

use crate::client::error::Error;
use crate::client::session::{PipelineStatement, Session};
use crate::client::wire::{Connection, StatementId};

/// The known types of a database, shared by all sessions on it.
#[derive(Debug, Default)]
pub struct TypeCatalog {
    by_oid: RwLock<HashMap<u32, Arc<PgType>>>,
}

// A cast to json counts under the same conditions as in `to_jsonb` (`jsonb_categorize_type`,
// `find_coercion_pathway`): only for types that are not PostgreSQL's own (16384 is `FirstNormalObjectId`), and not
// for arrays, row types or domains.
const TYPE_SQL: &str = "\
select t.typname, t.typtype, t.typelem, t.typbasetype, t.typrelid, \
       t.typsubscript = 'pg_catalog.array_subscript_handler'::pg_catalog.regproc, t.oid >= 16384 and exists( \
         select from pg_catalog.pg_cast c where c.castsource = t.oid \
         and c.casttarget = 'pg_catalog.json'::pg_catalog.regtype and c.castmethod = 'f'), e.typdelim \
from pg_catalog.pg_type t left join pg_catalog.pg_type e on e.oid = t.typelem where t.oid = $1";
const LABELS_SQL: &str = "select enumlabel from pg_catalog.pg_enum where enumtypid = $1 order by enumsortorder";
const FIELDS_SQL: &str = "\
select attname, atttypid from pg_catalog.pg_attribute \
where attrelid = $1 and attnum > 0 and not attisdropped order by attnum";

/// Also sent among the statements of a read, under its search path.
const ROWS_SQL: &str = "\
select coalesce(pg_catalog.string_agg(pg_catalog.concat_ws(' ', t.oid, a.atttypid, a.attname), e'\\n' \
       order by t.oid, a.attnum), '') \
from pg_catalog.pg_type t join pg_catalog.pg_attribute a on a.attrelid operator(pg_catalog.=) t.typrelid \
where t.oid operator(pg_catalog.=) any($1::pg_catalog.oid[]) and a.attnum operator(pg_catalog.>) 0 and not a.attisdropped";

/// Set the search path of a transaction to PostgreSQL's own schema for one statement of the server, and restore it.
pub(crate) const SET_PATH_SQL: &str = "select pg_catalog.set_config('countersign.search_path', pg_catalog.current_setting('search_path'), true), \
     pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true)";
pub(crate) const RESTORE_PATH_SQL: &str =
    "select pg_catalog.set_config('search_path', pg_catalog.current_setting('countersign.search_path'), true)";

/// The row types among some types, with their fields as they were looked up. Row types are the types that may change
/// after the lookup: a table's row type changes when a column is added or renamed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RowTypes {
    /// An array of oids in text form.
    oids: String,
    fields: String,
}

impl RowTypes {
    /// `None` if there are no row types.
    pub(crate) fn of<'a>(types: impl Iterator<Item = &'a Arc<PgType>>) -> Option<Self> {
        let mut found = BTreeMap::new();
        types.for_each(|ty| collect_rows(ty, &mut found));
        if found.is_empty() {
            return None;
        }
        let fields = found
            .iter()
            .flat_map(|(oid, fields)| fields.iter().map(move |field| format!("{oid} {} {}", field.ty.oid, field.name)));
        let oids: Vec<String> = found.keys().map(u32::to_string).collect();
        let oids = format!("{{{}}}", oids.join(","));
        Some(Self { oids, fields: fields.collect::<Vec<_>>().join("\n") })
    }

    /// Queues a query for the current fields. It returns one row of one column, which [`RowTypes::are`] compares.
    pub(crate) fn push(&self, connection: &mut Connection) -> Result<StatementId, Error> {
        let statement = connection.next_statement();
        // The statement may exist from an earlier call.
        connection.push_close_statement(ROWS_STATEMENT)?;
        connection.push_parse(ROWS_STATEMENT, ROWS_SQL, &[])?;
        connection.push_bind("", ROWS_STATEMENT, &[Some(self.oids.clone())])?;
        connection.push_execute("", 0)?;
        Ok(statement)
    }

    /// Whether the fields are those in the catalog's answer.
    pub(crate) fn are(&self, answer: &[Option<String>]) -> bool {
        matches!(answer, [Some(fields)] if *fields == self.fields)
    }

    /// Asks the catalog in a round trip of its own.
    pub(crate) async fn are_current(&self, session: &mut Session) -> Result<bool, Error> {
        let rows = session.rows(ROWS_SQL, &[Some(self.oids.clone())]).await?;
        Ok(rows.first().is_some_and(|row| self.are(row)))
    }
}

/// The name of the statement. An unnamed statement would replace another one.
const ROWS_STATEMENT: &str = "countersign_rows";

fn collect_rows<'a>(ty: &'a PgType, found: &mut BTreeMap<u32, &'a [CompositeField]>) {
    match &ty.kind {
        TypeKind::Scalar(_) | TypeKind::Enum(_) => {}
        TypeKind::Array { element, .. } => collect_rows(element, found),
        TypeKind::Domain(base) => collect_rows(base, found),
        TypeKind::Composite(fields) => {
            found.insert(ty.oid, fields);
            fields.iter().for_each(|field| collect_rows(&field.ty, found));
        }
    }
}

impl TypeCatalog {
    /// The type with this oid. If it is not one of PostgreSQL's own, the first call looks it up in the catalog,
    /// through `session`.
    pub async fn resolve(&self, session: &mut Session, oid: u32) -> Result<Arc<PgType>, Error> {
        if let Some(known) = self.known(oid) {
            return Ok(known);
        }
        let ty = match Type::from_oid(oid).and_then(|ty| built_in(&ty)) {
            Some(ty) => Arc::new(ty),
            None => Arc::new(self.look_up(session, oid).await?),
        };
        self.by_oid.write().unwrap_or_else(PoisonError::into_inner).insert(oid, Arc::clone(&ty));
        Ok(ty)
    }

    /// The types with these oids.
    pub async fn resolve_all(&self, session: &mut Session, oids: &[u32]) -> Result<Vec<Arc<PgType>>, Error> {
        let mut types = Vec::with_capacity(oids.len());
        for &oid in oids {
            types.push(self.resolve(session, oid).await?);
        }
        Ok(types)
    }

    /// Forgets all types, after a row type has changed: other types may contain it.
    pub(crate) fn forget(&self) {
        self.by_oid.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn known(&self, oid: u32) -> Option<Arc<PgType>> {
        self.by_oid.read().unwrap_or_else(PoisonError::into_inner).get(&oid).cloned()
    }

    // Boxed because types nest: an array of rows of domains.
    fn look_up<'a>(
        &'a self,
        session: &'a mut Session,
        oid: u32,
    ) -> Pin<Box<dyn Future<Output = Result<PgType, Error>> + Send + 'a>> {
        Box::pin(async move {
            let rows = session.rows(TYPE_SQL, &[Some(oid.to_string())]).await?;
            let Some(
                [
                    Some(name),
                    Some(kind),
                    Some(element),
                    Some(base),
                    Some(relation),
                    Some(is_array),
                    Some(has_cast),
                    delimiter,
                ],
            ) = rows.into_iter().next().and_then(|row| <[Option<String>; 8]>::try_from(row).ok())
            else {
                // The type has been dropped since. Its values can still be shown as text.
                return Ok(PgType { oid, name: format!("type {oid}"), kind: TypeKind::Scalar(Scalar::Text) });
            };
            let oid_of = |text: &str| text.parse::<u32>().unwrap_or_default();
            if is_array == "t" {
                let element = self.resolve(session, oid_of(&element)).await?;
                let delimiter = delimiter.and_then(|text| text.chars().next()).unwrap_or(',');
                return Ok(PgType {
                    oid,
                    name: format!("{}[]", element.name),
                    kind: TypeKind::Array { element, delimiter },
                });
            }
            let kind = match kind.as_str() {
                "d" => TypeKind::Domain(self.resolve(session, oid_of(&base)).await?),
                "c" => TypeKind::Composite(self.fields(session, &relation).await?),
                _ if has_cast == "t" => TypeKind::Scalar(Scalar::JsonCast),
                "e" => TypeKind::Enum(first_column(session.rows(LABELS_SQL, &[Some(oid.to_string())]).await?)),
                _ => TypeKind::Scalar(Scalar::Text),
            };
            Ok(PgType { oid, name, kind })
        })
    }

    async fn fields(&self, session: &mut Session, relation: &str) -> Result<Vec<CompositeField>, Error> {
        let mut fields = Vec::new();
        for row in session.rows(FIELDS_SQL, &[Some(relation.to_owned())]).await? {
            if let Ok([Some(name), Some(ty)]) = <[Option<String>; 2]>::try_from(row) {
                let ty = self.resolve(session, ty.parse().unwrap_or_default()).await?;
                fields.push(CompositeField { name, ty });
            }
        }
        Ok(fields)
    }
}

fn first_column(rows: Vec<Vec<Option<String>>>) -> Vec<String> {
    rows.into_iter().filter_map(|row| row.into_iter().next().flatten()).collect()
}

/// One of PostgreSQL's own types; `None` for row types, which are looked up in the catalog.
fn built_in(ty: &Type) -> Option<PgType> {
    let kind = match ty.kind() {
        _ if *ty == Type::RECORD => TypeKind::Scalar(Scalar::Record),
        _ if *ty == Type::RECORD_ARRAY => {
            let element = Arc::new(built_in(&Type::RECORD)?);
            TypeKind::Array { element, delimiter: ',' }
        }
        Kind::Array(element) if *ty != Type::INT2_VECTOR && *ty != Type::OID_VECTOR => {
            let delimiter = if *element == Type::BOX { ';' } else { ',' };
            let element = Arc::new(built_in(element)?);
            let name = format!("{}[]", element.name);
            return Some(PgType { oid: ty.oid(), name, kind: TypeKind::Array { element, delimiter } });
        }
        Kind::Composite(_) | Kind::Domain(_) | Kind::Enum(_) => return None,
        _ => TypeKind::Scalar(scalar(ty)),
    };
    let name = if *ty == Type::RECORD_ARRAY { "record[]" } else { ty.name() };
    Some(PgType { oid: ty.oid(), name: name.to_owned(), kind })
}

fn scalar(ty: &Type) -> Scalar {
    match *ty {
        Type::BOOL => Scalar::Bool,
        Type::INT2 => Scalar::Int2,
        Type::INT4 => Scalar::Int4,
        Type::INT8 => Scalar::Int8,
        Type::FLOAT4 | Type::FLOAT8 => Scalar::Float,
        Type::NUMERIC => Scalar::Numeric,
        Type::JSON | Type::JSONB => Scalar::Json,
        Type::DATE => Scalar::Date,
        Type::TIMESTAMP => Scalar::Timestamp,
        Type::TIMESTAMPTZ => Scalar::Timestamptz,
        Type::UUID => Scalar::Uuid,
        Type::INT2_VECTOR | Type::OID_VECTOR => Scalar::Vector,
        _ => Scalar::Text,
    }
}

impl Session {
    /// The rows of one of the server's own statements, as text. Unqualified names in it always mean PostgreSQL's own
    /// objects, whatever the session's search path is.
    pub(crate) async fn rows(
        &mut self,
        sql: &str,
        params: &[Option<String>],
    ) -> Result<Vec<Vec<Option<String>>>, Error> {
        let step = PipelineStatement::new(sql, params);
        let outcomes = if self.has_system_path {
            self.run(&[step]).await
        } else {
            self.run(&[
                PipelineStatement::without_params(SET_PATH_SQL),
                step,
                PipelineStatement::without_params(RESTORE_PATH_SQL),
            ])
            .await
        };
        let mut outcomes = outcomes.map_err(|failed| failed.error)?;
        Ok(outcomes.drain(..).nth(usize::from(!self.has_system_path)).map(|outcome| outcome.rows).unwrap_or_default())
    }
}
