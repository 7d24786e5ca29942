//! The amount of work of a test: short by default, long in its long form.

use std::io::Write;
use std::{env, thread};

/// The variable that turns the long forms on, if it is 1.
pub const VARIABLE: &str = "COUNTERSIGN_TEST_LONG";

/// Whether tests run in their long forms.
pub fn is_on() -> bool {
    env::var_os(VARIABLE).is_some_and(|value| value == "1")
}

/// Whether the calling test must return because it has only a long form. Prints this.
#[must_use]
pub fn is_left_out() -> bool {
    if !is_on() {
        let thread = thread::current();
        say(&format!("LEFT OUT {}: {VARIABLE}=1 runs it", thread.name().unwrap_or("a test")));
    }
    !is_on()
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

/// Writes a line to the real standard error, which libtest does not capture, for what the reader of a run needs.
pub fn say(line: &str) {
    std::io::stderr().write_all(format!("{line}\n").as_bytes()).expect("standard error");
}
