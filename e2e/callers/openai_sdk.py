"""One call to Sluice through the OpenAI SDK, and the usage that it was told.

openai_sdk.py [--class C] [--stream] [--process P] [--call-id ID] PROMPT

The answer goes to stdout, the usage to stderr. A stream is asked for its usage,
and its last chunk must have it.
"""

import argparse
import os
import sys

from openai import OpenAI

parser = argparse.ArgumentParser()
parser.add_argument("--class", dest="workload", default="interactive")
parser.add_argument("--stream", action="store_true")
parser.add_argument("--process", default="e2e")
parser.add_argument("--call-id", required=True)
parser.add_argument("prompt")
args = parser.parse_args()

client = OpenAI(
    base_url=os.environ["SLUICE_URL"],
    api_key="unused",
    default_headers={
        "X-LLM-Process": args.process,
        "X-LLM-Task": "e2e",
        "X-LLM-Class": args.workload,
        "X-LLM-Call-Id": args.call_id,
    },
    max_retries=0,
    timeout=120,
)
request = {"model": os.environ["MODEL"], "messages": [{"role": "user", "content": args.prompt}]}
if args.stream:
    options = {"include_usage": True}
    chunks = list(client.chat.completions.create(stream=True, stream_options=options, **request))
    usage = chunks.pop().usage
    for chunk in chunks:
        sys.stdout.write(chunk.choices[0].delta.content or "")
else:
    reply = client.chat.completions.create(**request)
    usage = reply.usage
    sys.stdout.write(reply.choices[0].message.content)
print("usage", usage.model_dump_json(), file=sys.stderr)
