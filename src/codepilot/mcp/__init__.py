"""MCP servers on standard input and output. The package `mcp` is optional and imported when one starts."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from codepilot import __version__
from codepilot.core.failures import CodePilotError, FailureKind

if TYPE_CHECKING:
    from codepilot.batch import Batch, BatchTools


def serve_batch(batch: Batch, tools: BatchTools) -> None:
    """Offer the tools of a batch until the client closes the connection; running attempts are ended then."""
    try:
        from mcp.server.stdio import stdio_server
    except ImportError as error:
        raise CodePilotError(
            FailureKind.ENVIRONMENT_MISSING,
            "The MCP server needs the package mcp.",
            next_action="Install it: pip install 'codepilot-cli[mcp]'.",
        ) from error
    logging.getLogger("mcp").setLevel(logging.ERROR)
    server = _batch_server(tools)

    async def run() -> None:
        async with stdio_server() as (read, write):
            try:
                await server.run(read, write, server.create_initialization_options())
            finally:
                batch.abort()

    try:
        asyncio.run(run())
    except* BrokenPipeError:
        pass  # the client went away before it had an answer


def _batch_server(tools: BatchTools) -> Any:
    from mcp import types
    from mcp.server.lowlevel import Server

    from codepilot.batch import TOOLS

    async def list_tools(context: Any, parameters: Any) -> types.ListToolsResult:
        offered = [
            types.Tool(name=tool.name, description=tool.description, input_schema=tool.parameters) for tool in TOOLS
        ]
        return types.ListToolsResult(tools=offered)

    async def call_tool(context: Any, parameters: types.CallToolRequestParams) -> types.CallToolResult:
        answer = await asyncio.to_thread(tools.call, parameters.name, parameters.arguments or {})
        content = types.TextContent(type="text", text=answer.text)
        return types.CallToolResult(content=[content], is_error=not answer.ok)

    return Server(
        "codepilot-batch",
        version=__version__,
        instructions=f"The tasks of this batch:\n{tools.listed()}",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
