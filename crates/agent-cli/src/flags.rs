//! Flags in error messages, for both parsers of command lines.

/// Flags that take numbers.
pub(crate) const NUMBERS: [&str; 6] = [
    "--batch-rows",
    "--batch-bytes",
    "--statement-timeout-ms",
    "--lock-timeout-ms",
    "--inline-max-rows",
    "--inline-max-bytes",
];

/// The part of an unknown flag that a message may show. A value may be attached to the flag: `-Wsecret`.
pub(crate) fn shown_flag(flag: &str) -> &str {
    let name = flag.split('=').next().unwrap_or_default();
    if name.starts_with("--") || name.len() <= 3 { name } else { name.get(..2).unwrap_or("-") }
}

/// The message for a value that belongs to no flag, without the value.
pub(crate) fn unflagged(place: usize) -> String {
    format!("argument {} is neither a flag nor a flag's value", place + 1)
}
