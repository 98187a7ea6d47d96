"""A model server of your own as a provider of Sluice: outside.py. Its model answers backwards."""

import asyncio, json, os

import nats

NAME = os.environ.get("NAME", "reverse")
CAPS = int(os.environ.get("CAPS", "4"))  # calls at once
ANNOUNCEMENT = {"provider": NAME, "local": True, "models": ["reverse-1"], "capabilities": ["streaming"], "caps": CAPS}


async def generate(request):  # your model: yields its answer piece by piece
    for letter in reversed(request["messages"][-1]["content"]):
        await asyncio.sleep(float(os.environ.get("PAUSE", "0")))
        yield letter


async def answer(nc, msg):
    async def say(data, headers=None):
        await nc.publish(msg.reply, json.dumps(data).encode(), headers=headers)

    try:
        request, text = json.loads(msg.data), ""
        async for piece in generate(request):
            text += piece
            if request.get("stream"):
                await say({"type": "delta", "content": piece})
        await say({"type": "result", "content": text, "usage": {"inputTokens": len(text), "outputTokens": len(text)}})
    except Exception as e:
        error = {"error": {"kind": "PROVIDER_ERROR", "message": str(e)}}
        await say(error, {"Nats-Service-Error-Code": "502", "Nats-Service-Error": "PROVIDER_ERROR"})
    await nc.publish(msg.reply, b"")  # the end of a stream


async def main():
    nc = await nats.connect(os.environ.get("NATS_URL", "nats://127.0.0.1:4222"))
    running = {}

    async def serve(msg):
        if msg.reply.startswith("_NODE."):  # from a Sluice, and not past it
            call = msg.headers["Llm-Call-Id"]
            running[call] = asyncio.create_task(answer(nc, msg))
            running[call].add_done_callback(lambda _: running.pop(call))

    async def cancel(msg):
        if task := running.get(json.loads(msg.data)["callId"]):
            task.cancel()

    await nc.subscribe(f"llm.provider.{NAME}.complete", "q", cb=serve)
    await nc.subscribe("llm.cancel", cb=cancel)
    while True:
        await nc.publish("llm.provider_announce", json.dumps(ANNOUNCEMENT).encode())
        await asyncio.sleep(10)


asyncio.run(main())
