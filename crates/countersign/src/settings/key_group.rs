//! Groups of keys: flags, environment variables and keys of the file at once.

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
            pub(super) const NAMES: &[&str] = &[$(stringify!($key)),*];

            pub(super) fn or(self, below: Self) -> Self {
                Self { $($key: self.$key.or(below.$key),)* }
            }
        }
    };
}
pub(super) use keys;
