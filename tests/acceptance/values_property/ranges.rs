//! Values of ranges and multiranges, as SQL expressions.

use proptest::collection::vec;
use proptest::prelude::*;

use super::values::{Values, awkward, one_of, quoted};

/// Ranges of a type: ordered ends, open ends and the empty range.
fn ranges(ty: &'static str, ends: impl Strategy<Value = (String, String)> + 'static) -> Values {
    let end = |end: String| prop_oneof![1 => Just("null".to_owned()), 4 => Just(end)];
    let some = (
        ends.prop_flat_map(move |(low, high)| (end(low), end(high))),
        prop::sample::select(vec!["[)", "()", "(]", "[]"]),
    );
    let some = some.prop_map(move |((low, high), bounds)| format!("{ty}({low}, {high}, '{bounds}')"));
    prop_oneof![8 => some, 1 => one_of(ty, &["empty"])].boxed()
}

fn ascending(limit: i64) -> impl Strategy<Value = (i64, i64)> {
    (-limit..limit, 0..limit).prop_map(|(low, length)| (low, low + length))
}

pub(super) fn int4range() -> Values {
    ranges("int4range", ascending(1_000_000).prop_map(|(low, high)| (low.to_string(), high.to_string())))
}

pub(super) fn int8range() -> Values {
    ranges("int8range", ascending(1 << 60).prop_map(|(low, high)| (low.to_string(), high.to_string())))
}

pub(super) fn numrange() -> Values {
    ranges("numrange", ascending(1 << 40).prop_map(|(low, high)| (format!("{low}.10"), format!("{high}.20"))))
}

pub(super) fn daterange() -> Values {
    let day = |day: i64| format!("'2000-01-01'::date + ({day})");
    ranges("daterange", ascending(700_000).prop_map(move |(low, high)| (day(low), day(high))))
}

pub(super) fn tstzrange() -> Values {
    let moment = |second: i64| format!("'2000-01-01'::timestamptz + {second} * '1 second'::interval");
    ranges("tstzrange", ascending(1 << 34).prop_map(move |(low, high)| (moment(low), moment(high))))
}

pub(super) fn nummultirange() -> Values {
    vec(numrange(), 0..3).prop_map(|ranges| format!("nummultirange({})", ranges.join(", "))).boxed()
}

pub(super) fn textrange() -> Values {
    // The type compares bytes, as Rust does.
    let ends = (awkward(), awkward()).prop_map(|(a, b)| if a <= b { (a, b) } else { (b, a) });
    ranges("p.textrange", ends.prop_map(|(low, high)| (quoted(&low), quoted(&high))))
}

pub(super) fn textmultirange() -> Values {
    vec(textrange(), 0..3).prop_map(|ranges| format!("p.textmultirange({})", ranges.join(", "))).boxed()
}
