"""The OpenAI Agents SDK, with a Model of our own in place of OpenAI's."""

import asyncio
import json

from agents import Agent, ModelResponse, Runner, Usage, set_tracing_disabled
from agents.mcp import MCPServerStdio, MCPServerStreamableHttp, MCPUtil
from agents.models.interface import Model
from agents.run_context import RunContextWrapper
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
from scripted_model import SERVER, next_call_async, offered, shown


class ScriptedModel(Model):
    async def get_response(self, system_instructions, input, *args, **kwargs) -> ModelResponse:  # noqa: A002
        if isinstance(input, list) and input[-1].get("type") == "function_call_output":
            shown(input[-1]["output"])
        call = await next_call_async()
        if call:
            item = ResponseFunctionToolCall(
                type="function_call", call_id=call.id, name=call.tool, arguments=json.dumps(call.arguments)
            )
        else:
            text = ResponseOutputText(type="output_text", text="done", annotations=[])
            item = ResponseOutputMessage(type="message", id="1", role="assistant", status="completed", content=[text])
        return ModelResponse(output=[item], usage=Usage(), response_id=None)

    def stream_response(self, *args, **kwargs):
        raise NotImplementedError


async def main() -> None:
    set_tracing_disabled(True)
    kind = MCPServerStreamableHttp if "url" in SERVER else MCPServerStdio
    async with kind(params={key: SERVER[key] for key in ("url", "command", "args", "env") if key in SERVER}) as server:
        agent = Agent(name="a", model=ScriptedModel(), mcp_servers=[server])
        for by, strict in [("openai-agents", False), ("openai-agents, strict", True)]:
            tools = await MCPUtil.get_function_tools(server, strict, RunContextWrapper(None), agent)
            offered(by, {tool.name: tool.params_json_schema for tool in tools})
        await Runner.run(agent, "go", max_turns=100)


asyncio.run(main())
