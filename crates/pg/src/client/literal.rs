//! The text form of arrays (PostgreSQL manual, "Array Input and Output Syntax").

/// An element of a parsed array literal. `None` is SQL NULL.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Element {
    Null,
    Text(String),
    Array(Vec<Element>),
}

/// PostgreSQL's own limit (`MAXDIM`).
const MAX_DIMENSIONS: usize = 6;

/// Reads an array literal; `None` if it is not one.
pub(crate) fn parse_array(text: &str, delimiter: char) -> Option<Vec<Element>> {
    // Bounds that do not start at 1 (`[2:4]={...}`) precede the elements. JSON cannot represent them.
    let body = if text.starts_with('[') {
        text.split_once("]={").map_or(text, |(bounds, _)| text.get(bounds.len() + 2..).unwrap_or(text))
    } else {
        text
    };
    let mut chars = body.chars().peekable();
    (chars.next()? == '{').then_some(())?;
    let elements = parse_elements(&mut chars, delimiter, 1)?;
    chars.next().is_none().then_some(elements)
}

fn parse_elements(
    chars: &mut std::iter::Peekable<std::str::Chars<'_>>,
    delimiter: char,
    depth: usize,
) -> Option<Vec<Element>> {
    if depth > MAX_DIMENSIONS {
        return None;
    }
    let mut elements = Vec::new();
    if chars.peek() == Some(&'}') {
        chars.next();
        return Some(elements);
    }
    loop {
        let element = match chars.peek()? {
            '{' => {
                chars.next();
                Element::Array(parse_elements(chars, delimiter, depth + 1)?)
            }
            '"' => {
                chars.next();
                Element::Text(parse_quoted(chars)?)
            }
            _ => parse_bare(chars, delimiter)?,
        };
        elements.push(element);
        match chars.next()? {
            '}' => return Some(elements),
            next if next == delimiter => {}
            _ => return None,
        }
    }
}

fn parse_quoted(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<String> {
    let mut text = String::new();
    loop {
        match chars.next()? {
            '"' => return Some(text),
            '\\' => text.push(chars.next()?),
            other => text.push(other),
        }
    }
}

fn parse_bare(chars: &mut std::iter::Peekable<std::str::Chars<'_>>, delimiter: char) -> Option<Element> {
    let mut text = String::new();
    let mut escaped = false;
    while let Some(&next) = chars.peek() {
        if next == delimiter || next == '}' {
            break;
        }
        chars.next();
        if next == '\\' {
            escaped = true;
            text.push(chars.next()?);
        } else {
            text.push(next);
        }
    }
    Some(if text == "NULL" && !escaped { Element::Null } else { Element::Text(text) })
}

/// Writes a quoted element that `array_in` reads back unchanged, whatever its text is.
pub(crate) fn push_quoted(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        if matches!(c, '"' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
}

/// Appends an element of an array; `None` is NULL.
pub fn push_array_element(array: &mut String, element: Option<&str>) {
    match element {
        Some(text) => push_quoted(array, text),
        None => array.push_str("NULL"),
    }
}

/// A `text[]` literal with these elements.
#[must_use]
pub fn text_array(texts: &[String]) -> String {
    let mut out = String::from("{");
    for (index, text) in texts.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        push_quoted(&mut out, text);
    }
    out.push('}');
    out
}

/// An SQL identifier, always quoted.
#[must_use]
pub fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// An SQL string literal without a type. A text with a backslash becomes an E'' literal, so the result does not
/// depend on `standard_conforming_strings`.
#[must_use]
pub fn sql_literal(text: Option<&str>) -> String {
    let Some(text) = text else { return "null".to_owned() };
    let prefix = if text.contains('\\') { "E" } else { "" };
    let mut out = format!("{prefix}'");
    for c in text.chars() {
        if matches!(c, '\'' | '\\') {
            out.push(c);
        }
        out.push(c);
    }
    out.push('\'');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Element {
        Element::Text(text.into())
    }

    #[test]
    fn quotes_nulls_dimensions_and_bounds_are_read() {
        assert_eq!(parse_array("{}", ','), Some(vec![]));
        assert_eq!(parse_array(r#"{a,"b,\"c\"",NULL,"NULL"}"#, ',').unwrap()[1], text(r#"b,"c""#));
        assert_eq!(parse_array(r#"{NULL,"NULL"}"#, ',').unwrap(), [Element::Null, text("NULL")]);
        assert_eq!(
            parse_array("[0:1][1:1]={{1},{2}}", ',').unwrap(),
            [Element::Array(vec![text("1")]), Element::Array(vec![text("2")])]
        );
        assert_eq!(parse_array("{(1,1),(0,0);(2,2),(1,1)}", ';').unwrap().len(), 2);
    }

    #[test]
    fn what_is_no_array_is_refused_and_never_panics() {
        for broken in ["", "{", "{a", "{\"a", "{a}}", "a", "{a,}b", "{{{{{{{1}}}}}}}", "[1:2={1}"] {
            assert_eq!(parse_array(broken, ','), None, "{broken}");
        }
    }

    #[test]
    fn a_literal_ends_where_it_should() {
        assert_eq!(sql_literal(None), "null");
        assert_eq!(sql_literal(Some("it's")), "'it''s'");
        assert_eq!(sql_literal(Some(r"a\' or 1")), r"E'a\\'' or 1'");
    }

    proptest::proptest! {
        #[test]
        fn whatever_is_quoted_is_read_back(texts in proptest::collection::vec(".*", 1..5)) {
            let mut literal = String::from("{");
            for (index, element) in texts.iter().enumerate() {
                if index > 0 { literal.push(','); }
                push_quoted(&mut literal, element);
            }
            literal.push('}');
            let expected: Vec<Element> = texts.into_iter().map(Element::Text).collect();
            proptest::prop_assert_eq!(parse_array(&literal, ','), Some(expected));
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in ".*") {
            let _ = parse_array(&text, ',');
        }
    }
}
