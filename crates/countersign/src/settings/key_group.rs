//! Groups of keys: flags, environment variables and keys of the file at once.

use schemars::JsonSchema;
use serde_json::{Map, Value};

/// A group of keys, each of which may be missing; a layer above goes before one below.
macro_rules! keys {
    ($(#[$meta:meta])* $group:ident { $($(#[$key_meta:meta])* $key:ident: $type:ty,)* }) => {
        #[derive(Debug, Clone, Default, clap::Args, Deserialize, JsonSchema)]
        $(#[$meta])*
        #[serde(default)]
        pub(crate) struct $group {
            $($(#[$key_meta])* pub(crate) $key: Option<$type>,)*
        }

        impl $group {
            pub(super) fn or(self, below: Self) -> Self {
                Self { $($key: self.$key.or(below.$key),)* }
            }
        }
    };
}
pub(super) use keys;

/// Groups, each with the table of the file that it stands in.
macro_rules! groups {
    ($(#[$meta:meta])* $name:ident { $($field:ident: $group:ident in $table:expr,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Default)]
        pub(crate) struct $name {
            $(pub(crate) $field: $group,)*
        }

        impl $name {
            /// This layer over another one.
            pub(super) fn or(self, below: Self) -> Self {
                Self { $($field: self.$field.or(below.$field),)* }
            }

            fn given(command: &ArgMatches) -> Result<Self, clap::Error> {
                Ok(Self { $($field: given(command)?,)* })
            }

            /// Takes the keys out of the tables of the file.
            pub(super) fn read<'s>(reader: &mut Reader<'s>, tables: &mut BTreeMap<&str, DeTable<'s>>) -> Self {
                Self { $($field: reader.group(tables.entry($table).or_default()),)* }
            }

            /// The schema of the keys that stand in a table.
            pub(super) fn schema(table: &str) -> Map<String, Value> {
                let mut keys = Map::new();
                $(if $table == table {
                    keys.extend(properties::<$group>());
                })*
                keys
            }
        }
    };
}
pub(super) use groups;

/// Options of commands: groups that `Keys::given` reads, and not the command.
macro_rules! options {
    ($(#[$meta:meta])* $name:ident: $($group:ident),*) => {
        $(#[$meta])*
        #[derive(Debug)]
        pub(crate) struct $name;

        impl Args for $name {
            fn augment_args(command: Command) -> Command {
                $(let command = $group::augment_args(command);)*
                command
            }

            fn augment_args_for_update(command: Command) -> Command {
                Self::augment_args(command)
            }
        }

        impl FromArgMatches for $name {
            fn from_arg_matches(_: &ArgMatches) -> Result<Self, clap::Error> {
                Ok(Self)
            }

            fn update_from_arg_matches(&mut self, _: &ArgMatches) -> Result<(), clap::Error> {
                Ok(())
            }
        }
    };
}
pub(super) use options;

/// The properties of a type, with all definitions inline. A key may be missing, but TOML has no null.
pub(super) fn properties<T: JsonSchema>() -> Map<String, Value> {
    let settings =
        schemars::generate::SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut).map(std::mem::take);
    let mut properties = properties.unwrap_or_default();
    properties.values_mut().for_each(without_null);
    properties
}

fn without_null(schema: &mut Value) {
    let Some(schema) = schema.as_object_mut() else { return };
    schema.shift_remove("default");
    if let Some(Value::Array(alternatives)) = schema.shift_remove("anyOf") {
        let real = alternatives.into_iter().find(|one| one.get("type") != Some(&"null".into()));
        schema.extend(real.and_then(|real| real.as_object().cloned()).unwrap_or_default());
    }
    if let Some(Value::Array(types)) = schema.get("type") {
        let real: Vec<Value> = types.iter().filter(|one| **one != "null").cloned().collect();
        let real = if let [one] = real.as_slice() { one.clone() } else { real.into() };
        schema.insert("type".to_owned(), real);
    }
    if let Some(Value::Array(labels)) = schema.get_mut("enum") {
        labels.retain(|label| !label.is_null());
    }
}
