"""Keeps a budget for each process, in memory: hook_budget.py, for ever. TOKENS and USD are its limits."""

import asyncio, collections, json, os

import nats

SUBJECT = os.environ.get("SUBJECT", "llm.hook.budget")
TOKENS, USD = int(os.environ.get("TOKENS", "100000")), float(os.environ.get("USD", "1.00"))
tokens, usd = collections.Counter(), collections.Counter()


def answer(message):
    process = message["process"]
    if message["question"] == "track_cost":  # a call has ended; its answer is not read
        tokens[process] += message["totalTokens"]
        usd[process] += message["costUsd"] or 0  # null = no price is known
        return {}
    return {  # over_budget: may this call cost money?
        "overBudget": tokens[process] >= TOKENS or usd[process] >= USD,
        "remainingUsd": USD - usd[process],
        "reason": f"process {process} has used {tokens[process]} of {TOKENS} tokens",
    }


async def main():
    nc = await nats.connect(os.environ.get("NATS_URL", "nats://127.0.0.1:4222"), inbox_prefix=b"_INBOX.hook")

    async def serve(msg):
        await msg.respond(json.dumps(answer(json.loads(msg.data))).encode())

    await nc.subscribe(SUBJECT, cb=serve)  # one program: its sums are its own
    await nc.flush()
    await nc.flush()  # the first ping of nats-py may overtake the subscription
    print("listening", flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
