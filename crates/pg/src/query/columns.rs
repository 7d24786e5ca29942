//! Result columns with unique names and resolved types.

use std::collections::{HashMap, HashSet};

use types::Column;

use crate::client::error::Error;
use crate::client::session::Session;
use crate::client::wire::FieldDescription;
use crate::query::type_catalog::TypeCatalog;

/// The result columns with their types, names made unique.
pub(crate) async fn resolve(
    types: &TypeCatalog,
    session: &mut Session,
    raw: &[FieldDescription],
) -> Result<Vec<Column>, Error> {
    let mut columns = Vec::with_capacity(raw.len());
    for (name, raw) in unique_names(raw.iter().map(|column| column.name.as_str())).into_iter().zip(raw) {
        columns.push(Column { name, ty: types.resolve(session, raw.type_oid).await?, not_null: false });
    }
    Ok(columns)
}

/// `a`, `a` becomes `a`, `a_2`. A number is skipped if its name is taken.
fn unique_names<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let names: Vec<&str> = names.collect();
    let mut taken: HashSet<String> = HashSet::new();
    let mut next: HashMap<&str, usize> = HashMap::new();
    names
        .iter()
        .map(|name| {
            let mut unique = (*name).to_owned();
            while !taken.insert(unique.clone()) {
                let count = next.entry(name).or_insert(1);
                *count += 1;
                let candidate = format!("{name}_{count}");
                // A name that a later column has itself is skipped.
                unique = if names.contains(&candidate.as_str()) { (*name).to_owned() } else { candidate };
            }
            unique
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_the_same_name_are_told_apart() {
        let names = |names: &[&str]| unique_names(names.iter().copied());
        assert_eq!(names(&["a", "b", "a", "a"]), ["a", "b", "a_2", "a_3"]);
        assert_eq!(names(&["a", "a", "a_2"]), ["a", "a_3", "a_2"]);
        assert_eq!(names(&["?column?", "?column?"]), ["?column?", "?column?_2"]);
    }
}
