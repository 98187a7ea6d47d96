"""Says how confidential the content of a call is: hook_sensitivity.py, for ever.

A NATS micro service: `nats service list` shows it, and several of them share the work."""

import asyncio, json, os, re

import nats
from nats.micro import add_service
from nats.micro.service import EndpointConfig

SUBJECT = os.environ.get("SUBJECT", "llm.hook.sensitivity")
SECRET = re.compile(os.environ.get("SECRET", r"password|api[_ ]?key|\b[A-Z]{2}\d{2}(?: ?\d{4}){4,}"), re.IGNORECASE)
ONLY = os.environ.get("ONLY", "dmr,ollama").split(",")  # who may see what is confidential


def classify(content):
    if SECRET.search(content["text"]):
        return {"sensitivity": "confidential", "allowedProviders": ONLY}
    if content["truncated"] or content["attachments"]:  # there is more than we have seen
        return {"sensitivity": "internal"}
    return {"sensitivity": "public"}


async def answer(request):
    await request.respond(json.dumps(classify(json.loads(request.data))).encode())


async def main():
    nc = await nats.connect(os.environ.get("NATS_URL", "nats://127.0.0.1:4222"), inbox_prefix=b"_INBOX.hook")
    service = await add_service(nc, name="classifier", version="1.0.0")
    await service.add_endpoint(EndpointConfig(name="sensitivity", subject=SUBJECT, handler=answer))
    await nc.flush()
    await nc.flush()  # the first ping of nats-py may overtake the subscription
    print("listening", flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
