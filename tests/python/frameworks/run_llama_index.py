"""LlamaIndex, with its MockFunctionCallingLLM."""

import asyncio

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage, MessageRole, ToolCallBlock
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.tools.mcp import BasicMCPClient, McpToolSpec
from scripted_model import SERVER, next_call, offered, shown


def model(messages: list[ChatMessage], **kwargs) -> ChatMessage:
    last = messages[-1]
    if last.role == MessageRole.TOOL:
        shown(last.content)
    call = next_call()
    if not call:
        return ChatMessage(role=MessageRole.ASSISTANT, content="done")
    block = ToolCallBlock(tool_call_id=call.id, tool_name=call.tool, tool_kwargs=call.arguments)
    return ChatMessage(role=MessageRole.ASSISTANT, blocks=[block])


async def main() -> None:
    client = BasicMCPClient(SERVER.get("url") or SERVER["command"], args=SERVER.get("args"), env=SERVER.get("env"))
    tools = await McpToolSpec(client).to_tool_list_async()
    offered("llama-index", {tool.metadata.name: tool.metadata.get_parameters_dict() for tool in tools})
    llm = MockFunctionCallingLLM(response_generator=model, is_chat_model=True)
    agent = FunctionAgent(tools=tools, llm=llm, streaming=False, timeout=None)
    await agent.run("go", max_iterations=100)


asyncio.run(main())
