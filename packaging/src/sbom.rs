//! The software bill of materials of a program, in CycloneDX 1.5 as JSON. It has neither a time nor a serial number, so that the
//! same program has the same one.

use anyhow::ensure;
use cyclonedx_bom::external_models::spdx::SpdxExpression;
use cyclonedx_bom::models::component::{Classification, Scope};
use cyclonedx_bom::models::dependency::{Dependencies, Dependency};
use cyclonedx_bom::models::hash::{Hash, HashAlgorithm, HashValue, Hashes};
use cyclonedx_bom::models::license::{LicenseChoice, Licenses};
use cyclonedx_bom::models::property::{Properties, Property};
use cyclonedx_bom::models::tool::Tools;
use cyclonedx_bom::prelude::{Bom, Component, Components, Metadata, Purl, SpecVersion, Validate};

use crate::executable::Executable;
use crate::project::{LICENSE, NAME, REPOSITORY, VERSION};
use crate::used_crates::{CrateId, UsedCrate, UsedCrates};

/// The name of the file in packages.
pub(crate) const SBOM: &str = "countersign.cdx.json";

pub(crate) fn sbom(executable: &Executable, crates: &UsedCrates, commit: &str) -> anyhow::Result<Vec<u8>> {
    let is_program = |id: &CrateId| id.name == NAME;
    let components = crates.0.iter().filter(|(id, _)| !is_program(id)).map(|(id, used)| component(id, used));
    let dependencies = crates.0.iter().map(|(id, used)| Dependency {
        dependency_ref: reference(id),
        dependencies: used.dependencies.iter().map(reference).collect(),
    });
    let packaging = Component::new(Classification::Application, &format!("{NAME}-packaging"), VERSION, None);
    let target = Property::new("cdx:rustc:sbom:target:triple", executable.platform.triple());
    let metadata = Metadata {
        component: Some(program(executable, commit)?),
        tools: Some(Tools::Object { services: None, components: Some(Components(vec![packaging])) }),
        properties: Some(Properties(vec![target])),
        ..Metadata::default()
    };
    let bom = Bom {
        serial_number: None,
        metadata: Some(metadata),
        components: Some(Components(components.collect::<anyhow::Result<_>>()?)),
        dependencies: Some(Dependencies(dependencies.collect())),
        ..Bom::default()
    };
    let validation = bom.validate_version(SpecVersion::V1_5);
    ensure!(validation.passed(), "the bill of materials is not valid: {validation:?}");
    let mut json = Vec::new();
    bom.output_as_json_v1_5(&mut json)?;
    json.push(b'\n');
    Ok(json)
}

/// The program itself: its bytes, and the commit from which it was built.
fn program(executable: &Executable, commit: &str) -> anyhow::Result<Component> {
    let id = CrateId { name: NAME.to_owned(), version: VERSION.to_owned() };
    let mut program = Component::new(Classification::Application, NAME, VERSION, Some(reference(&id)));
    program.hashes = Some(sha256(&crate::sha256_hex(&executable.bytes)));
    program.licenses = Some(expression(LICENSE)?);
    program.purl = REPOSITORY
        .strip_prefix("https://github.com/")
        .and_then(|repository| format!("pkg:github/{repository}@{commit}").parse().ok());
    Ok(program)
}

fn component(id: &CrateId, used: &UsedCrate) -> anyhow::Result<Component> {
    let mut component = Component::new(Classification::Library, &id.name, &id.version, Some(reference(id)));
    component.scope = Some(if used.is_linked { Scope::Required } else { Scope::Excluded });
    component.licenses = Some(expression(&used.license)?);
    // A crate of this workspace is in no registry.
    if let Some(checksum) = &used.checksum {
        component.hashes = Some(sha256(checksum));
        component.purl = Some(Purl::new("cargo", &id.name, &id.version)?);
    }
    Ok(component)
}

/// How other parts of the document name a crate.
fn reference(id: &CrateId) -> String {
    format!("{}@{}", id.name, id.version)
}

fn sha256(hex: &str) -> Hashes {
    Hashes(vec![Hash { alg: HashAlgorithm::SHA_256, content: HashValue(hex.to_owned()) }])
}

fn expression(license: &str) -> anyhow::Result<Licenses> {
    Ok(Licenses(vec![LicenseChoice::Expression(SpdxExpression::try_from(license.to_owned())?)]))
}
