// The AI SDK, with its MockLanguageModelV4: what is shown is what its providers send to a model.
import { asked, load, nextCall, offered, server, shown } from "./scripted_model.mjs";

const [{ generateText, stepCountIs }, { MockLanguageModelV4 }, mcp, { Experimental_StdioMCPTransport }] = await Promise.all(
  ["ai", "ai/test", "@ai-sdk/mcp", "@ai-sdk/mcp/mcp-stdio"].map(load),
);

const client = await mcp.createMCPClient({
  transport: server.url ? { type: "http", url: server.url } : new Experimental_StdioMCPTransport(server),
  capabilities: server.user ? { elicitation: {} } : {},
});
if (server.user) {
  client.onElicitationRequest(mcp.ElicitationRequestSchema, ({ params }) => {
    asked(params.message);
    return { action: "accept", content: {} };
  });
}
const usage = { inputTokens: { total: 0 }, outputTokens: { total: 0 } };
const model = new MockLanguageModelV4({
  doGenerate: async ({ prompt, tools }) => {
    const last = prompt.at(-1).content.at(-1);
    if (last.type === "tool-result") {
      shown(last.output.value, last.output.type.startsWith("error"));
    } else {
      offered("ai", tools.map((tool) => [tool.name, tool.inputSchema]));
    }
    const call = await nextCall();
    const content = call
      ? { type: "tool-call", toolCallId: call.id, toolName: call.tool, input: JSON.stringify(call.arguments) }
      : { type: "text", text: "done" };
    const finishReason = { unified: call ? "tool-calls" : "stop", raw: undefined };
    return { content: [content], finishReason, usage, warnings: [] };
  },
});
await generateText({ model, tools: await client.tools(), prompt: "go", stopWhen: stepCountIs(100) });
await client.close();
