"""smolagents over mcpadapt, with a model of our own. Its agents call tools one after the other, and its model gets text."""

from mcp import StdioServerParameters
from scripted_model import SERVER, Call, next_call, offered, shown
from smolagents import ChatMessage, MCPClient, Model, ToolCallingAgent
from smolagents.models import ChatMessageToolCall, ChatMessageToolCallFunction, MessageRole, get_tool_json_schema


# An argument of each type that says nothing.
EMPTY = {"string": "", "array": [], "integer": 500, "boolean": False, "object": {}}


def whole(call: Call) -> dict:
    """The arguments with all others: smolagents makes each of them required (I-5)."""
    return {name: EMPTY[form["type"]] for name, form in forms[call.tool].items()} | call.arguments


class ScriptedModel(Model):
    def generate(self, messages, stop_sequences=None, response_format=None, tools_to_call_from=None, **kwargs) -> ChatMessage:
        last = messages[-1]
        text = "".join(block["text"] for block in last.content) if isinstance(last.content, list) else last.content
        if last.role == MessageRole.TOOL_RESPONSE:
            shown(text, "Error" in text.split("\n")[0])
        call = next_call()
        name, arguments = (call.tool, whole(call)) if call else ("final_answer", {"answer": "done"})
        function = ChatMessageToolCallFunction(name=name, arguments=arguments)
        called = ChatMessageToolCall(id=call.id if call else "end", type="function", function=function)
        return ChatMessage(role=MessageRole.ASSISTANT, content="", tool_calls=[called])


if "url" in SERVER:
    to = {"url": SERVER["url"], "transport": "streamable-http"}
else:
    to = StdioServerParameters(**{key: SERVER[key] for key in ("command", "args", "env")})
with MCPClient(to, structured_output=False) as tools:
    forms = {tool.name: tool.inputs for tool in tools}
    offered("smolagents", {tool.name: get_tool_json_schema(tool)["function"]["parameters"] for tool in tools})
    ToolCallingAgent(tools=tools, model=ScriptedModel(), max_steps=100, verbosity_level=0).run("go")
