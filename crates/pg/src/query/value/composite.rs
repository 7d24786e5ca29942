//! The text form of row types (PostgreSQL manual, "Composite Type Input and Output Syntax").

/// The fields of a row literal, `None` for NULL. Returns `None` if the text is not a row literal.
pub(super) fn parse_row(text: &str) -> Option<Vec<Option<String>>> {
    let mut chars = text.chars().peekable();
    (chars.next()? == '(').then_some(())?;
    let mut fields = Vec::new();
    loop {
        let field = parse_field(&mut chars)?;
        fields.push(field);
        match chars.next()? {
            ',' => {}
            ')' => return chars.next().is_none().then_some(fields),
            _ => return None,
        }
    }
}

fn parse_field(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<Option<String>> {
    let mut text = String::new();
    let mut present = false;
    let mut quoted = false;
    loop {
        match chars.peek() {
            None => return None,
            Some(',' | ')') if !quoted => return Some(present.then_some(text)),
            Some(_) => {}
        }
        present = true;
        match chars.next()? {
            // Inside quotes a doubled quote is one quote.
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                text.push('"');
            }
            '"' => quoted = !quoted,
            '\\' => text.push(chars.next()?),
            other => text.push(other),
        }
    }
}

/// Writes a row literal that `record_in` reads back unchanged.
pub(super) fn push_row(out: &mut String, fields: &[Option<String>]) {
    out.push('(');
    for (index, field) in fields.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        if let Some(text) = field {
            crate::client::literal::push_quoted(out, text);
        }
    }
    out.push(')');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nulls_empty_texts_and_quotes_are_told_apart() {
        let fields = parse_row(r#"(1,,"","say ""hi""\\","(2,x)")"#).unwrap();
        let expected = [Some("1"), None, Some(""), Some(r#"say "hi"\"#), Some("(2,x)")];
        assert_eq!(fields, expected.map(|field| field.map(str::to_owned)));
    }

    proptest::proptest! {
        #[test]
        fn whatever_is_written_is_read_back(fields in proptest::collection::vec(proptest::option::of(".*"), 1..5)) {
            let mut literal = String::new();
            push_row(&mut literal, &fields);
            proptest::prop_assert_eq!(parse_row(&literal), Some(fields));
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in ".*") {
            let _ = parse_row(&text);
        }
    }
}
