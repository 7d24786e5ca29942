//! How much a test does: little by default, and much in its long form, which `.ci/run` takes.

use std::env;

/// Whether tests take their long forms: `COUNTERSIGN_TEST_LONG=1`.
pub fn is_on() -> bool {
    env::var_os("COUNTERSIGN_TEST_LONG").is_some_and(|value| value == "1")
}

/// The first number by default, the second one in the long form.
pub fn choose<T>(by_default: T, long: T) -> T {
    if is_on() { long } else { by_default }
}

/// The number that an environment variable is set to.
pub fn variable(name: &str) -> Option<u64> {
    env::var(name).ok().map(|value| value.parse().unwrap_or_else(|_| panic!("{name}={value} is not a number")))
}

/// The number that an environment variable is set to; without it as [`choose`].
pub fn variable_or(name: &str, by_default: u64, long: u64) -> u64 {
    variable(name).unwrap_or_else(|| choose(by_default, long))
}
