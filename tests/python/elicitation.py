"""The user of the official Python client is asked about a write, in both protocol eras: within the call (mode legacy), and by
an answer that is a question (mode auto, which takes the newest protocol).

The client checks every structured answer against the tool's output schema by itself; a mismatch is an error here.
Arguments: see way.py.
"""

import asyncio
import sys

from mcp import Client
from mcp_types import ElicitRequestParams, ElicitResult
from way import server


async def main(arguments: list[str]) -> None:
    to = server(arguments)
    questions: list[str] = []
    action = "decline"

    async def user(_: object, params: ElicitRequestParams) -> ElicitResult:
        questions.append(params.message)
        if action == "decline":
            # A faster answer is the client's own.
            await asyncio.sleep(1.2)
        return ElicitResult(action=action)

    async def change(client: Client, price: int) -> dict:
        arguments = {
            "package_id": 1,
            "title": "Portrait, one hour",
            "description": "One person, one backdrop, ten edited pictures.",
            "price": price,
            "duration_minutes": 60,
        }
        await client.session.list_tools()
        return (await client.call_tool("upsert_package", arguments)).structured_content

    price = 120
    for mode, protocol in [("legacy", "2025-11-25"), ("auto", "2026-07-28")]:
        async with Client(to, mode=mode, elicitation_callback=user) as client:
            assert client.protocol_version == protocol, client.protocol_version
            action = "decline"
            refused = await change(client, price - 1)
            assert refused["error"]["code"] == "proposal_rejected", refused
            action = "accept"
            done = await change(client, price - 2)
            assert done["data"]["price"] == f"{price - 2}.00", done
            receipt = done["meta"]["correlation_id"]
            assert done["meta"]["rollback"]["undo_params"]["correlation_id"] == receipt, done
            assert f"price: {price}.00 → {price - 2}.00" in questions[-1], questions
        async with Client(to, mode=mode) as client:
            proposed = await change(client, price - 3)
            assert proposed["data"]["requires_approval"] is True, proposed
            proposal = proposed["data"]["proposal"]
            confirmed = await client.call_tool(
                "confirm_proposal", {"proposal_id": proposal["proposal_id"], "digest": proposal["digest"]}
            )
            assert confirmed.structured_content["data"]["status"] == "executed", confirmed
        price -= 3
        print(f"{mode}: {len(questions)} questions")
    print("asked complete")


asyncio.run(main(sys.argv[1:]))
