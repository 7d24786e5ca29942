//! The key of a row, in the form that people type.

/// A key by its columns: `7`, or `order_id=7,line=2`. A single value has no column name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowKey(pub Vec<(Option<String>, String)>);

impl RowKey {
    /// Parses a key. If a part of the text names no column, the whole text is one value, since a value may contain
    /// commas.
    ///
    /// # Errors
    /// The text is empty. The message shows the form of a key.
    pub fn parse(text: &str) -> Result<Self, String> {
        let named =
            |part: &str| part.split_once('=').map(|(name, value)| (Some(name.trim().to_owned()), value.to_owned()));
        let parts: Option<Vec<_>> = text.split(',').map(named).collect();
        match parts {
            Some(parts) => Ok(Self(parts)),
            None if text.is_empty() => {
                Err("a key is a value such as 7, or column=value for each column: order_id=7,line=2".to_owned())
            }
            None => Ok(Self(vec![(None, text.to_owned())])),
        }
    }

    /// Parses the text of a form's field, and ignores spaces around values.
    pub fn parse_typed(text: &str) -> Result<Self, String> {
        let Self(parts) = Self::parse(text.trim())?;
        Ok(Self(parts.into_iter().map(|(name, value)| (name, value.trim().to_owned())).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_one_value_or_names_its_columns() {
        let named = |name: &str, value: &str| (Some(name.to_owned()), value.to_owned());
        let two = Ok(RowKey(vec![named("order_id", "7"), named("line", "2")]));
        assert_eq!(RowKey::parse("order_id=7,line=2"), two);
        assert_eq!(RowKey::parse_typed("order_id=7, line = 2"), two);
        assert_eq!(RowKey::parse("a,b"), Ok(RowKey(vec![(None, "a,b".to_owned())])));
        assert_eq!(RowKey::parse("id= 7"), Ok(RowKey(vec![named("id", " 7")])));
        assert_eq!(RowKey::parse_typed(" 7 "), Ok(RowKey(vec![(None, "7".to_owned())])));
        assert!(RowKey::parse("").is_err());
    }
}
