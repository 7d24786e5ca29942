// LangChain's agents over @langchain/mcp-adapters, with a chat model of our own.
import { load, nextCall, offered, server, shown } from "./scripted_model.mjs";

const [{ createAgent }, { MultiServerMCPClient }, { BaseChatModel }, { AIMessage, ToolMessage }, { convertToOpenAITool }] =
  await Promise.all(
    [
      "langchain",
      "@langchain/mcp-adapters",
      "@langchain/core/language_models/chat_models",
      "@langchain/core/messages",
      "@langchain/core/utils/function_calling",
    ].map(load),
  );

class ScriptedModel extends BaseChatModel {
  _llmType() {
    return "scripted";
  }
  bindTools() {
    return this;
  }
  async _generate(messages) {
    const last = messages.at(-1);
    if (ToolMessage.isInstance(last)) shown(last.content, last.status === "error");
    const call = await nextCall();
    const tool_calls = call ? [{ name: call.tool, args: call.arguments, id: call.id, type: "tool_call" }] : [];
    return { generations: [{ text: "", message: new AIMessage({ content: call ? "" : "done", tool_calls }) }] };
  }
}

const client = new MultiServerMCPClient({
  countersign: server.url ? { transport: "http", url: server.url } : { transport: "stdio", ...server },
});
const tools = await client.getTools();
offered("langchain.js", tools.map(convertToOpenAITool).map(({ function: tool }) => [tool.name, tool.parameters]));
const agent = createAgent({ model: new ScriptedModel({}), tools });
await agent.invoke({ messages: [{ role: "user", content: "go" }] }, { recursionLimit: 300 });
await client.close();
