"""A session of the official Python client with countersign: list, attach, read, write, undo, look back.

The client checks every structured answer against the tool's output schema by itself; a mismatch is an error here.
Arguments: see way.py.
"""

import asyncio
import json
import sys

from mcp import ClientSession, MCPError
from way import streams


async def main(arguments: list[str]) -> None:
    async with streams(arguments) as (read, write), ClientSession(read, write) as session:
        hello = await session.initialize()
        assert hello.server_info.name == "countersign", hello
        assert "query_database" in (hello.instructions or ""), hello

        tools = {tool.name: tool for tool in (await session.list_tools()).tools}
        assert tools["query_database"].annotations.read_only_hint is True
        assert tools["like_tweet"].annotations.read_only_hint is False
        print(f"{len(tools)} tools")

        async def call(tool: str, /, **arguments: object) -> dict:
            result = await session.call_tool(tool, arguments)
            # A number that JavaScript would change is text in structured content.
            text = json.loads(result.content[0].text, parse_int=lambda digits: digits if len(digits) > 15 else int(digits))
            assert text == result.structured_content, text
            assert result.is_error is not result.structured_content["success"]
            return result.structured_content

        listed = [str(resource.uri) for resource in (await session.list_resources()).resources]
        tweet = "countersign://database/social/tweet"
        assert listed[0] == "countersign://database" and tweet in listed, listed
        templates = (await session.list_resource_templates()).resource_templates
        assert templates[-1].uri_template == "countersign://database/{schema}/{table}", templates
        contents = (await session.read_resource(tweet)).contents
        described = await call("describe_database", schema="social", table="tweet")
        assert json.loads(contents[0].text) == described["data"], contents
        try:
            await session.read_resource("countersign://database/social/tweets")
            raise AssertionError("there is no such table")
        except MCPError as error:
            assert "The nearest tables that exist: social.tweet." in error.message, error

        big = await call("query_database", query="select 9007199254740993 as big, 'é' as text")
        assert big["data"]["rows"] == [{"big": "9007199254740993", "text": "é"}], big

        refused = await call("query_database", query="delete from social.tweet")
        assert refused["error"]["code"] == "not_read_only", refused

        unliked = (
            "select min(id) as id from social.tweet t where not exists "
            "(select from social.tweet_like l where l.tweet_id = t.id and l.account_id = 'default')"
        )
        tweet_id = (await call("query_database", query=unliked))["data"]["rows"][0]["id"]
        liked = await call("like_tweet", tweet_id=tweet_id)
        duplicate = await call("like_tweet", tweet_id=tweet_id)
        assert duplicate["data"]["cached_result"] == liked["data"], duplicate
        rollback = liked["meta"]["rollback"]
        undone = await call(rollback["undo_tool"], **rollback["undo_params"])
        detail = await call("get_mutation_detail", correlation_id=liked["meta"]["correlation_id"])
        assert detail["data"]["reversed_by"] == [undone["meta"]["correlation_id"]], detail
        recent = await call("get_recent_mutations", limit=3)
        # The duplicate was answered from memory: it has no record.
        assert [entry["status"] for entry in recent["data"]["mutations"]] == ["success", "success"]
        preview = await call("preview_mutation", tool="like_tweet", params={"tweet_id": tweet_id})
        assert preview["data"]["result"] == liked["data"], preview
    print("session complete")


asyncio.run(main(sys.argv[1:]))
