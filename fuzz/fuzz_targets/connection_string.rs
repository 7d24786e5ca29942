//! Connection strings: none makes the reader panic, and no error repeats a password.

#![no_main]
#![allow(clippy::panic, reason = "what does not hold ends the run")]

use countersign_pg::{ConnectEnvironment, ConnectOptions};

/// Not a part of any message by chance.
const PASSWORD: &str = "Zq7PasswordOfTheFuzzer";

libfuzzer_sys::fuzz_target!(|text: &str| {
    let environment = ConnectEnvironment::empty();
    let _ = ConnectOptions::parse_with(text, &environment);
    for text in [format!("password={PASSWORD} {text}"), format!("postgresql://me:{PASSWORD}@host/{text}")] {
        if let Err(error) = ConnectOptions::parse_with(&text, &environment) {
            assert!(!error.to_string().contains(PASSWORD), "{error}");
        }
    }
});
