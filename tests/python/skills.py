"""Skills over MCP, as FastMCP's client finds them: listed, verified by size and digest, and equal to the files.

Arguments: the program, and the folder of the skills.
"""

import asyncio
import os
import pathlib
import sys

from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from fastmcp.skills import SkillsClientExtension
from mcp import MCPError


async def served(program: str, folder: pathlib.Path, profile: str, *more: str) -> list[str]:
    arguments = ["--log", "warn", "serve", "--profile", profile, *more]
    transport = StdioTransport(program, arguments, env={"DATABASE_URL": os.environ["DATABASE_URL"]})
    async with Client(transport, extensions=[SkillsClientExtension()]) as client:
        names = []
        for entry in await client.list_skills():
            assert await client.get_skill(entry.uri) == entry, entry
            skill = await client.read_skill(entry.uri)
            file = folder / entry.frontmatter.name / "SKILL.md"
            assert dict(skill.files) == {"SKILL.md": file.read_bytes()}, skill
            names.append(entry.frontmatter.name)
        # Clients without the extension find them among the resources.
        listed = [str(resource.uri) for resource in await client.list_skill_resources()]
        assert listed == [f"skill://{name}/SKILL.md" for name in names], listed
        for missing in ["skill://countersign-x/SKILL.md", "skill://countersign-undo/SKILL.md"]:
            if missing not in listed:
                try:
                    await client.get_skill(missing)
                except MCPError as error:
                    assert error.error.code == -32602, error
                else:
                    raise AssertionError(f"{missing} is served to {profile}")
        return names


async def main(program: str, folder: str) -> None:
    for profile, more in [("minimal", ["--execute-sql"]), ("readonly", []), ("write", ["--execute-sql"])]:
        print(f"{profile}:", *await served(program, pathlib.Path(folder), profile, *more))


asyncio.run(main(*sys.argv[1:]))
