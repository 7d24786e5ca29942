// The TypeScript SDK's client, which has no model: what is shown is the result as it has read it. It compiles the output
// schemas and checks each structured result against them by itself.
import { asked, load, nextCall, offered, server, shown } from "./scripted_model.mjs";

const [{ Client }, { StdioClientTransport }, { StreamableHTTPClientTransport }, { ElicitRequestSchema }] = await Promise.all(
  ["client", "client/stdio.js", "client/streamableHttp.js", "types.js"].map((path) =>
    load(`@modelcontextprotocol/sdk/${path}`),
  ),
);

const client = new Client({ name: "test", version: "1" }, { capabilities: server.user ? { elicitation: {} } : {} });
if (server.user) {
  client.setRequestHandler(ElicitRequestSchema, ({ params }) => {
    asked(params.message);
    return { action: "accept", content: {} };
  });
}
const transport = server.url ? new StreamableHTTPClientTransport(new URL(server.url)) : new StdioClientTransport(server);
await client.connect(transport);
const { tools } = await client.listTools();
offered("TypeScript SDK", tools.map((tool) => [tool.name, tool.inputSchema]));
for (let call = await nextCall(); call; call = await nextCall()) {
  const result = await client.callTool({ name: call.tool, arguments: call.arguments });
  shown(result, result.isError ?? false);
}
await client.close();
