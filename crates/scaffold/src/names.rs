//! The names of tools and parameters: valid for MCP clients, unique, short, and the same in each run.

use std::collections::HashSet;

/// The maximum length of a tool's name. Clients add the name of the server as a prefix, and some limit the whole name
/// to 64 characters.
const MAX_TOOL: usize = 40;

/// The maximum length of a parameter's name in a manifest.
const MAX_PARAM: usize = 64;

/// The argument that every write tool has in addition to its own.
const IDEMPOTENCY_KEY: &str = "idempotency_key";

/// The names that are in use.
#[derive(Debug, Default)]
pub(crate) struct Names(HashSet<String>);

impl Names {
    /// The initial names for the parameters of a tool.
    pub(crate) fn of_params() -> Self {
        Self(HashSet::from([IDEMPOTENCY_KEY.to_owned()]))
    }

    /// The part of tool names that stands for the table: `order_item` for `"OrderItem"`.
    pub(crate) fn noun(&mut self, table: &str) -> String {
        let longest = MAX_TOOL - "insert_".len();
        self.unique(&or_else(snake_case(table), "table"), longest)
    }

    /// The parameter's name for a column: the name of the column, if it is valid.
    pub(crate) fn param(&mut self, column: &str) -> String {
        let letters = column.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect::<String>();
        let trimmed = if letters == column { column } else { letters.trim_matches('_') };
        let name = or_else(trimmed.to_owned(), "column");
        let name = if name.starts_with(|c: char| c.is_ascii_digit()) { format!("_{name}") } else { name };
        self.unique(&name, MAX_PARAM)
    }

    /// The name, or the name with the first number that makes it unique, with at most `longest` characters.
    fn unique(&mut self, name: &str, longest: usize) -> String {
        let cut = |length: usize| name.chars().take(length).collect::<String>();
        let numbered = (2_u32..).map(|number| {
            let end = format!("_{number}");
            format!("{}{end}", cut(longest - end.len()))
        });
        let free = std::iter::once(cut(longest)).chain(numbered).find(|name| !self.0.contains(name));
        let name = free.unwrap_or_default();
        self.0.insert(name.clone());
        name
    }
}

fn or_else(name: String, instead: &str) -> String {
    if name.chars().all(|c| c == '_') { instead.to_owned() } else { name }
}

/// The ASCII letters and digits of a name in lower case, with `_` between words.
fn snake_case(name: &str) -> String {
    let mut words = String::new();
    let mut was_lower = false;
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && was_lower {
            words.push('_');
        }
        was_lower = letter.is_ascii_lowercase() || letter.is_ascii_digit();
        words.push(if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '_' });
    }
    words.split('_').filter(|word| !word.is_empty()).collect::<Vec<_>>().join("_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_a_word_that_every_client_takes() {
        let mut names = Names::default();
        for (table, noun) in [
            ("orders", "orders"),
            ("OrderItem", "order_item"),
            ("Order Items", "order_items"),
            ("order_item", "order_item_2"),
            ("order.item", "order_item_3"),
            ("HTTPLog2", "httplog2"),
            ("größe", "gr_e"),
            ("表", "table"),
            ("\"; drop --", "drop"),
            (&"x".repeat(63), &"x".repeat(33)),
            (&"x".repeat(62), &format!("{}_2", "x".repeat(31))),
        ] {
            assert_eq!(names.noun(table), noun);
        }
    }

    #[test]
    fn a_column_keeps_its_name_where_it_can() {
        let mut names = Names::of_params();
        for (column, param) in [
            ("id", "id"),
            ("customerName", "customerName"),
            ("_hidden", "_hidden"),
            ("1st", "_1st"),
            ("Größe (cm)", "Gr__e__cm"),
            ("order", "order"),
            ("表", "column"),
            ("idempotency_key", "idempotency_key_2"),
            ("id ", "id_2"),
        ] {
            assert_eq!(names.param(column), param);
        }
    }
}
