"""What the Python clients share: python CLIENT.py URL GUARDED SIGHTED MODEL

URL is an open server, GUARDED one that wants a key and lets each key make twelve
requests a minute, SIGHTED one whose model takes two images. The environment has two
images, RED and BLUE, as PNG in base64. A client prints "ok FEATURE" or "FAIL FEATURE: why" a line.
"""

import json
import os
import sys
import time
import traceback
import urllib.request

URL, GUARDED, SIGHTED, MODEL = sys.argv[1:]
RED, BLUE = os.environ["RED"], os.environ["BLUE"]
LOOK = "what is this?"
NO_IMAGES = "the served model is not a multimodal model and takes no "
TOO_MANY = "At most 2 image(s) may be provided in one prompt."
BROKEN = "Failed to load image"

PARIS = "What is the capital of France?"
MOON = "Tell me three facts about the moon."
ENDLESS = "Write the numbers from 1 to 5000, one a line."
# Small models call a tool if the prompt explains how.
CALL = 'Repeat exactly: <tool_call>{"name": "weather", "arguments": {"city": "Paris"}}</tool_call>'
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "function": {"name": "weather", "description": "The weather in a city.", "parameters": PARAMETERS}}

# The constraint of a reply; even a small model ends such a reply.
FORECAST = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Paris", "London"]}, "days": {"type": "integer", "minimum": 1, "maximum": 7}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
FORECAST_TOOL = {"type": "function", "function": {"name": "forecast", "description": "The weather of the next days.", "parameters": FORECAST}}


def metric(name, label=""):
    """The sum of a metric's series that hold label."""
    with urllib.request.urlopen(URL + "/metrics") as r:
        lines = r.read().decode().splitlines()
    return sum(float(l.rsplit(" ", 1)[1]) for l in lines if l.startswith(name + "{") and label in l)


def aborts():
    return metric("vllm:request_success_total", 'finished_reason="abort"')


def aborted(before):
    """Waits until the engine has aborted one more request and runs none."""
    end = time.monotonic() + 60
    while aborts() != before + 1 or metric("vllm:num_requests_running") != 0:
        assert time.monotonic() < end, f"{aborts() - before} aborts after a minute"
        time.sleep(0.02)


def raises(kind, f):
    """The error of that type that f raises."""
    try:
        f()
    except kind as e:
        return e
    raise AssertionError(f"no {kind.__name__}")


def openai_look(*images):
    """The content of a message of OpenAI's API with images."""
    parts = [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + i}} for i in images]
    return [{"role": "user", "content": [*parts, {"type": "text", "text": LOOK}]}]


def limited(ask, kind):
    """Asks until the key's minute is used up; returns the error then."""
    for _ in range(200):
        try:
            ask()
        except kind as e:
            return e
    raise AssertionError("200 requests were let through")


def arguments(text):
    """The arguments of the call that CALL asks for."""
    got = json.loads(text) if isinstance(text, str) else text
    assert got == {"city": "Paris"}, text


def forecast(got, more=False):
    """A value, or JSON, that keeps to FORECAST; more says that the client leaves additionalProperties out."""
    got = json.loads(got) if isinstance(got, str) else got
    assert (more or len(got) == 2) and got["city"] in ("Paris", "London") and 1 <= got["days"] <= 7, got


def run(*checks):
    for check in checks:
        name = check.__name__.replace("_", "-")
        try:
            check()
            print("ok", name, flush=True)
        except Exception as e:
            traceback.print_exc()
            print(f"FAIL {name}: {type(e).__name__}: {e}".replace("\n", " "), flush=True)
