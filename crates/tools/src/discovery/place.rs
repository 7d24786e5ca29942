//! The place in a query that PostgreSQL's error points to: its line for people and models, and the name that stands
//! there. Only ever used to word a hint; nothing is decided by it.

/// How much of a line is shown.
const LINE_CHARS: usize = 72;

/// `LINE 3: select handel from ...` and a caret below the place, as psql shows it. `position` is in characters from 1;
/// just behind the end is a place too.
pub(super) fn line_at(query: &str, position: u32) -> Option<String> {
    let place = (position as usize).checked_sub(1)?;
    let before: String = query.chars().take(place).collect();
    if before.chars().count() < place {
        return None;
    }
    let number = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count();
    let start = place - column;
    let line: Vec<char> = query.chars().skip(start).take_while(|it| *it != '\n').map(printable).collect();
    // A long line is cut so that the place stays in sight.
    let from = if column + 10 > LINE_CHARS { column - LINE_CHARS / 2 } else { 0 };
    let shown: String = line.iter().skip(from).take(LINE_CHARS).collect();
    let lead = if from > 0 { "..." } else { "" };
    let tail = if line.len() > from + LINE_CHARS { "..." } else { "" };
    let head = format!("LINE {number}: {lead}");
    let caret = " ".repeat(head.len() + column - from);
    Some(format!("{head}{}{tail}\n{caret}^", shown.trim_end()))
}

/// A tab or a control character would move the caret.
fn printable(letter: char) -> char {
    if letter.is_control() { ' ' } else { letter }
}

/// The parts of the name at `position`, as PostgreSQL reads them: `"My Table".id` is `My Table` and `id`. Empty if there
/// stands no name.
pub(super) fn name_at(query: &str, position: u32) -> Vec<String> {
    let mut letters = query.chars().skip((position as usize).saturating_sub(1)).peekable();
    let mut parts = Vec::new();
    loop {
        let mut part = String::new();
        if letters.next_if_eq(&'"').is_some() {
            while let Some(letter) = letters.next() {
                // A quote within quotes is doubled.
                if letter == '"' && letters.next_if_eq(&'"').is_none() {
                    break;
                }
                part.push(letter);
            }
        } else {
            while let Some(letter) = letters.next_if(|it| is_name_letter(*it)) {
                part.push(letter.to_ascii_lowercase());
            }
        }
        if part.is_empty() {
            return parts;
        }
        parts.push(part);
        while letters.next_if(|it| it.is_whitespace()).is_some() {}
        if letters.next_if_eq(&'.').is_none() {
            return parts;
        }
        while letters.next_if(|it| it.is_whitespace()).is_some() {}
    }
}

pub(super) fn is_name_letter(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_' || letter == '$'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_shown_with_a_caret_below_the_place() {
        let query = "select id\nfrom social.twet\nwhere id = 1";
        assert_eq!(line_at(query, 16).unwrap(), "LINE 2: from social.twet\n             ^");
        assert_eq!(line_at("selec 1", 1).unwrap(), "LINE 1: selec 1\n        ^");
        assert_eq!(line_at("select", 7).unwrap(), "LINE 1: select\n              ^");
        assert_eq!(line_at("a\r\n\tb", 5).unwrap(), "LINE 2:  b\n         ^");
        assert_eq!(line_at("select 'é', x", 13).unwrap(), "LINE 1: select 'é', x\n                    ^");
        assert_eq!(line_at("select", 9), None);
        assert_eq!(line_at("select", 0), None);
    }

    #[test]
    fn a_long_line_is_cut_around_the_place() {
        let query = format!("select {} nope from t where {}", "x, ".repeat(100), "y ".repeat(100));
        let shown = line_at(&query, 309).unwrap();
        let (line, caret) = shown.split_once('\n').unwrap();
        assert!(line.starts_with("LINE 1: ...") && line.ends_with("..."), "{line}");
        assert!(line.len() < 100);
        assert!(line[caret.len() - 1..].starts_with("nope"), "{shown}");
    }

    #[test]
    fn the_name_at_a_place_is_read_as_postgresql_reads_it() {
        assert_eq!(name_at("select * from social.Twet where", 15), ["social", "twet"]);
        assert_eq!(name_at(r#"select "My ""Table""" . id"#, 8), [r#"My "Table""#, "id"]);
        assert_eq!(name_at("select frob(1)", 8), ["frob"]);
        assert_eq!(name_at("select 1 = 'a'", 10), [""; 0]);
        assert_eq!(name_at("select 'x'::regclass", 8), [""; 0]);
        assert_eq!(name_at("select", 70), [""; 0]);
        assert_eq!(name_at(r#"select "unfinished"#, 8), ["unfinished"]);
    }
}
