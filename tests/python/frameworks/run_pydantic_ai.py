"""Pydantic AI, with its FunctionModel."""

import asyncio

from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.messages import ModelMessage, ModelResponse, RetryPromptPart, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from scripted_model import SERVER, asked, next_call_async, offered, shown


async def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    last = messages[-1].parts[-1]
    if isinstance(last, ToolReturnPart):
        shown(last.model_response_str(), last.outcome != "success")
    elif isinstance(last, RetryPromptPart):
        shown(last.model_response(), True)
    else:
        offered("pydantic-ai", {tool.name: tool.parameters_json_schema for tool in info.function_tools})
    call = await next_call_async()
    if not call:
        return ModelResponse(parts=[TextPart("done")])
    return ModelResponse(parts=[ToolCallPart(call.tool, call.arguments, call.id)])


async def user(message, response_type, params, context):
    asked(message)
    return response_type() if response_type else {}


async def main() -> None:
    where = SERVER.get("url") or StdioTransport(SERVER["command"], SERVER["args"], env=SERVER["env"])
    # A refusal counts as a try; the test makes several.
    toolset = MCPToolset(where, max_retries=20, **({"elicitation_handler": user} if SERVER.get("user") else {}))
    async with Agent(FunctionModel(model), toolsets=[toolset]) as agent:
        await agent.run("go")


asyncio.run(main())
