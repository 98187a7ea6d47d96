"""Asks Sluice through the OpenAI SDK: openai_sdk.py "What is an actor?" """

import os
import sys

from openai import APIError, OpenAI

client = OpenAI(
    base_url=os.environ.get("SLUICE_URL", "http://127.0.0.1:12435/v1"),
    api_key=os.environ.get("SLUICE_HTTP_TOKEN", "none"),
    default_headers={
        "X-LLM-Process": os.environ.get("PROCESS", "openai-python-example"),
        "X-LLM-Class": os.environ.get("CLASS", "interactive"),
    },
)
# A tier (fast, standard, premium), auto, provider/model, or an id that a provider serves.
model = os.environ.get("MODEL", "auto")
messages = [{"role": "user", "content": " ".join(sys.argv[1:])}]
try:
    if os.environ.get("STREAM"):
        for chunk in client.chat.completions.create(model=model, messages=messages, stream=True):
            if chunk.choices:
                print(chunk.choices[0].delta.content or "", end="", flush=True)
        print()
    else:
        answer = client.chat.completions.create(model=model, messages=messages)
        print(answer.choices[0].message.content)
        print(f"{answer.model}, {answer.usage.total_tokens} tokens", file=sys.stderr)
except APIError as error:
    sys.exit(str(error))
