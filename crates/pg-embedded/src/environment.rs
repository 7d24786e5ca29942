//! What other programs see of our environment: what each needs, by name. Connection strings, keys and tokens stay here.

use std::env;
use std::path::Path;
use std::process::Command;

/// For every program: where programs and libraries are, temporary files, time zones and locales that are not the system's.
const COMMON: [&str; 8] = [
    "PATH",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH",
    "DYLD_FALLBACK_LIBRARY_PATH",
    "TZ",
    "TZDIR",
    "LOCALE_ARCHIVE",
];

/// For a package client: its configuration, its cache, and the way to its registry.
const PACKAGE_CLIENT: [&str; 25] = [
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LC_ALL",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_CONFIG_DIRS",
    "XDG_DATA_HOME",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NIX_SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "NETRC",
    "PYENV_ROOT",
    "PYENV_VERSION",
];

/// For `npm`, besides what its own settings begin with.
const NPM: [&str; 4] = ["NODE_EXTRA_CA_CERTS", "NODE_OPTIONS", "NPM_TOKEN", "NODE_AUTH_TOKEN"];

/// How the settings of a package client begin. They may hold the client's own password for its registry, and are for it alone.
const NPM_SETTINGS: [&str; 2] = ["npm_config_", "NPM_CONFIG_"];
const PIP_SETTINGS: [&str; 1] = ["PIP_"];

/// A program that needs nothing of ours but where things are.
pub(crate) fn plain(program: impl AsRef<Path>) -> Command {
    command(program.as_ref(), |name| COMMON.contains(&name))
}

/// `npm`.
pub(crate) fn npm() -> Command {
    command("npm".as_ref(), |name| {
        is_for_clients(name) || NPM.contains(&name) || NPM_SETTINGS.iter().any(|start| name.starts_with(start))
    })
}

/// The `pip` of `python3`.
pub(crate) fn pip() -> Command {
    let is_given = |name: &str| is_for_clients(name) || PIP_SETTINGS.iter().any(|start| name.starts_with(start));
    let mut command = command("python3".as_ref(), is_given);
    command.args(["-m", "pip"]);
    command
}

fn is_for_clients(name: &str) -> bool {
    COMMON.contains(&name) || PACKAGE_CLIENT.contains(&name)
}

fn command(program: &Path, is_given: impl Fn(&str) -> bool) -> Command {
    let mut command = Command::new(program);
    command.env_clear();
    command.envs(env::vars_os().filter(|(name, _)| name.to_str().is_some_and(&is_given)));
    command
}
