//! Whole numbers and times within bounds: the same for flags, variables, the file and its schema.

use std::borrow::Cow;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{Deserializer, Error};
use types::Age;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounded<const MIN: u32, const MAX: u32>(u32);

impl<const MIN: u32, const MAX: u32> Bounded<MIN, MAX> {
    pub(crate) const fn get(self) -> u32 {
        self.0
    }

    fn new(number: i64) -> Result<Self, String> {
        let fits = u32::try_from(number).ok().filter(|number| (MIN..=MAX).contains(number));
        fits.map(Self).ok_or_else(|| format!("{number} is out of bounds: it takes {MIN} to {MAX}"))
    }
}

impl<const MIN: u32, const MAX: u32> FromStr for Bounded<MIN, MAX> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.parse().map_err(|_| format!("it takes a whole number from {MIN} to {MAX}"))?;
        Self::new(number)
    }
}

impl<'de, const MIN: u32, const MAX: u32> Deserialize<'de> for Bounded<MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(i64::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl<const MIN: u32, const MAX: u32> JsonSchema for Bounded<MIN, MAX> {
    fn schema_name() -> Cow<'static, str> {
        format!("From{MIN}To{MAX}").into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "integer", "minimum": MIN, "maximum": MAX})
    }
}

/// A time from `MIN` to `MAX` units of so many milliseconds: a number of units, or a text such as `90s`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BoundedTime<const UNIT_MS: u32, const MIN: u32, const MAX: u32>(Bounded<MIN, MAX>);

pub(crate) type Millis<const MIN: u32, const MAX: u32> = BoundedTime<1, MIN, MAX>;

pub(crate) type Seconds<const MIN: u32, const MAX: u32> = BoundedTime<1000, MIN, MAX>;

impl<const UNIT_MS: u32, const MIN: u32, const MAX: u32> BoundedTime<UNIT_MS, MIN, MAX> {
    pub(crate) fn duration(self) -> Duration {
        Duration::from_millis(u64::from(self.0.get()) * u64::from(UNIT_MS))
    }
}

impl<const UNIT_MS: u32, const MIN: u32, const MAX: u32> FromStr for BoundedTime<UNIT_MS, MIN, MAX> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(number) = text.parse() {
            return Bounded::new(number).map(Self);
        }
        let age: Age = text.parse().map_err(|error: types::TimeError| error.to_string())?;
        let units = age.duration().as_millis() / u128::from(UNIT_MS);
        let fits = i64::try_from(units).ok().and_then(|units| Bounded::new(units).ok()).map(Self);
        let unit = if UNIT_MS == 1 { "milliseconds" } else { "seconds" };
        fits.ok_or_else(|| format!("{text:?} is out of bounds: it takes {MIN} to {MAX} {unit}"))
    }
}

impl<'de, const UNIT_MS: u32, const MIN: u32, const MAX: u32> Deserialize<'de> for BoundedTime<UNIT_MS, MIN, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "it takes a whole number, or a time such as \"90s\"")]
        enum Given {
            Number(i64),
            Text(String),
        }
        match Given::deserialize(deserializer)? {
            Given::Number(number) => Bounded::new(number).map(Self),
            Given::Text(text) => text.parse(),
        }
        .map_err(D::Error::custom)
    }
}

impl<const UNIT_MS: u32, const MIN: u32, const MAX: u32> JsonSchema for BoundedTime<UNIT_MS, MIN, MAX> {
    fn schema_name() -> Cow<'static, str> {
        format!("TimeFrom{MIN}To{MAX}Times{UNIT_MS}").into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": ["integer", "string"], "minimum": MIN, "maximum": MAX})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_number_of_its_unit_or_a_text() {
        // N-5
        let millis = |text: &str| text.parse::<Millis<100, 600_000>>().map(BoundedTime::duration);
        assert_eq!(millis("1500"), Ok(Duration::from_millis(1500)));
        assert_eq!(millis("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!("2h".parse::<Seconds<1, 86_400>>().map(BoundedTime::duration), Ok(Duration::from_secs(7200)));
        assert!(millis("1h").unwrap_err().contains("100 to 600000 milliseconds"));
        assert!(millis("50").unwrap_err().contains("100 to 600000"));
        assert!(millis("soon").unwrap_err().contains("90s, 1h30m or 7d"));
    }
}
