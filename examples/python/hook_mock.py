"""Writes the answers of the mock provider, by task and tier: hook_mock.py [FILE], for ever.

FILE is JSON, {"task": "its answer"}; other tasks get an answer that names them."""

import asyncio
import json
import os
import sys

import nats

SUBJECT = os.environ.get("SUBJECT", "llm.hook.mock")
ANSWERS = json.load(open(sys.argv[1], encoding="utf-8")) if len(sys.argv) > 1 else {}


def mock_response(task, tier):
    return ANSWERS.get(task, f"the {tier} answer to {task or 'a call without a task'}")


async def main():
    nc = await nats.connect(os.environ.get("NATS_URL", "nats://127.0.0.1:4222"), inbox_prefix=b"_INBOX.hook")

    async def serve(msg):
        question = json.loads(msg.data)
        content = mock_response(question["task"], question["tier"])
        await msg.respond(json.dumps({"content": content}).encode())

    await nc.subscribe(SUBJECT, "q", cb=serve)  # several programs share the work
    await nc.flush()
    await nc.flush()  # the first ping of nats-py may overtake the subscription
    print("listening", flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
