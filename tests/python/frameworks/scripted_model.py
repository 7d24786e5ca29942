"""The model of a framework under test. It decides nothing: the test does. What the framework shows it is one JSON line each on
standard output, and what it does next is read from standard input.

Lines out: {"offered": {"by": CONVERTER, "tools": {NAME: SCHEMA}}}, {"shown": RESULT, "failed": BOOL or null} for each call,
{"asked": QUESTION} when the user is asked. Lines in: {"tool": NAME, "arguments": {..}}; at the end of input it has nothing more
to do. The argument of a script says where the server is: {"command", "args", "env"} or {"url"}, and with {"user": true}
the framework has a user, who accepts each question. "skills" is a folder of skills for a framework that loads them.
"""

import asyncio
import json
import os
import sys
from dataclasses import dataclass
from typing import Any

# What a framework prints by itself is not for the test.
_OUT = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)


@dataclass
class Call:
    tool: str
    arguments: dict[str, Any]
    id: str


SERVER: dict[str, Any] = json.loads(sys.argv[1])
_calls = 0


def _write(line: dict[str, Any]) -> None:
    print(json.dumps(line, ensure_ascii=False), file=_OUT, flush=True)


def offered(by: str, tools: dict[str, Any]) -> None:
    """These are the tools and their parameters, as this converter makes them for a model."""
    _write({"offered": {"by": by, "tools": tools}})


def shown(result: Any, failed: bool | None = None) -> None:
    """This is what the model gets for its call. `failed`: what the framework says beside it."""
    _write({"shown": result, "failed": failed})


def asked(question: str) -> None:
    _write({"asked": question})


def next_call() -> Call | None:
    """What the model does now; None if it ends the conversation."""
    global _calls
    line = sys.stdin.readline()
    if not line:
        return None
    _calls += 1
    return Call(**json.loads(line), id=f"call_{_calls}")


async def next_call_async() -> Call | None:
    """The same, while the framework's other tasks go on."""
    return await asyncio.to_thread(next_call)
