"""Google's GenAI SDK. Its own client sends the requests; an HTTP transport answers them in place of Gemini, so what is shown
is what would be sent over the network."""

import asyncio
import json

import httpx
from google import genai
from google.genai import types
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from scripted_model import SERVER, next_call_async, offered, shown


async def gemini(request: httpx.Request) -> httpx.Response:
    body = json.loads(await request.aread())
    last = body["contents"][-1]["parts"][-1]
    if "functionResponse" in last:
        response = last["functionResponse"]["response"]
        shown(response, "error" in response)
    else:
        declared = [declaration for tool in body["tools"] for declaration in tool["functionDeclarations"]]
        offered("google-genai", {tool["name"]: tool["parameters"] for tool in declared})
    call = await next_call_async()
    part = {"functionCall": {"name": call.tool, "args": call.arguments}} if call else {"text": "done"}
    return httpx.Response(200, json={"candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}]})


async def main() -> None:
    if "url" in SERVER:
        streams = streamable_http_client(SERVER["url"])
    else:
        streams = stdio_client(StdioServerParameters(**{key: SERVER[key] for key in ("command", "args", "env")}))
    async with streams as (read, write, *_), ClientSession(read, write) as session:
        await session.initialize()
        transport = httpx.AsyncClient(transport=httpx.MockTransport(gemini))
        client = genai.Client(api_key="none", http_options=types.HttpOptions(httpx_async_client=transport))
        # As a dict: an object would be copied with the session in it, which the Python SDK 2 does not allow.
        config = {"tools": [session], "automatic_function_calling": {"maximum_remote_calls": 100}}
        await client.aio.models.generate_content(model="gemini", contents="go", config=config)


asyncio.run(main())
