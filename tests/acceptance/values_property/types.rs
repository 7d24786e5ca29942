//! Types: those of the table below, arrays of them, records, and arrays of records.

use proptest::collection::vec;
use proptest::prelude::*;

use super::{ranges, values as v};

/// User-defined types, and the extensions whose types are tested.
pub(super) const SETUP: &str = r#"
create extension hstore;
create extension citext;
create extension ltree;
create extension cube;
create extension seg;
create extension isn;
create extension intarray;
create schema p;
create type p.mood as enum ('sad', 'a,b', '{x}', 'NULL', '"q"', ' sp ', 'b\', 'é''');
create type p.shade as enum ('light', 'da"rk');
create function p.shade_json(p.shade) returns json language sql immutable as $$ select json_build_array($1::text, 1.50) $$;
create cast (p.shade as json) with function p.shade_json(p.shade);
create domain p.count as int check (value >= 0);
create domain p.label as text;
create domain p.pairs as int[];
create domain p.attributes as hstore;
create type p.nothing as ();
create type p.one as (a text);
create type p.inner as (n numeric, t text, tags text[], m p.mood);
create domain p.checked as p.inner;
create type p.outer as (i p.inner, many p.inner[], d p.pairs, "odd ""name\" timestamptz, c p.checked);
create type p.mixed as (j json, h hstore, s p.shade[], a p.attributes);
create type p.deep as (o p.outer[], l p.label[], x p.mixed);
create type p.textrange as range (subtype = text, collation = "C");
"#;

/// An expression and what it is.
#[derive(Debug, Clone)]
pub(super) struct Sample {
    pub(super) type_name: String,
    pub(super) expression: String,
    /// Its JSON is taken as a parameter of that type, and says everything.
    pub(super) goes_back: bool,
}

#[derive(Debug, Clone, Copy)]
struct Named {
    name: &'static str,
    values: fn() -> BoxedStrategy<String>,
    /// It can be inside a record: it has a binary send function.
    in_records: bool,
    goes_back: Back,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Back {
    Yes,
    /// In an array of several dimensions they cannot be distinguished from its inner arrays.
    Flat,
    /// A cast to json has no way back, and records are no parameters.
    No,
}

const fn named(name: &'static str, values: fn() -> BoxedStrategy<String>) -> Named {
    Named { name, values, in_records: true, goes_back: Back::Yes }
}

const fn textual(name: &'static str, values: fn() -> BoxedStrategy<String>) -> Named {
    Named { name, values, in_records: false, goes_back: Back::Yes }
}

const fn flat(name: &'static str, values: fn() -> BoxedStrategy<String>) -> Named {
    Named { name, values, in_records: true, goes_back: Back::Flat }
}

const fn one_way(name: &'static str, values: fn() -> BoxedStrategy<String>) -> Named {
    Named { name, values, in_records: true, goes_back: Back::No }
}

const NAMED: &[Named] = &[
    named("bool", v::bool),
    named("int2", v::int2),
    named("int4", v::int4),
    named("int8", v::int8),
    named("float4", v::float4),
    named("float8", v::float8),
    named("numeric", v::numeric),
    named("money", v::money),
    named("text", v::text),
    named("varchar", v::varchar),
    named("char(5)", v::bpchar),
    named("name", v::name),
    named("\"char\"", v::char),
    named("bytea", v::bytea),
    named("date", v::date),
    named("time", v::time),
    named("timetz", v::timetz),
    named("timestamp", v::timestamp),
    named("timestamptz", v::timestamptz),
    named("interval", v::interval),
    named("uuid", v::uuid),
    named("inet", v::inet),
    named("cidr", v::cidr),
    named("macaddr", v::macaddr),
    named("macaddr8", v::macaddr8),
    flat("json", v::json),
    flat("jsonb", v::jsonb),
    named("varbit", v::varbit),
    named("point", v::point),
    named("lseg", v::lseg),
    named("box", v::box_),
    named("path", v::path),
    named("polygon", v::polygon),
    named("circle", v::circle),
    named("xml", v::xml),
    named("tsvector", v::tsvector),
    named("tsquery", v::tsquery),
    named("jsonpath", v::jsonpath),
    named("int4range", ranges::int4range),
    named("int8range", ranges::int8range),
    named("numrange", ranges::numrange),
    named("tstzrange", ranges::tstzrange),
    named("daterange", ranges::daterange),
    named("nummultirange", ranges::nummultirange),
    named("p.textrange", ranges::textrange),
    named("p.textmultirange", ranges::textmultirange),
    named("oid", v::oid),
    named("regclass", v::regclass),
    named("regtype", v::regtype),
    named("pg_lsn", v::pg_lsn),
    named("xid8", v::xid8),
    named("tid", v::tid),
    named("txid_snapshot", v::snapshot),
    flat("int2vector", v::int2vector),
    flat("oidvector", v::oidvector),
    named("citext", v::citext),
    named("ltree", v::ltree),
    named("cube", v::cube),
    textual("seg", v::seg),
    textual("isbn13", v::isbn13),
    textual("query_int", v::query_int),
    one_way("hstore", v::hstore),
    one_way("p.shade", v::shade),
    one_way("p.attributes", v::attributes),
    named("p.mood", v::mood),
    named("p.count", v::count),
    named("p.label", v::label),
    flat("p.pairs", v::pairs),
    named("p.nothing", v::nothing),
    named("p.one", v::one),
    named("p.inner", v::inner),
    named("p.checked", v::checked),
    named("p.outer", v::outer),
    one_way("p.mixed", v::mixed),
    one_way("p.deep", v::deep),
];

#[derive(Debug, Clone)]
enum Ty {
    Named(Named),
    /// Of one dimension, if it is to go back.
    Array(Box<Ty>),
    Record(Vec<Ty>),
}

impl Ty {
    fn name(&self) -> String {
        match self {
            Self::Named(named) => named.name.to_owned(),
            Self::Array(element) => format!("{}[]", element.name()),
            Self::Record(_) => "record".to_owned(),
        }
    }

    fn back(&self) -> Back {
        match self {
            Self::Named(named) => named.goes_back,
            Self::Array(element) => element.back(),
            Self::Record(_) => Back::No,
        }
    }
}

/// A value of every type of the table and an array of it, some records, and arrays of them; NULL now and then.
pub(super) fn samples() -> impl Strategy<Value = Vec<Sample>> {
    let named = NAMED.iter().map(|named| sample(&Ty::Named(*named)));
    let arrays = NAMED.iter().flat_map(|named| {
        let ty = Ty::Array(Box::new(Ty::Named(*named)));
        let dimensions = (named.goes_back == Back::Flat).then(|| in_dimensions(&ty));
        dimensions.into_iter().chain([sample(&ty)])
    });
    let every: Vec<BoxedStrategy<Sample>> = named.chain(arrays).collect();
    let records = record().prop_flat_map(|record| {
        let array = Ty::Array(Box::new(record.clone()));
        (sample(&record), sample(&array))
    });
    (every, vec(records, 0..8)).prop_map(|(mut samples, records)| {
        samples.extend(records.into_iter().flat_map(|(record, array)| [record, array]));
        samples
    })
}

fn sample(ty: &Ty) -> BoxedStrategy<Sample> {
    let (type_name, goes_back) = (ty.name(), ty.back() != Back::No);
    nullable(ty).prop_map(move |expression| Sample { type_name: type_name.clone(), expression, goes_back }).boxed()
}

/// An array of two dimensions that does not go back.
fn in_dimensions(array: &Ty) -> BoxedStrategy<Sample> {
    let Ty::Array(element) = array else { unreachable!("only arrays have dimensions") };
    let type_name = array.name();
    grid(element)
        .prop_map(move |expression| Sample { type_name: type_name.clone(), expression, goes_back: false })
        .boxed()
}

fn record() -> impl Strategy<Value = Ty> {
    let scalars: Vec<Ty> = NAMED.iter().filter(|named| named.in_records).map(|named| Ty::Named(*named)).collect();
    let field = prop::sample::select(scalars);
    let field = field.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            inner.clone().prop_map(|ty| match ty {
                array @ Ty::Array(_) => array,
                ty => Ty::Array(Box::new(ty)),
            }),
            vec(inner, 0..4).prop_map(Ty::Record),
        ]
    });
    vec(field, 0..4).prop_map(Ty::Record)
}

fn nullable(ty: &Ty) -> BoxedStrategy<String> {
    let null = Just(format!("null::{}", ty.name()));
    prop_oneof![1 => null, 9 => values(ty)].boxed()
}

fn values(ty: &Ty) -> BoxedStrategy<String> {
    match ty {
        Ty::Named(named) => (named.values)(),
        Ty::Record(fields) => fields
            .iter()
            .map(nullable)
            .collect::<Vec<_>>()
            .prop_map(|fields| format!("row({})", fields.join(", ")))
            .boxed(),
        Ty::Array(element) => array(element),
    }
}

fn list(items: &[String]) -> String {
    format!("array[{}]", items.join(", "))
}

/// An array of no, one or two dimensions, or with bounds of its own.
fn array(element: &Ty) -> BoxedStrategy<String> {
    let name = element.name();
    let flat = vec(nullable(element), 0..4);
    let flat = flat.prop_map({
        let name = name.clone();
        move |items| format!("{}::{name}[]", list(&items))
    });
    // Text of a record does not say what it is.
    if matches!(element, Ty::Record(_)) {
        return prop_oneof![flat, grid(element)].boxed();
    }
    let bounded = (vec(nullable(element), 1..4), -3..3_i32).prop_map(move |(items, lower)| {
        let upper = lower + i32::try_from(items.len()).unwrap() - 1;
        format!("('[{lower}:{upper}]=' || {}::{name}[]::text)::{name}[]", list(&items))
    });
    if element.back() == Back::Flat {
        return prop_oneof![flat, bounded].boxed();
    }
    prop_oneof![flat, grid(element), bounded].boxed()
}

fn grid(element: &Ty) -> BoxedStrategy<String> {
    let (name, element) = (element.name(), element.clone());
    let rows =
        (1..3_usize, 1..3_usize).prop_flat_map(move |(height, width)| vec(vec(nullable(&element), width), height));
    rows.prop_map(move |rows| {
        let rows: Vec<String> = rows.iter().map(|row| list(row)).collect();
        format!("{}::{name}[]", list(&rows))
    })
    .boxed()
}
