"""A model server of your own as a provider of Sluice: outside.py. Its model answers backwards."""
import asyncio, json, os, nats
NAME, CAPS = os.environ.get("NAME", "reverse"), int(os.environ.get("CAPS", "4"))
pack = lambda **fields: json.dumps(fields).encode()
ANNOUNCEMENT = pack(provider=NAME, local=True, models=["reverse-1"], capabilities=["streaming"], caps=CAPS)

async def generate(request):  # your model: yields its answer piece by piece
    for letter in reversed(request["messages"][-1]["content"]):
        await asyncio.sleep(float(os.environ.get("PAUSE", "0")))
        yield letter

async def answer(msg, publish):
    try:
        request, text = json.loads(msg.data), ""
        async for piece in generate(request):
            text += piece
            if request.get("stream"):
                await publish(msg.reply, pack(type="delta", content=piece))
        await publish(msg.reply, pack(type="result", content=text, usage={"inputTokens": 1, "outputTokens": len(text)}))
    except Exception as e:
        error = pack(error={"kind": "PROVIDER_ERROR", "message": str(e)})
        await publish(msg.reply, error, headers={"Nats-Service-Error-Code": "502"})
    await publish(msg.reply, b"")  # the end of a stream

async def main():
    nc, running = await nats.connect(os.environ.get("NATS_URL", "nats://127.0.0.1:4222")), {}
    async def serve(msg):
        if msg.reply.startswith("_NODE."):  # from a Sluice, and not past it
            task = running[msg.headers["Llm-Call-Id"]] = asyncio.create_task(answer(msg, nc.publish))
            task.add_done_callback(lambda _: running.pop(msg.headers["Llm-Call-Id"]))
    async def cancel(msg):
        if task := running.get(json.loads(msg.data)["callId"]):
            task.cancel()
    await nc.subscribe(f"llm.provider.{NAME}.complete", "q", cb=serve)
    await nc.subscribe("llm.cancel", cb=cancel)
    while True:
        await nc.publish("llm.provider_announce", ANNOUNCEMENT)
        await asyncio.sleep(10)
asyncio.run(main())
