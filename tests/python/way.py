"""The way to the server under test, from a script's arguments: the program and a manifest, which are started on standard input
and output with the database of DATABASE_URL; or an address, of /mcp or of /sse."""

import os
from contextlib import AbstractAsyncContextManager

from mcp import StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client


def server(arguments: list[str]) -> StdioServerParameters | str:
    """What a Client takes."""
    if len(arguments) == 1:
        return arguments[0]
    program, manifest = arguments
    return StdioServerParameters(
        command=program,
        args=["--log", "warn", "serve", "--agent-confirms", "--manifest", manifest],
        env={"DATABASE_URL": os.environ["DATABASE_URL"]},
    )


def streams(arguments: list[str]) -> AbstractAsyncContextManager:
    """What a ClientSession takes."""
    to = server(arguments)
    if isinstance(to, StdioServerParameters):
        return stdio_client(to)
    return sse_client(to) if to.endswith("/sse") else streamable_http_client(to)
