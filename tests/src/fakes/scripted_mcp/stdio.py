"""An MCP server over standard streams with one tool, `lookup`."""

import json
import os
import sys

TOOL = {
    "name": "lookup",
    "description": "Looks a word up.",
    "inputSchema": {
        "type": "object",
        "properties": {"word": {"type": "string"}},
        "required": ["word"],
    },
}


def answer(method, params):
    if method == "initialize":
        info = {"name": "scripted-mcp", "version": "1"}
        version = params.get("protocolVersion", "2025-06-18")
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        word = params["arguments"]["word"]
        text = f"{word} found over stdio with {os.environ.get('MCP_TOKEN', 'no token')}"
        return {"content": [{"type": "text", "text": text}], "isError": False}
    return {} if method == "ping" else None


for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    result = answer(request["method"], request.get("params") or {})
    reply = {"jsonrpc": "2.0", "id": request["id"]}
    if result is None:
        reply["error"] = {"code": -32601, "message": "Method not found"}
    else:
        reply["result"] = result
    sys.stdout.write(json.dumps(reply) + "\n")
    sys.stdout.flush()
