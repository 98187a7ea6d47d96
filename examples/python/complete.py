"""Asks Sluice one question over NATS: complete.py "What is an actor?" """

import asyncio
import json
import os
import sys

import nats
from nats.errors import NoRespondersError

SUBJECT = "llm.complete." + os.environ.get("CLASS", "interactive")


async def main(prompt):
    request = {
        "messages": [{"role": "user", "content": prompt}],
        "process": os.environ.get("PROCESS", "python-example"),
        "provider": os.environ.get("PROVIDER", ""),
    }
    nc = await nats.connect(os.environ.get("NATS_URL", "nats://127.0.0.1:4222"), allow_reconnect=False)
    try:
        reply = await nc.request(SUBJECT, json.dumps(request).encode(), timeout=310)
    except NoRespondersError:
        sys.exit(f"nobody answers {SUBJECT}: no Sluice node is on this NATS server")
    finally:
        await nc.close()
    answer = json.loads(reply.data)
    if reply.headers and "Nats-Service-Error-Code" in reply.headers:
        error = answer["error"]
        sys.exit(f"{error['kind']}: {error['message']}")
    print(answer["content"])
    print(f"{answer['provider']}/{answer['model']}, {answer['usage']['totalTokens']} tokens", file=sys.stderr)


asyncio.run(main(" ".join(sys.argv[1:])))
