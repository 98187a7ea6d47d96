"""Prints an answer as it comes, over NATS: stream.py "What is an actor?" """

import asyncio
import json
import os
import sys

import nats

SUBJECT = "llm.complete." + os.environ.get("CLASS", "interactive")


async def main(prompt):
    request = {
        "messages": [{"role": "user", "content": prompt}],
        "process": os.environ.get("PROCESS", "python-example"),
        "provider": os.environ.get("PROVIDER", ""),
        "stream": True,
    }
    nc = await nats.connect(os.environ.get("NATS_URL", "nats://127.0.0.1:4222"), allow_reconnect=False)
    inbox = nc.new_inbox()
    replies = await nc.subscribe(inbox)
    await nc.publish(SUBJECT, json.dumps(request).encode(), reply=inbox)
    while True:
        msg = await replies.next_msg(timeout=310)
        headers = msg.headers or {}
        if "Nats-Service-Error-Code" in headers:
            sys.exit("\n" + headers["Nats-Service-Error"])
        if headers.get("Status") == "503":
            sys.exit(f"nobody answers {SUBJECT}: no Sluice node is on this NATS server")
        if not msg.data:  # an empty payload ends the stream
            break
        event = json.loads(msg.data)
        print(event["content"] if event["type"] == "delta" else "", end="", flush=True)
    print()


asyncio.run(main(" ".join(sys.argv[1:])))
