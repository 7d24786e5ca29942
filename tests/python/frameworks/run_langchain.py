"""LangChain's agents over langchain-mcp-adapters, with a chat model of our own."""

import asyncio
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool
from langchain_mcp_adapters.callbacks import Callbacks
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools
from mcp.types import ElicitResult
from scripted_model import SERVER, asked, next_call_async, offered, shown


class ScriptedModel(BaseChatModel):
    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> "ScriptedModel":
        return self

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        raise NotImplementedError

    async def _agenerate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        last = messages[-1]
        if isinstance(last, ToolMessage):
            shown(last.content, last.status == "error")
        call = await next_call_async()
        calls = [{"name": call.tool, "args": call.arguments, "id": call.id}] if call else []
        return ChatResult(generations=[ChatGeneration(message=AIMessage(content="", tool_calls=calls))])


async def user(context, params, request) -> ElicitResult:
    asked(params.message)
    return ElicitResult(action="accept", content={})


async def main() -> None:
    transport = "streamable_http" if "url" in SERVER else "stdio"
    to = {key: SERVER[key] for key in ("url", "command", "args", "env") if key in SERVER} | {"transport": transport}
    callbacks = Callbacks(on_elicitation=user) if SERVER.get("user") else None
    client = MultiServerMCPClient({"countersign": to}, callbacks=callbacks)
    async with client.session("countersign") as session:
        tools = await load_mcp_tools(session)
        offered("langchain, args_schema", {tool.name: tool.args_schema for tool in tools})
        for by, strict in [("langchain", None), ("langchain, strict", True)]:
            as_functions = [convert_to_openai_tool(tool, strict=strict)["function"] for tool in tools]
            offered(by, {function["name"]: function["parameters"] for function in as_functions})
        agent = create_agent(ScriptedModel(), tools)
        await agent.ainvoke({"messages": [("user", "go")]}, {"recursion_limit": 300})


asyncio.run(main())
