"""Starts llama-server, asks it for four tokens, and stops it: check_server.py SERVER MODEL

The last line of output says what went wrong.
"""

import json
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

server, model = sys.argv[1:]
with socket.create_server(("127.0.0.1", 0)) as s:
    port = s.getsockname()[1]
url = f"http://127.0.0.1:{port}"


def post(path, body):
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.load(reply)


def healthy():
    try:
        with urllib.request.urlopen(url + "/health", timeout=5):
            return True
    except (urllib.error.URLError, ConnectionError):
        return False


with tempfile.TemporaryFile() as log:
    command = [server, "-m", model, "--host", "127.0.0.1", "--port", str(port), "-c", "512", "-t", "2", "--device", "none"]
    process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + 120
        while not healthy():
            if process.poll() is not None:
                log.seek(0)
                print(log.read().decode(errors="replace"))
                sys.exit(f"the server ended with status {process.returncode}")
            if time.monotonic() > deadline:
                sys.exit("the server was not ready within two minutes")
            time.sleep(0.05)
        body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
        tokens = post("/v1/chat/completions", body)["usage"]["completion_tokens"]
        print("ok", tokens)
    finally:
        process.kill()
        process.wait()
