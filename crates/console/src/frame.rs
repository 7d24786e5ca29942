//! What surrounds the content of every page: the person, and the database with its menu.

use types::DatabaseLabel;

use crate::database::ConsoleDatabase;

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Frame<'a> {
    /// The person, if one is signed in.
    pub(crate) person: Option<&'a str>,
    /// The database whose pages the menu has.
    pub(crate) database: Option<&'a ConsoleDatabase>,
    /// Whether the console has other databases too.
    pub(crate) has_several: bool,
}

impl Frame<'_> {
    /// The path before that of each page.
    pub(crate) fn base(&self) -> &str {
        self.database.map_or("", |database| &database.base)
    }

    /// The name and the environment of the database.
    pub(crate) fn label(&self) -> Option<&DatabaseLabel> {
        self.database.and_then(|database| database.label.as_ref())
    }

    /// The class of colours of the database.
    pub(crate) fn class(&self) -> &'static str {
        self.label().map_or("", class)
    }
}

/// The class of colours of a database.
pub(crate) fn class(label: &DatabaseLabel) -> &'static str {
    if label.is_production() { "production" } else { "other" }
}
