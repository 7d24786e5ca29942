//! The platforms for which there are packages.

use std::fmt;
use std::str::FromStr;

use anyhow::bail;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Os {
    Linux,
    Darwin,
}

impl Os {
    /// Its name in Node.js and in bundles.
    pub fn name(self) -> &'static str {
        match self {
            Self::Linux => "linux",
            Self::Darwin => "darwin",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cpu {
    X64,
    Arm64,
}

impl Cpu {
    /// Its name in Node.js.
    pub fn name(self) -> &'static str {
        match self {
            Self::X64 => "x64",
            Self::Arm64 => "arm64",
        }
    }

    /// Its name in container images.
    pub fn container_name(self) -> &'static str {
        match self {
            Self::X64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }
}

/// C libraries of Linux.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Libc {
    /// The GNU C library, linked dynamically.
    Gnu,
    /// musl, linked statically.
    Musl,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Platform {
    pub os: Os,
    pub cpu: Cpu,
    /// C library, on Linux.
    pub libc: Option<Libc>,
}

impl Platform {
    pub const ALL: [Self; 6] = [
        Self::new(Os::Linux, Cpu::X64, Some(Libc::Gnu)),
        Self::new(Os::Linux, Cpu::X64, Some(Libc::Musl)),
        Self::new(Os::Linux, Cpu::Arm64, Some(Libc::Gnu)),
        Self::new(Os::Linux, Cpu::Arm64, Some(Libc::Musl)),
        Self::new(Os::Darwin, Cpu::X64, None),
        Self::new(Os::Darwin, Cpu::Arm64, None),
    ];

    const fn new(os: Os, cpu: Cpu, libc: Option<Libc>) -> Self {
        Self { os, cpu, libc }
    }

    /// The target triple of Rust.
    pub fn triple(self) -> &'static str {
        match (self.os, self.cpu, self.libc) {
            (Os::Linux, Cpu::X64, Some(Libc::Musl)) => "x86_64-unknown-linux-musl",
            (Os::Linux, Cpu::X64, _) => "x86_64-unknown-linux-gnu",
            (Os::Linux, Cpu::Arm64, Some(Libc::Musl)) => "aarch64-unknown-linux-musl",
            (Os::Linux, Cpu::Arm64, _) => "aarch64-unknown-linux-gnu",
            (Os::Darwin, Cpu::X64, _) => "x86_64-apple-darwin",
            (Os::Darwin, Cpu::Arm64, _) => "aarch64-apple-darwin",
        }
    }

    /// Whether its binaries run on the machine that makes the packages.
    pub fn runs_here(self) -> bool {
        let os = if cfg!(target_os = "macos") { "darwin" } else { std::env::consts::OS };
        let cpu = match std::env::consts::ARCH {
            "x86_64" => "x64",
            "aarch64" => "arm64",
            other => other,
        };
        // A static binary runs with any C library; a dynamic one needs its own.
        let has_libc = self.libc != Some(Libc::Gnu) || cfg!(target_env = "gnu");
        self.os.name() == os && self.cpu.name() == cpu && has_libc
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.os.name(), self.cpu.name())?;
        match self.libc {
            Some(Libc::Gnu) => f.write_str("-gnu"),
            Some(Libc::Musl) => f.write_str("-musl"),
            None => Ok(()),
        }
    }
}

/// From the target triple of Rust.
impl FromStr for Platform {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        if let Some(platform) = Self::ALL.into_iter().find(|platform| platform.triple() == text) {
            return Ok(platform);
        }
        let targets = Self::ALL.map(Self::triple);
        bail!("there are no packages for the target {text:?}; the targets are {}", targets.join(", "))
    }
}
