"""A program that is an agent: it speaks ACP (JSON-RPC in lines over its standard streams), follows no model, and for each
prompt writes `acp.txt` into the session's directory and says what it did."""

import json
import os
import sys

MODEL = {
    "id": "model",
    "name": "Model",
    "type": "select",
    "category": "model",
    "currentValue": "m0",
    "options": [{"value": "m0", "name": "m0"}, {"value": "m1", "name": "m1"}],
}
sessions = {}


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def prompt(params):
    session = params["sessionId"]
    asked = " ".join(part.get("text", "") for part in params["prompt"])
    secret = os.environ.get("GREETING", "no secret")
    leaked = "leaked" if "sk-scripted" in str(dict(os.environ)) else "clean"
    with open(os.path.join(sessions[session], "acp.txt"), "w") as out:
        out.write(f"{MODEL['currentValue']}|{secret}|{leaked}")
    said = "I was asked to write." if "write" in asked else "I was asked something."
    chunk = {"type": "text", "text": said}
    update = {"sessionUpdate": "agent_message_chunk", "content": chunk}
    send({"method": "session/update", "params": {"sessionId": session, "update": update}})
    return {"stopReason": "end_turn"}


def answer(method, params):
    if method == "initialize":
        info = {"name": "scripted-acp", "version": "1"}
        return {"protocolVersion": 1, "agentCapabilities": {}, "agentInfo": info, "authMethods": []}
    if method == "session/new":
        session = f"session-{len(sessions)}"
        sessions[session] = params["cwd"]
        return {"sessionId": session, "configOptions": [MODEL]}
    if method == "session/set_config_option":
        MODEL["currentValue"] = params["value"]
        return {"configOptions": [MODEL]}
    if method == "session/prompt":
        return prompt(params)
    return None


for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request or "method" not in request:
        continue
    result = answer(request["method"], request.get("params") or {})
    if result is None:
        error = {"code": -32601, "message": "Method not found"}
        send({"id": request["id"], "error": error})
    else:
        send({"id": request["id"], "result": result})
