"""Google's Agent Development Kit, with a model of our own."""

import asyncio
import pathlib
from collections.abc import AsyncGenerator

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import InMemoryRunner
from google.adk.skills import load_skill_from_dir
from google.adk.tools.mcp_tool import McpToolset, StdioConnectionParams, StreamableHTTPConnectionParams
from google.adk.tools.skill_toolset import SkillToolset
from google.genai import types
from mcp import StdioServerParameters
from mcp.types import ElicitResult
from scripted_model import SERVER, asked, next_call_async, offered, shown


class ScriptedModel(BaseLlm):
    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        last = llm_request.contents[-1].parts[-1]
        if last.function_response:
            response = last.function_response.response
            shown(response, bool(response.get("isError") or response.get("error")))
        else:
            declared = [d for tool in llm_request.config.tools for d in tool.function_declarations]
            schemas = {
                d.name: d.parameters_json_schema or d.parameters.model_dump(mode="json", by_alias=True, exclude_none=True)
                for d in declared
            }
            offered("google-adk", schemas)
        call = await next_call_async()
        if call:
            part = types.Part(function_call=types.FunctionCall(name=call.tool, args=call.arguments, id=call.id))
        else:
            part = types.Part(text="done")
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


async def user(context, params) -> ElicitResult:
    asked(params.message)
    return ElicitResult(action="accept", content={})


async def main() -> None:
    if "url" in SERVER:
        to = StreamableHTTPConnectionParams(url=SERVER["url"])
    else:
        server = StdioServerParameters(**{key: SERVER[key] for key in ("command", "args", "env")})
        to = StdioConnectionParams(server_params=server, timeout=60)
    toolset = McpToolset(connection_params=to, elicitation_callback=user if SERVER.get("user") else None)
    tools = [toolset]
    if "skills" in SERVER:
        folders = sorted(pathlib.Path(SERVER["skills"]).iterdir())
        tools.append(SkillToolset([load_skill_from_dir(folder) for folder in folders]))
    agent = LlmAgent(name="a", model=ScriptedModel(model="scripted"), tools=tools)
    runner = InMemoryRunner(agent)
    session = await runner.session_service.create_session(app_name=runner.app_name, user_id="u")
    message = types.Content(role="user", parts=[types.Part(text="go")])
    async for _ in runner.run_async(user_id="u", session_id=session.id, new_message=message):
        pass
    await runner.close()


asyncio.run(main())
