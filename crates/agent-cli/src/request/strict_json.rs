//! Lines that are read only if they are strict JSON.

use std::fmt;

use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use types::StrictJsonError;

use super::{MAX_PARAMS, check_params};
use crate::error::CliError;

/// The most values in a line: room for all the parameters that there may be.
const MAX_VALUES: usize = 2 * MAX_PARAMS + 1000;

/// Looks whether a line may be read.
pub(super) fn check(line: &[u8]) -> Result<(), CliError> {
    match types::check_strict_json(line, MAX_VALUES) {
        Ok(_) => Ok(()),
        Err(StrictJsonError::NoJson(error)) => Err(no_json(&error)),
        Err(twice @ StrictJsonError::KeyTwice(_)) => Err(CliError::invalid(twice.to_string())),
        Err(StrictJsonError::TooManyValues(max)) => {
            check_params(count_params(line))?;
            Err(CliError::invalid(format!("the line holds more than {max} JSON values")))
        }
    }
}

/// serde_json's words quote nothing of the text where it is no JSON.
pub(super) fn no_json(error: &serde_json::Error) -> CliError {
    CliError::invalid(format!("the line is no JSON: {error}"))
}

/// How many parameters a line has that is too large to be kept.
fn count_params(line: &[u8]) -> usize {
    #[derive(serde::Deserialize)]
    struct Line {
        params: Count,
    }
    struct Count(usize);
    impl<'de> serde::Deserialize<'de> for Count {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_seq(Counter)
        }
    }
    struct Counter;
    impl<'de> Visitor<'de> for Counter {
        type Value = Count;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an array")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Count, A::Error> {
            let mut count = 0;
            while items.next_element::<IgnoredAny>()?.is_some() {
                count += 1;
            }
            Ok(Count(count))
        }
    }
    serde_json::from_slice::<Line>(line).map_or(0, |line| line.params.0)
}
