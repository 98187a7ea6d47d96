"""Says when a call waits long for a slot: saturation.py [COUNT], for ever without one."""

import asyncio
import json
import os
import sys

import nats


async def main(count):
    nc = await nats.connect(os.environ.get("NATS_URL", "nats://127.0.0.1:4222"))
    events = await nc.subscribe("llm.pool_saturated")
    await nc.flush()
    await nc.flush()  # the first ping of nats-py may overtake the subscription
    print("listening", flush=True)
    async for msg in events.messages:
        e = json.loads(msg.data)
        print(
            f"{e['at']} {e['provider']}/{e['model']}: {e['class']} calls wait {e['waitedMs']} ms, "
            f"{e['queued']} in line, {e['active']} of {e['cap']} slots in use, "
            f"{e['suppressed']} more events left out",
            flush=True,
        )
        count -= 1
        if count == 0:
            break
    await nc.close()


asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else -1))
