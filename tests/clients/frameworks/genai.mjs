// Google's GenAI SDK for JavaScript. Its own client sends the requests; a server here answers them in place of Gemini, so what
// is shown is what would be sent over the network.
import { createServer } from "node:http";
import { text } from "node:stream/consumers";

import { load, nextCall, offered, server, shown } from "./scripted_model.mjs";

const [{ GoogleGenAI, mcpToTool }, { Client }, { StdioClientTransport }, { StreamableHTTPClientTransport }] =
  await Promise.all([
    load("@google/genai"),
    ...["client", "client/stdio.js", "client/streamableHttp.js"].map((path) => load(`@modelcontextprotocol/sdk/${path}`)),
  ]);

const gemini = createServer(async (request, response) => {
  const { contents, tools } = JSON.parse(await text(request));
  const answered = contents.at(-1).parts.at(-1).functionResponse;
  if (answered) {
    shown(answered.response, "error" in answered.response);
  } else {
    const declared = tools.flatMap((tool) => tool.functionDeclarations);
    offered("google-genai.js", declared.map((tool) => [tool.name, tool.parametersJsonSchema ?? tool.parameters]));
  }
  const call = await nextCall();
  const part = call ? { functionCall: { name: call.tool, args: call.arguments } } : { text: "done" };
  response.setHeader("content-type", "application/json");
  response.end(JSON.stringify({ candidates: [{ content: { role: "model", parts: [part] }, finishReason: "STOP" }] }));
});
await new Promise((listening) => gemini.listen(0, "127.0.0.1", listening));

const client = new Client({ name: "test", version: "1" });
await client.connect(server.url ? new StreamableHTTPClientTransport(new URL(server.url)) : new StdioClientTransport(server));
const httpOptions = { baseUrl: `http://127.0.0.1:${gemini.address().port}` };
const config = { tools: [mcpToTool(client)], automaticFunctionCalling: { maximumRemoteCalls: 100 } };
await new GoogleGenAI({ apiKey: "none", httpOptions }).models.generateContent({ model: "gemini", contents: "go", config });
await client.close();
gemini.close();
