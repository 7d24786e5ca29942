//! Skills (`io.modelcontextprotocol/skills`, SEP-2640): what an agent can read before it reads, writes or undoes. Each is
//! one file of the folder `skills`, and served to those who have the tools that it is about.
//!
//! Instructions are in the context of every conversation, so they are short; an agent loads a skill when it needs it. A
//! skill is static and has a digest, so what differs by server stays in the instructions. There are no prompts;
//! `prompts/list` answers an empty list, since some clients ask without being told to.

use rmcp::model::{
    ErrorData, GetSkillResult, ListSkillsResult, ReadResourceResult, Resource, ResourceContents, Skill,
    SkillFrontmatter, SkillResource, SkillResources,
};
use tools::Registry;

const MIME_TYPE: &str = "text/markdown";

/// A skill that consists of one file.
struct SkillFile {
    /// The file: front matter of lines `key: value`, then Markdown.
    text: &'static str,
    /// Whether the caller has the tools.
    is_served: fn(&Registry) -> bool,
}

const FILES: [SkillFile; 3] = [
    SkillFile {
        text: include_str!("../../../skills/countersign-read/SKILL.md"),
        is_served: |registry| registry.info("query_database").is_some(),
    },
    SkillFile {
        text: include_str!("../../../skills/countersign-write/SKILL.md"),
        is_served: |registry| registry.infos().any(|tool| tool.tier.is_some()),
    },
    SkillFile {
        text: include_str!("../../../skills/countersign-undo/SKILL.md"),
        is_served: |registry| registry.info("undo_mutation").is_some(),
    },
];

impl SkillFile {
    fn frontmatter(&self) -> SkillFrontmatter {
        let head = self.text.strip_prefix("---\n").and_then(|rest| rest.split_once("\n---\n"));
        let lines = head.map_or("", |(head, _)| head).lines().filter_map(|line| line.split_once(": "));
        lines.fold(SkillFrontmatter::new("", ""), |mut found, (key, value)| {
            match key {
                "name" => value.clone_into(&mut found.name),
                "description" => value.clone_into(&mut found.description),
                _ => found = found.with_field(key, value),
            }
            found
        })
    }

    fn skill(&self) -> Skill {
        let frontmatter = self.frontmatter();
        let uri = format!("skill://{}/SKILL.md", frontmatter.name);
        let file = SkillResource::from_bytes(uri.as_str(), self.text.as_bytes());
        Skill::new(uri, frontmatter, SkillResources::Files(vec![file]))
    }
}

fn served(registry: &Registry) -> impl Iterator<Item = (&'static SkillFile, Skill)> {
    FILES.iter().filter(|file| (file.is_served)(registry)).map(|file| (file, file.skill()))
}

fn find(registry: &Registry, uri: &str) -> Option<(&'static SkillFile, Skill)> {
    served(registry).find(|(_, skill)| skill.uri == uri)
}

pub(crate) fn list(registry: &Registry) -> ListSkillsResult {
    ListSkillsResult::with_all_items(served(registry).map(|(_, skill)| skill).collect())
}

pub(crate) fn get(registry: &Registry, uri: &str) -> Result<GetSkillResult, ErrorData> {
    let skill = find(registry, uri).map(|(_, skill)| GetSkillResult::new(skill));
    skill.ok_or_else(|| ErrorData::invalid_params(format!("{uri} is no skill of this server; see skills/list"), None))
}

/// The file of this URI, if it is one of a skill.
pub(crate) fn read(registry: &Registry, uri: &str) -> Option<ReadResourceResult> {
    let (file, _) = find(registry, uri)?;
    Some(ReadResourceResult::new(vec![ResourceContents::text(file.text, uri).with_mime_type(MIME_TYPE)]))
}

/// The entries for `resources/list`, by which clients without the extension find the files.
pub(crate) fn resources(registry: &Registry) -> impl Iterator<Item = Resource> {
    served(registry).map(|(_, skill)| {
        let SkillFrontmatter { name, description, .. } = skill.frontmatter;
        Resource::new(skill.uri, name).with_description(description).with_mime_type(MIME_TYPE)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_is_a_skill_of_its_folder() {
        for (file, folder) in FILES.iter().zip(["countersign-read", "countersign-write", "countersign-undo"]) {
            let skill = file.skill();
            skill.validate().unwrap();
            assert_eq!(skill.name(), folder);
            assert!(skill.frontmatter.description.len() <= 1024 && file.text.len() <= 20_000, "{folder}");
            assert_eq!(skill.frontmatter.extra.get("license"), Some(&"Apache-2.0".into()));
        }
    }
}
