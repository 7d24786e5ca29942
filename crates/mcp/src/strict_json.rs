//! JSON in which no object has the same key twice, and which is not made of too many values.
//!
//! serde_json keeps the last of two equal keys without a word, while the client may have meant the first one, and a
//! reviewer may have read it (attack ID10). So such a message is refused. And a value takes a hundred bytes and more once
//! it is read, so four megabytes of `1,1,1` would be half a gigabyte: they are counted before anything is kept.

use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// The most values in a message, at any depth: room for 65,535 parameters, the most that PostgreSQL takes. A number that is
/// no integer of 64 bits counts as two, since serde_json gives it as an object.
const MAX_VALUES: usize = 70_000;

/// Reads `text` and keeps nothing of it; how many values there are in it.
///
/// # Errors
/// What is wrong with it: it is not JSON; or else (`is_data`) an object has a key twice, or there are too many values.
pub(crate) fn check(text: &[u8]) -> Result<usize, serde_json::Error> {
    let mut count = 0;
    let mut reader = serde_json::Deserializer::from_slice(text);
    Strict(&mut count).deserialize(&mut reader)?;
    reader.end()?;
    Ok(count)
}

struct Strict<'a>(&'a mut usize);

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        *self.0 += 1;
        if *self.0 > MAX_VALUES {
            return Err(D::Error::custom(format_args!(
                "the message holds more than {MAX_VALUES} JSON values; give many as one text"
            )));
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
                return Err(A::Error::custom(format_args!("the key {key:?} stands twice in one object")));
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

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        serde::Deserialize::deserialize(deserializer).map(|IgnoredAny| ())
    }
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn a_key_that_stands_twice_is_refused_at_any_depth_and_in_any_spelling() {
        for twice in [r#"{"a":1,"a":2}"#, r#"{"x":[{"a":1,"b":2,"a":3}]}"#, r#"{"a":1,"\u0061":2}"#] {
            assert!(check(twice.as_bytes()).unwrap_err().to_string().contains("\"a\" stands twice"), "{twice}");
        }
    }

    #[test]
    fn values_are_counted_at_any_depth_and_too_many_are_refused() {
        assert_eq!(check(br#"{"a":[1,{"b":null}],"c":"x"}"#).unwrap(), 6);
        assert_eq!(check(b"1.5").unwrap(), 2);
        let many = |count| format!("[{}1]", "1,".repeat(count));
        assert!(check(many(65_600).as_bytes()).is_ok());
        let error = check(many(70_000).as_bytes()).unwrap_err();
        assert!(error.is_data() && error.to_string().contains("70000 JSON values"), "{error}");
    }

    #[test]
    fn the_same_key_in_different_objects_is_fine_and_so_is_every_kind_of_value() {
        let text = r#"{"a":{"a":[{"a":1},{"a":-1.5e3}]},"b":[true,null,"x",12345678901234567890123]}"#;
        assert!(check(text.as_bytes()).is_ok());
        assert!(check(b"{").is_err());
    }
}
