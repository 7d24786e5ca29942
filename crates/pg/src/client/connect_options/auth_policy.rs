//! The authentication methods that the server may request (`require_auth`, `channel_binding`).

use super::ConnectOptionsError;
use super::keywords::KeywordValues;

/// `channel_binding`: whether SCRAM is tied to the certificate of the server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ChannelBinding {
    /// Never.
    Disable,
    /// If the connection is encrypted and the server supports it.
    #[default]
    Prefer,
    /// Always. The client refuses a server that requests another method.
    Require,
}

/// An authentication method, with the name that `require_auth` has for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthMethod {
    /// The password in clear text.
    Password,
    /// The MD5 hash of the password.
    Md5,
    /// GSSAPI, which is not supported.
    Gss,
    /// SSPI, which is not supported.
    Sspi,
    /// SCRAM-SHA-256, with or without channel binding.
    Scram,
    /// OAuth, which is not supported.
    OAuth,
    /// No authentication.
    None,
}

const METHODS: [(&str, AuthMethod); 7] = [
    ("password", AuthMethod::Password),
    ("md5", AuthMethod::Md5),
    ("gss", AuthMethod::Gss),
    ("sspi", AuthMethod::Sspi),
    ("scram-sha-256", AuthMethod::Scram),
    ("oauth", AuthMethod::OAuth),
    ("none", AuthMethod::None),
];

impl std::fmt::Display for AuthMethod {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = METHODS.iter().find(|(_, method)| method == self).map_or("?", |(name, _)| *name);
        f.write_str(name)
    }
}

/// The authentication methods that are allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthPolicy {
    /// Whether SCRAM is tied to the server's certificate.
    pub channel_binding: ChannelBinding,
    /// The methods that a server may request.
    pub methods: Vec<AuthMethod>,
    /// Whether `require_auth` names `password`. Only then is the password sent in clear text over an unencrypted
    /// connection to another machine.
    pub names_password: bool,
}

impl Default for AuthPolicy {
    fn default() -> Self {
        let methods = METHODS.map(|(_, method)| method).to_vec();
        Self { channel_binding: ChannelBinding::Prefer, methods, names_password: false }
    }
}

pub(super) fn of(given: &KeywordValues) -> Result<AuthPolicy, ConnectOptionsError> {
    const BINDINGS: [(&str, ChannelBinding); 3] = [
        ("disable", ChannelBinding::Disable),
        ("prefer", ChannelBinding::Prefer),
        ("require", ChannelBinding::Require),
    ];
    let mut login = AuthPolicy {
        channel_binding: given.choice("channel_binding", &BINDINGS, ChannelBinding::Prefer)?,
        ..AuthPolicy::default()
    };
    let Some(text) = given.get("require_auth") else { return Ok(login) };
    let listed: Vec<&str> = text.split(',').map(str::trim).collect();
    let is_negated = listed.iter().all(|name| name.starts_with('!'));
    if !is_negated && listed.iter().any(|name| name.starts_with('!')) {
        return Err(given.wrong("require_auth", "either all of its methods have a \"!\" or none has"));
    }
    let mut named = Vec::with_capacity(listed.len());
    for name in listed {
        let name = name.trim_start_matches('!');
        let method = METHODS.iter().find(|(known, _)| *known == name).map(|(_, method)| *method);
        named.push(method.ok_or_else(|| {
            let known: Vec<&str> = METHODS.iter().map(|(name, _)| *name).collect();
            given.wrong("require_auth", format!("a method is one of {}", known.join(", ")))
        })?);
    }
    login.names_password = !is_negated && named.contains(&AuthMethod::Password);
    login.methods.retain(|method| named.contains(method) != is_negated);
    Ok(login)
}
