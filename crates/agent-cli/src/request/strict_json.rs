//! JSON in which no object has the same key twice, and which is not made of too many values.
//!
//! serde_json keeps the last of two equal keys without a word, while whoever wrote the line may have meant the first one.
//! And a value takes a hundred bytes and more once it is read, so a megabyte of `1,1,1` would be a hundred.

use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{MAX_PARAMS, check_params};
use crate::problem::{Problem, quoted};

/// The most values in a line, at any depth: room for all the parameters that there may be. A number that is no integer of 64
/// bits counts as two, since serde_json gives it as an object.
const MAX_VALUES: usize = 2 * MAX_PARAMS + 1000;

/// Reads `line` and keeps nothing of it.
pub(super) fn check(line: &[u8]) -> Result<(), Problem> {
    let mut found = Found::default();
    let mut reader = serde_json::Deserializer::from_slice(line);
    let read = Strict(&mut found).deserialize(&mut reader).and_then(|()| reader.end());
    match (found, read) {
        (Found { twice: Some(key), .. }, _) => {
            Err(Problem::invalid(format!("the key {} stands twice in one object", quoted(&key))))
        }
        (Found { count, .. }, _) if count > MAX_VALUES => {
            check_params(count_params(line))?;
            Err(Problem::invalid(format!("the line holds more than {MAX_VALUES} JSON values")))
        }
        (_, Err(error)) => Err(no_json(&error)),
        (_, Ok(())) => Ok(()),
    }
}

/// serde_json's words quote nothing of the text where it is no JSON.
pub(super) fn no_json(error: &serde_json::Error) -> Problem {
    Problem::invalid(format!("the line is no JSON: {error}"))
}

#[derive(Default)]
struct Found {
    count: usize,
    twice: Option<String>,
}

struct Strict<'a>(&'a mut Found);

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.0.count += 1;
        if self.0.count > MAX_VALUES {
            return Err(D::Error::custom("too many values"));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut keys = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            if keys.contains(&key) {
                self.0.twice = Some(key);
                return Err(A::Error::custom("a key stands twice"));
            }
            keys.insert(key);
            map.next_value_seed(Strict(self.0))?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Strict(self.0))?.is_some() {}
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }
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
