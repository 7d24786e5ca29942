//! The connection service file (PostgreSQL manual, "The Connection Service File").

use std::path::{Path, PathBuf};

use super::ConnectOptionsError;
use super::environment::ConnectEnvironment;
use super::keywords::{KeywordValues, known};
use super::user_files;

/// The folders of the system's service file if PGSYSCONFDIR is not set: those of Debian, of Red Hat, and of a build
/// from source.
const SYSTEM_FOLDERS: [&str; 3] = ["/etc/postgresql-common", "/etc/sysconfig/pgsql", "/usr/local/pgsql/etc"];

/// Adds the parameters of the service that `service` or PGSERVICE names, if any.
pub(super) fn add(given: &mut KeywordValues, surroundings: &ConnectEnvironment) -> Result<(), ConnectOptionsError> {
    let named = given.get("service").or_else(|| surroundings.variable("PGSERVICE"));
    let Some(name) = named.map(str::to_owned) else { return Ok(()) };
    let own = given.get("servicefile").or_else(|| surroundings.variable("PGSERVICEFILE")).map(PathBuf::from);
    let own = own.or_else(|| surroundings.existing_user_file(user_files::SERVICES));
    let system = match surroundings.variable("PGSYSCONFDIR") {
        Some(folder) => vec![PathBuf::from(folder)],
        None => SYSTEM_FOLDERS.map(PathBuf::from).to_vec(),
    };
    let system = system.iter().map(|folder| folder.join("pg_service.conf")).find(|path| path.exists());
    for path in own.iter().chain(&system) {
        let text =
            std::fs::read_to_string(path).map_err(|error| problem(path, format!("it cannot be read: {error}")))?;
        if add_from(given, &text, &name, path)? {
            return Ok(());
        }
    }
    let searched: Vec<String> = own.iter().chain(&system).map(|path| path.display().to_string()).collect();
    let searched = if searched.is_empty() { "there is no service file".to_owned() } else { searched.join(", ") };
    Err(given.wrong("service", format!("there is no service \"{name}\" ({searched})")))
}

fn problem(path: &Path, problem: String) -> ConnectOptionsError {
    ConnectOptionsError::Setting { origin: format!("the service file {}", path.display()), problem }
}

/// Adds the parameters of the service, if the file has it. Returns whether it does.
fn add_from(given: &mut KeywordValues, text: &str, service: &str, path: &Path) -> Result<bool, ConnectOptionsError> {
    let mut is_found = false;
    for (number, line) in text.lines().enumerate().map(|(index, line)| (index + 1, line.trim())) {
        if let Some(section) = line.strip_prefix('[') {
            if is_found {
                break;
            }
            is_found = section.split_once(']').is_some_and(|(name, _)| name == service);
        } else if is_found && !line.is_empty() && !line.starts_with('#') {
            let wrong = |what: &str| problem(path, format!("line {number}: {what}"));
            let (key, value) = line.split_once('=').ok_or_else(|| wrong("it is no key=value"))?;
            if key == "service" || key == "servicefile" {
                return Err(wrong("a service cannot name another one"));
            }
            if line.starts_with("ldap") {
                return Err(wrong("looking services up by LDAP is not supported"));
            }
            let place = || format!("line {number} of the service file {}", path.display());
            let known =
                known(key).ok_or_else(|| ConnectOptionsError::UnknownKey { key: key.to_owned(), place: place() })?;
            given.add(known, value.to_owned(), || format!("{key} in {}", place()));
        }
    }
    Ok(is_found)
}
