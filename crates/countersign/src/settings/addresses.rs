//! Names and addresses of the HTTP server, checked as they are read.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::Deserialize;

/// A text that is checked when it is read.
macro_rules! checked {
    ($(#[$meta:meta])* $name:ident, $check:expr, $wanted:literal) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
        #[serde(try_from = "String")]
        pub(crate) struct $name(String);

        impl $name {
            pub(crate) fn into_text(self) -> String {
                self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                let check: fn(&str) -> bool = $check;
                if check(&text) { Ok(Self(text)) } else { Err(format!(concat!("{:?} is not ", $wanted), text)) }
            }
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                Self::try_from(text.to_owned())
            }
        }
    };
}

checked!(
    /// A host, with a port or without.
    Host,
    mcp::is_host,
    "the name of a host: name, name:port, or [address]:port"
);
checked!(
    /// An origin as browsers write it.
    Origin,
    mcp::is_origin,
    "an origin: https://name or https://name:port"
);
checked!(
    /// The address of the server, without a path.
    PublicUrl,
    |text| mcp::is_origin(text.trim_end_matches('/')),
    "the address of a server: https://name or https://name:port, without a path"
);
