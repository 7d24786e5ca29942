//! Unpacks a fetched archive into the cache: only if its hash matches, completely or not at all, and readable by the
//! server's user.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

use sha2::{Digest, Sha256, Sha512};

use crate::environment;
use crate::process::run_in;

pub(crate) enum PackageArchive {
    /// From npm: `package/native/..`. A separate file lists the links.
    Tarball(PathBuf),
    /// From pip: a zip file, which loses the permissions when it is unpacked.
    Wheel(PathBuf),
}

/// Fetches an archive and unpacks it into `home`. Two processes may do this at the same time: each works in its own
/// folder beside `home`, and the first rename wins.
pub(crate) fn into(home: &Path, fetch: impl FnOnce(&Path) -> Result<PackageArchive, String>) -> Result<(), String> {
    let parent = home.parent().ok_or("the cache folder has no parent")?;
    fs::create_dir_all(parent).map_err(cannot("create", parent))?;
    let work = tempfile::Builder::new().prefix(".fetching-").tempdir_in(parent).map_err(cannot("create", parent))?;
    let download = work.path().join("download");
    let tree = work.path().join("tree");
    for folder in [&download, &tree] {
        fs::create_dir(folder).map_err(cannot("create", folder))?;
    }
    match fetch(&download)? {
        PackageArchive::Tarball(file) => {
            // -o: root becomes the owner, not the owner in the archive.
            run_in(environment::plain("tar").args(["-x", "-z", "-o", "-f"]).arg(&file), &tree)?;
            hydrate_links(&tree.join("package"))?;
        }
        PackageArchive::Wheel(file) => {
            run_in(environment::plain("python3").args(["-m", "zipfile", "-e"]).arg(&file).arg("."), &tree)?
        }
    }
    open_up(&tree)?;
    match fs::rename(&tree, home) {
        Err(_) if home.is_dir() => Ok(()),
        result => result.map_err(cannot("create", home)),
    }
}

/// Compares an archive's hash (SHA-512 for npm, SHA-256 for pip, in hexadecimal digits) with the pinned one.
pub(crate) fn verify(archive: &PackageArchive, expected: &str) -> Result<(), String> {
    let (file, actual) = match archive {
        PackageArchive::Tarball(file) => (file, hash_of::<Sha512>(file)?),
        PackageArchive::Wheel(file) => (file, hash_of::<Sha256>(file)?),
    };
    if actual == expected {
        return Ok(());
    }
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    Err(format!("{name} is not the pinned file (its hash is {actual}): it was thrown away"))
}

fn hash_of<D: Digest>(file: &Path) -> Result<String, String> {
    let content = fs::read(file).map_err(cannot("read", file))?;
    Ok(D::digest(content).iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Creates the symbolic links of the npm package. An npm package cannot contain links; this one lists them in a file
/// for its post-install script, which is never run.
fn hydrate_links(package: &Path) -> Result<(), String> {
    let list = package.join("native/pg-symlinks.json");
    let text = fs::read(&list).map_err(cannot("read", &list))?;
    let links: serde_json::Value = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    for link in links.as_array().into_iter().flatten() {
        let path_of = |key| link.get(key).and_then(|value| value.as_str()).map(Path::new).filter(|path| inside(path));
        let (Some(source), Some(target)) = (path_of("source"), path_of("target")) else {
            return Err(format!("{} lists a link that leads outside", list.display()));
        };
        let (Some(name), true) = (source.file_name(), source.parent() == target.parent()) else {
            return Err(format!("{} lists a link to another folder", list.display()));
        };
        let target = package.join(target);
        if !target.exists() {
            symlink(name, &target).map_err(cannot("link", &target))?;
        }
    }
    Ok(())
}

fn inside(path: &Path) -> bool {
    path.components().all(|part| matches!(part, Component::Normal(_)))
}

/// Lets every user read the tree and run the programs in its `bin` folders, regardless of the umask.
fn open_up(folder: &Path) -> Result<(), String> {
    set_mode(folder, 0o755)?;
    let programs = folder.ends_with("bin");
    for entry in fs::read_dir(folder).map_err(cannot("read", folder))?.flatten() {
        let path = entry.path();
        let kind = entry.file_type().map_err(cannot("read", &path))?;
        if kind.is_dir() {
            open_up(&path)?;
        } else if kind.is_file() {
            set_mode(&path, if programs { 0o755 } else { 0o644 })?;
        }
    }
    Ok(())
}

fn set_mode(path: &Path, mode: u32) -> Result<(), String> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(cannot("change", path))
}

fn cannot<'a>(action: &'a str, path: &'a Path) -> impl FnOnce(std::io::Error) -> String + 'a {
    move |error| format!("cannot {action} {}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_another_hash_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.whl");
        fs::write(&file, "abc").unwrap();
        let hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(verify(&PackageArchive::Wheel(file.clone()), hash), Ok(()));
        assert!(
            verify(&PackageArchive::Wheel(file), &hash.replace('b', "c"))
                .unwrap_err()
                .contains("is not the pinned file")
        );
    }

    #[test]
    fn a_link_that_leads_out_of_the_package_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("native")).unwrap();
        let list = r#"[{"source":"native/a.so.1","target":"../a.so"}]"#;
        fs::write(folder.path().join("native/pg-symlinks.json"), list).unwrap();
        assert!(hydrate_links(folder.path()).unwrap_err().contains("leads outside"));
    }

    #[test]
    fn a_failed_fetch_leaves_nothing_behind() {
        let cache = tempfile::tempdir().unwrap();
        let home = cache.path().join("postgres/npm-1");
        assert_eq!(into(&home, |_| Err("no network".to_owned())), Err("no network".to_owned()));
        assert_eq!(fs::read_dir(cache.path().join("postgres")).unwrap().count(), 0);
    }
}
