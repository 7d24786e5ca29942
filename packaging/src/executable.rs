//! The binaries that are packaged, and what they need of a machine.

use std::path::Path;

use anyhow::{Context, bail, ensure};
use object::read::elf::{FileHeader, SectionHeader};
use object::read::macho::{LoadCommandVariant, MachHeader};
use object::{Endianness, elf, macho};

use crate::platform::{Cpu, Libc, Os, Platform};

/// The oldest system on which a binary runs, as it says itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SystemRequirement {
    /// Linux with this minor version of glibc 2 or later.
    Glibc(u32),
    /// Any Linux: linked statically.
    AnyLinux,
    /// This major and minor version of macOS or later.
    MacOs(u16, u8),
}

/// A binary for one platform.
#[derive(Debug, Clone)]
pub struct Executable {
    pub platform: Platform,
    pub bytes: Vec<u8>,
    /// The oldest system on which it runs.
    pub requirement: SystemRequirement,
}

impl Executable {
    /// Reads a binary.
    ///
    /// # Errors
    /// If there is no such file, or its content is not a program for this platform.
    pub fn read(platform: Platform, path: &Path) -> anyhow::Result<Self> {
        let bytes = std::fs::read(path).with_context(|| format!("{} cannot be read", path.display()))?;
        let requirement = match platform.os {
            Os::Linux => linux_requirement(platform, &bytes),
            Os::Darwin => macos_requirement(platform, &bytes),
        };
        let requirement = requirement.with_context(|| format!("{} is not a program for {platform}", path.display()))?;
        Ok(Self { platform, bytes, requirement })
    }
}

fn linux_requirement(platform: Platform, bytes: &[u8]) -> anyhow::Result<SystemRequirement> {
    let header = elf::FileHeader64::<Endianness>::parse(bytes).context("it is not a 64-bit ELF file")?;
    let endian = header.endian()?;
    let machine = match platform.cpu {
        Cpu::X64 => elf::EM_X86_64,
        Cpu::Arm64 => elf::EM_AARCH64,
    };
    ensure!(header.e_machine(endian) == machine, "it is for another processor");
    let is_dynamic = header
        .program_headers(endian, bytes)?
        .iter()
        .any(|segment| object::read::elf::ProgramHeader::p_type(segment, endian) == elf::PT_INTERP);
    match (platform.libc, is_dynamic) {
        (Some(Libc::Gnu), true) => Ok(SystemRequirement::Glibc(newest_glibc(header, endian, bytes)?)),
        (Some(Libc::Gnu), false) => bail!("it is linked statically: name it as -musl"),
        (_, true) => bail!("it needs a dynamic linker, and the packages for musl are static"),
        (_, false) => Ok(SystemRequirement::AnyLinux),
    }
}

/// The minor version of the newest `GLIBC_2.x` among the versions of symbols that a program needs.
fn newest_glibc(header: &elf::FileHeader64<Endianness>, endian: Endianness, bytes: &[u8]) -> anyhow::Result<u32> {
    let sections = header.sections(endian, bytes)?;
    let mut newest = None;
    for section in sections.iter() {
        let Some((mut needed, strings)) = section.gnu_verneed(endian, bytes)? else { continue };
        let strings = sections.strings(endian, bytes, strings)?;
        while let Some((_, mut versions)) = needed.next()? {
            while let Some(version) = versions.next()? {
                let name = std::str::from_utf8(version.name(endian, strings)?)?;
                let minor = name.strip_prefix("GLIBC_2.").and_then(|rest| rest.split('.').next());
                newest = newest.max(minor.and_then(|minor| minor.parse().ok()));
            }
        }
    }
    newest.context("it needs no version of glibc")
}

fn macos_requirement(platform: Platform, bytes: &[u8]) -> anyhow::Result<SystemRequirement> {
    let header = macho::MachHeader64::<Endianness>::parse(bytes, 0).context("it is not a 64-bit Mach-O file")?;
    let endian = header.endian()?;
    let cpu = match platform.cpu {
        Cpu::X64 => macho::CPU_TYPE_X86_64,
        Cpu::Arm64 => macho::CPU_TYPE_ARM64,
    };
    ensure!(header.cputype(endian) == cpu, "it is for another processor");
    let mut commands = header.load_commands(endian, bytes, 0)?;
    while let Some(command) = commands.next()? {
        let version = match command.variant()? {
            LoadCommandVariant::BuildVersion(build, _) => build.minos.get(endian),
            LoadCommandVariant::VersionMin(least) => least.version.get(endian),
            _ => continue,
        };
        let [major_high, major_low, minor, _patch] = version.0.to_be_bytes();
        return Ok(SystemRequirement::MacOs(u16::from_be_bytes([major_high, major_low]), minor));
    }
    bail!("it does not say which macOS it needs")
}
