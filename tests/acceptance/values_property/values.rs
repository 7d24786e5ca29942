//! Values of each type, as SQL expressions.

use proptest::collection::vec;
use proptest::prelude::*;

pub(super) type Values = BoxedStrategy<String>;

/// What text forms, literals and JSON use for themselves, and what they only carry.
const AWKWARD: &[&str] = &[
    "\"", "\\", "'", ",", ";", ":", "{", "}", "(", ")", "[", "]", "=", "=>", " ", "\t", "\n", "\r", "\u{b}", "\u{7f}",
    "\u{1}", "NULL", "null", "a", "B", "0", "é", "ß", "漢", "😀", "\u{2028}", "\u{feff}", "\u{301}", "\\x", "\\u0041",
    "--", "/*", "$1",
];

pub(super) fn awkward() -> impl Strategy<Value = String> + Clone {
    vec(prop::sample::select(AWKWARD), 0..6).prop_map(|parts| parts.concat())
}

pub(super) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// `'..'::type` of each.
fn literal(ty: &'static str, texts: impl Strategy<Value = String> + 'static) -> Values {
    texts.prop_map(move |text| format!("{}::{ty}", quoted(&text))).boxed()
}

pub(super) fn one_of(ty: &'static str, texts: &'static [&'static str]) -> Values {
    literal(ty, prop::sample::select(texts).prop_map(str::to_owned))
}

fn or_null(values: Values) -> impl Strategy<Value = String> {
    prop_oneof![1 => Just("null".to_owned()), 4 => values]
}

fn list(ty: &'static str, elements: Values) -> Values {
    vec(or_null(elements), 0..4).prop_map(move |items| format!("array[{}]::{ty}[]", items.join(", "))).boxed()
}

pub(super) fn bool() -> Values {
    one_of("bool", &["t", "f"])
}

pub(super) fn int2() -> Values {
    literal("int2", any::<i16>().prop_map(|number| number.to_string()))
}

pub(super) fn int4() -> Values {
    literal("int4", any::<i32>().prop_map(|number| number.to_string()))
}

pub(super) fn int8() -> Values {
    literal("int8", any::<i64>().prop_map(|number| number.to_string()))
}

pub(super) fn float4() -> Values {
    literal("float4", prop_oneof![any::<f32>(), Just(f32::NAN), Just(-0.0)].prop_map(|number| format!("{number:e}")))
}

pub(super) fn float8() -> Values {
    let numbers = prop_oneof![any::<f64>(), -1e6..1e6, Just(f64::NAN), Just(f64::NEG_INFINITY)];
    literal("float8", numbers.prop_map(|number| format!("{number:e}")))
}

pub(super) fn numeric() -> Values {
    prop_oneof![
        8 => literal("numeric", "-?[0-9]{1,40}(\\.[0-9]{1,30})?"),
        1 => one_of("numeric", &["NaN", "Infinity", "-Infinity", "0.000", "1e100"]),
    ]
    .boxed()
}

pub(super) fn money() -> Values {
    literal("money", any::<i64>().prop_map(|cents| format!("{}.{:02}", cents / 100, cents.unsigned_abs() % 100)))
}

pub(super) fn text() -> Values {
    literal("text", awkward())
}

pub(super) fn varchar() -> Values {
    literal("varchar", awkward())
}

pub(super) fn bpchar() -> Values {
    literal("char(5)", "[a \"\\\\']{0,5}")
}

pub(super) fn name() -> Values {
    literal("name", awkward())
}

pub(super) fn char() -> Values {
    literal("\"char\"", "[ -~]?")
}

pub(super) fn bytea() -> Values {
    let hex =
        vec(any::<u8>(), 0..6).prop_map(|bytes| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    literal("bytea", hex.prop_map(|hex| format!("\\x{hex}")))
}

/// Within what a `timestamp` holds, years before Christ included.
fn microseconds() -> impl Strategy<Value = i64> {
    prop_oneof![-210_000_000_000_000_000_i64..900_000_000_000_000_000, -2_000_000_000_000_i64..2_000_000_000_000]
}

pub(super) fn date() -> Values {
    let dates = (-2_400_000..2_400_000_i32).prop_map(|days| format!("('2000-01-01'::date + ({days}))"));
    prop_oneof![8 => dates, 1 => one_of("date", &["infinity", "-infinity"])].boxed()
}

pub(super) fn time() -> Values {
    (0..86_400_000_000_u64).prop_map(|time| format!("('00:00'::time + {time} * '1 microsecond'::interval)")).boxed()
}

pub(super) fn timetz() -> Values {
    let parts = (0..24, 0..60, 0..60_000, -15..16, 0..60, prop::sample::select(vec![0, 15]));
    let texts = parts.prop_map(|(hour, minute, milliseconds, zone, zone_minute, zone_second)| {
        let second = f64::from(milliseconds) / 1000.0;
        format!("{hour:02}:{minute:02}:{second:06.3}{zone:+03}:{zone_minute:02}:{zone_second:02}")
    });
    literal("timetz", texts)
}

fn moments(ty: &'static str) -> Values {
    let some =
        microseconds().prop_map(move |time| format!("('2000-01-01'::{ty} + {time} * '1 microsecond'::interval)"));
    prop_oneof![8 => some, 1 => one_of(ty, &["infinity", "-infinity", "epoch"])].boxed()
}

pub(super) fn timestamp() -> Values {
    moments("timestamp")
}

pub(super) fn timestamptz() -> Values {
    moments("timestamptz")
}

pub(super) fn interval() -> Values {
    (-200..200_i32, -20..20_i32, -400..400_i32, -100_000_000_000..100_000_000_000_i64)
        .prop_map(|(years, months, days, time)| {
            format!("('{years} years {months} months {days} days'::interval + {time} * '1 microsecond'::interval)")
        })
        .boxed()
}

pub(super) fn uuid() -> Values {
    literal("uuid", "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
}

pub(super) fn inet() -> Values {
    let four = (any::<[u8; 4]>(), 0..=32_u8).prop_map(|([a, b, c, d], bits)| format!("{a}.{b}.{c}.{d}/{bits}"));
    prop_oneof![literal("inet", four), one_of("inet", &["::1", "fe80::1/64", "10.0.0.1"])].boxed()
}

pub(super) fn cidr() -> Values {
    one_of("cidr", &["10.0.0.0/8", "192.168.0.0/24", "::/0", "2001:db8::/32", "10.1.2.3"])
}

pub(super) fn macaddr() -> Values {
    literal("macaddr", "[0-9a-f]{2}(:[0-9a-f]{2}){5}")
}

pub(super) fn macaddr8() -> Values {
    literal("macaddr8", "[0-9a-f]{2}(:[0-9a-f]{2}){7}")
}

fn json_text() -> impl Strategy<Value = String> {
    let string = awkward().prop_map(|text| serde_json::Value::from(text).to_string());
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        "-?(0|[1-9][0-9]{0,20})(\\.[0-9]{1,12})?([eE][+-]?[0-9]{1,2})?",
        string.clone(),
        // Escapes that need not be.
        Just("\"\\u00e9\\/\\ud83d\\ude00\"".to_owned()),
    ];
    leaf.prop_recursive(3, 12, 3, move |inner| {
        let entry = (string.clone(), inner.clone()).prop_map(|(key, value)| format!("{key} :{value}"));
        prop_oneof![
            vec(inner, 0..3).prop_map(|items| format!("[ {}]", items.join(", "))),
            // The same key may come twice.
            vec(entry, 0..3).prop_map(|entries| format!("{{{}}}", entries.join(","))),
        ]
    })
}

pub(super) fn json() -> Values {
    literal("json", json_text())
}

pub(super) fn jsonb() -> Values {
    literal("jsonb", json_text())
}

pub(super) fn varbit() -> Values {
    literal("varbit", "[01]{0,20}")
}

fn coordinates(count: usize) -> impl Strategy<Value = String> {
    let point = (-1e3..1e3, -1e3..1e3).prop_map(|(x, y)| format!("({x:.2},{y:.2})"));
    vec(point, count).prop_map(|points| points.join(","))
}

pub(super) fn point() -> Values {
    literal("point", coordinates(1))
}

pub(super) fn lseg() -> Values {
    literal("lseg", coordinates(2))
}

pub(super) fn box_() -> Values {
    literal("box", coordinates(2))
}

pub(super) fn path() -> Values {
    literal("path", coordinates(3).prop_map(|points| format!("[{points}]")))
}

pub(super) fn polygon() -> Values {
    literal("polygon", coordinates(3))
}

pub(super) fn circle() -> Values {
    literal("circle", coordinates(1).prop_map(|center| format!("<{center},2.5>")))
}

pub(super) fn xml() -> Values {
    one_of(
        "xml",
        &["<a/>", "<a b=\"c,d\">'\\é&amp;{}</a>", "", "text", "<?xml version=\"1.0\"?><a>(1,2)</a>", "<a/> <b/>"],
    )
}

pub(super) fn tsvector() -> Values {
    awkward().prop_map(|text| format!("to_tsvector('simple', {})", quoted(&text))).boxed()
}

pub(super) fn tsquery() -> Values {
    awkward().prop_map(|text| format!("phraseto_tsquery('simple', {})", quoted(&text))).boxed()
}

pub(super) fn jsonpath() -> Values {
    one_of("jsonpath", &["$", "$.a[*] ? (@ > 1)", "$.\"x, y\"", "strict $.a"])
}

pub(super) fn oid() -> Values {
    literal("oid", any::<u32>().prop_map(|oid| oid.to_string()))
}

pub(super) fn regclass() -> Values {
    one_of("regclass", &["pg_class", "p.inner", "4294967295", "-"])
}

pub(super) fn regtype() -> Values {
    one_of("regtype", &["int4", "p.mood", "text[]", "\"char\""])
}

pub(super) fn pg_lsn() -> Values {
    literal("pg_lsn", "[1-9A-F][0-9A-F]{0,7}/[1-9A-F][0-9A-F]{0,7}")
}

pub(super) fn xid8() -> Values {
    literal("xid8", any::<u64>().prop_map(|xid| xid.to_string()))
}

pub(super) fn tid() -> Values {
    literal("tid", (any::<u32>(), any::<u16>()).prop_map(|(block, offset)| format!("({block},{offset})")))
}

pub(super) fn snapshot() -> Values {
    one_of("txid_snapshot", &["10:20:10,15", "1:1:"])
}

pub(super) fn int2vector() -> Values {
    literal(
        "int2vector",
        vec(any::<i16>(), 0..4).prop_map(|items| items.iter().map(|item| format!("{item} ")).collect()),
    )
}

pub(super) fn oidvector() -> Values {
    literal(
        "oidvector",
        vec(any::<u32>(), 0..4).prop_map(|items| items.iter().map(|item| format!("{item} ")).collect()),
    )
}

pub(super) fn citext() -> Values {
    literal("citext", awkward())
}

pub(super) fn ltree() -> Values {
    literal("ltree", "([A-Za-z0-9_]{1,5}(\\.[A-Za-z0-9_]{1,5}){0,3})?")
}

pub(super) fn cube() -> Values {
    prop_oneof![literal("cube", coordinates(1)), literal("cube", coordinates(2))].boxed()
}

pub(super) fn seg() -> Values {
    one_of("seg", &["1", "1.50 .. 2", "<3", "~5.0", "1 ..", "5(+-)0.5"])
}

pub(super) fn isbn13() -> Values {
    one_of("isbn13", &["978-0-393-04002-9", "978-3-16-148410-0"])
}

pub(super) fn query_int() -> Values {
    one_of("query_int", &["1", "1&2", "1 & (2 | !3)"])
}

pub(super) fn hstore() -> Values {
    vec((awkward(), or_null(text())), 0..3)
        .prop_map(|entries| {
            let (keys, values): (Vec<String>, Vec<String>) =
                entries.into_iter().map(|(key, value)| (quoted(&key), value)).unzip();
            format!("hstore(array[{}]::text[], array[{}]::text[])", keys.join(", "), values.join(", "))
        })
        .boxed()
}

pub(super) fn attributes() -> Values {
    hstore().prop_map(|hstore| format!("{hstore}::p.attributes")).boxed()
}

pub(super) fn shade() -> Values {
    one_of("p.shade", &["light", "da\"rk"])
}

pub(super) fn mood() -> Values {
    one_of("p.mood", &["sad", "a,b", "{x}", "NULL", "\"q\"", " sp ", "b\\", "é'"])
}

pub(super) fn count() -> Values {
    literal("p.count", (0..i32::MAX).prop_map(|number| number.to_string()))
}

pub(super) fn label() -> Values {
    literal("p.label", awkward())
}

pub(super) fn pairs() -> Values {
    list("int", int4()).prop_map(|array| format!("{array}::p.pairs")).boxed()
}

pub(super) fn nothing() -> Values {
    Just("row()::p.nothing".to_owned()).boxed()
}

fn row(ty: &'static str, fields: Vec<Values>) -> Values {
    let fields: Vec<_> = fields.into_iter().map(or_null).collect();
    fields.prop_map(move |fields| format!("row({})::{ty}", fields.join(", "))).boxed()
}

pub(super) fn one() -> Values {
    row("p.one", vec![text()])
}

pub(super) fn inner() -> Values {
    row("p.inner", vec![numeric(), text(), list("text", text()), mood()])
}

pub(super) fn checked() -> Values {
    inner().prop_map(|inner| format!("{inner}::p.checked")).boxed()
}

pub(super) fn outer() -> Values {
    row("p.outer", vec![inner(), list("p.inner", inner()), pairs(), timestamptz(), checked()])
}

pub(super) fn mixed() -> Values {
    row("p.mixed", vec![json(), hstore(), list("p.shade", shade()), attributes()])
}

pub(super) fn deep() -> Values {
    row("p.deep", vec![list("p.outer", outer()), list("p.label", label()), mixed()])
}
