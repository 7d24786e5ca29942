//! The environment of child processes: each program has a list of the variables that it needs. Connection strings,
//! keys and tokens of countersign are on none of them.

use std::env;
use std::path::Path;
use std::process::Command;

/// For every program: paths of programs, libraries and temporary files, time zones and locales.
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

/// For a package manager: its configuration, its cache and its proxies.
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

/// For `npm`, besides the variables that begin with one of [`NPM_SETTINGS`].
const NPM: [&str; 4] = ["NODE_EXTRA_CA_CERTS", "NODE_OPTIONS", "NPM_TOKEN", "NODE_AUTH_TOKEN"];

/// Prefixes of a package manager's own settings. They may contain its password for the registry, so no other program
/// gets them.
const NPM_SETTINGS: [&str; 2] = ["npm_config_", "NPM_CONFIG_"];
const PIP_SETTINGS: [&str; 1] = ["PIP_"];

/// A command for a program that needs only the common variables.
pub(crate) fn plain(program: impl AsRef<Path>) -> Command {
    command(program.as_ref(), |name| COMMON.contains(&name))
}

/// A command that runs `npm`.
pub(crate) fn npm() -> Command {
    command("npm".as_ref(), |name| {
        is_for_clients(name) || NPM.contains(&name) || NPM_SETTINGS.iter().any(|start| name.starts_with(start))
    })
}

/// A command that runs the `pip` of `python3`.
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
