"""Drives a server with Anthropic's client; checks.py says how."""

from typing import Literal

import anthropic
from checks import *
from pydantic import BaseModel

client = anthropic.Anthropic(base_url=URL, api_key="none", max_retries=0)
WEATHER = {"name": "weather", "description": "The weather in a city.", "input_schema": PARAMETERS}


# Greedy by the server's profile: this client sends no temperature.
def params(question, **more):
    if isinstance(question, str):
        question = [{"role": "user", "content": question}]
    return {"model": MODEL, "messages": question, "max_tokens": 40, **more}


def ask(question, **more):
    return client.messages.create(**params(question, **more))


def chat():
    r = ask(PARIS)
    assert [b.type for b in r.content] == ["text"] and "Paris" in r.content[0].text, r
    assert r.stop_reason == "end_turn" and r.role == "assistant" and r.model == MODEL, r
    assert r.usage.input_tokens > 0 and r.usage.output_tokens > 0, r


def stream():
    plain = ask(MOON)
    with client.messages.stream(**params(MOON)) as s:
        text = "".join(s.text_stream)
        last = s.get_final_message()
    assert text == plain.content[0].text == last.content[0].text, (text, plain)
    assert last.stop_reason == plain.stop_reason == "max_tokens", last
    assert (last.usage.input_tokens, last.usage.output_tokens) == (plain.usage.input_tokens, plain.usage.output_tokens), (last, plain)
    kinds = [e.type for e in ask(MOON, stream=True)]
    assert kinds[:2] == ["message_start", "content_block_start"], kinds
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"], kinds


def turns():
    said = [{"role": "user", "content": PARIS}]
    first = ask(said, system="You are terse.")
    said += [{"role": "assistant", "content": first.content}, {"role": "user", "content": [{"type": "text", "text": MOON}]}]
    second = ask(said, system=[{"type": "text", "text": "You are terse."}])
    assert second.content[0].text and second.usage.input_tokens > first.usage.input_tokens + first.usage.output_tokens, (first, second)


def stop():
    whole = ask(MOON).content[0].text
    word = whole[10:14]
    r = ask(MOON, stop_sequences=[word])
    assert r.content[0].text == whole[: whole.index(word)] and r.stop_reason == "stop_sequence" and r.stop_sequence == word, r


def models():
    assert [m.id for m in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).id == MODEL


def token_counting():
    p = params(PARIS, system="You are terse.")
    n = client.messages.count_tokens(model=MODEL, messages=p["messages"], system=p["system"]).input_tokens
    assert n == client.messages.create(**p).usage.input_tokens, n
    more = client.messages.count_tokens(model=MODEL, messages=p["messages"], system=p["system"], tools=[WEATHER]).input_tokens
    assert more > n + 10, (n, more)


def called(r):
    (call,) = [b for b in r.content if b.type == "tool_use"]
    assert r.stop_reason == "tool_use" and call.name == "weather" and call.id, r
    arguments(call.input)
    return call


def tools():
    said = [{"role": "user", "content": CALL}]
    r = ask(said, tools=[WEATHER])
    call = called(r)
    said += [
        {"role": "assistant", "content": r.content},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "sunny"}]}]},
    ]
    r = ask(said, tools=[WEATHER], tool_choice={"type": "none"})
    assert r.content[0].type == "text" and r.stop_reason in ("end_turn", "max_tokens"), r


def tools_stream():
    plain = ask(CALL, tools=[WEATHER])
    with client.messages.stream(**params(CALL, tools=[WEATHER])) as s:
        partial = "".join(e.partial_json for e in s if e.type == "input_json")
        r = s.get_final_message()
    arguments(partial)
    called(r)
    # A stream has the blocks in the order of generation, a plain reply its text first.
    assert sorted(b.type for b in r.content) == sorted(b.type for b in plain.content), (r, plain)


def forced():
    tool = {"name": "forecast", "description": "The weather of the next days.", "input_schema": FORECAST}
    for choice, given in (({"type": "any"}, [tool]), ({"type": "tool", "name": "forecast"}, [WEATHER, tool])):
        r = ask(PARIS, tools=given, tool_choice=choice)
        call = [b for b in r.content if b.type == "tool_use"][0]
        assert call.name == "forecast" and r.stop_reason == "tool_use", r
        forecast(call.input)
        with client.messages.stream(**params(PARIS, tools=given, tool_choice=choice)) as s:
            last = s.get_final_message()
        assert [b.input for b in last.content if b.type == "tool_use"][0] == call.input and last.stop_reason == "tool_use", (last, r)


class City(BaseModel):
    city: Literal["Paris", "London"]


def schema():
    r = ask(PARIS, output_config={"format": {"type": "json_schema", "schema": FORECAST}})
    forecast(r.content[0].text)
    r = client.messages.parse(**params(PARIS), output_format=City)
    assert isinstance(r.parsed_output, City) and r.stop_reason == "end_turn", r


def images():
    sees = client.with_options(base_url=SIGHTED)
    shown = lambda data: {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    text = {"type": "text", "text": LOOK}
    look = lambda *images, c=sees: c.messages.create(**params([{"role": "user", "content": [*map(shown, images), text]}], max_tokens=8))
    none, one, other = look(), look(RED), look(BLUE)
    tokens = one.usage.input_tokens - none.usage.input_tokens
    assert tokens >= 10 and one.content[0].text and one.content[0].text != other.content[0].text, (none, one, other)
    # An agent's tool returns a screenshot.
    call = {"type": "tool_use", "id": "c", "name": "screenshot", "input": {}}
    agent = lambda result: [{"role": "user", "content": LOOK}, {"role": "assistant", "content": [call]},
                            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": result}]}]
    used = lambda result, c=sees: c.messages.create(**params(agent(result), max_tokens=8)).usage.input_tokens
    assert used([shown(RED)]) == used([]) + tokens, (used([shown(RED)]), used([]), tokens)
    for c, given, why in ((client, [RED], NO_IMAGES), (sees, [RED, RED, BLUE], TOO_MANY), (sees, [RED[:40]], BROKEN)):
        e = raises(anthropic.BadRequestError, lambda: look(*given, c=c))
        assert why in e.body["error"]["message"] and e.body["error"]["type"] == "invalid_request_error", e
    assert NO_IMAGES in raises(anthropic.BadRequestError, lambda: used([shown(RED)], client)).body["error"]["message"]


def errors():
    e = raises(anthropic.NotFoundError, lambda: client.messages.create(**{**params("x"), "model": "nobody"}))
    assert e.body["type"] == "error" and e.body["error"]["type"] == "not_found_error" and e.request_id, (e.body, e.request_id)
    e = raises(anthropic.BadRequestError, lambda: ask("x", extra_body={"temperature": -1}))
    assert "temperature" in e.message and e.body["error"]["type"] == "invalid_request_error", e
    raises(anthropic.BadRequestError, lambda: ask("word " * 5000, stream=True))
    raises(anthropic.BadRequestError, lambda: ask("x", max_tokens=0))


def key():
    c = anthropic.Anthropic(base_url=GUARDED, api_key="wrong", max_retries=0)
    raises(anthropic.AuthenticationError, lambda: c.messages.create(**params("x")))
    assert c.with_options(api_key="anthropic-python").models.list().data[0].id == MODEL
    bearer = anthropic.Anthropic(base_url=GUARDED, auth_token="anthropic-python", max_retries=0)
    assert bearer.models.list().data[0].id == MODEL


def limits():
    patient = anthropic.Anthropic(base_url=GUARDED, api_key="anthropic-python", max_retries=5)
    hasty = patient.with_options(max_retries=0)
    one = lambda c: c.messages.create(**params("x", max_tokens=1))
    e = limited(lambda: one(hasty), anthropic.RateLimitError)
    assert 1 <= int(e.response.headers["Retry-After"]) <= 60 and e.body["error"]["type"] == "rate_limit_error", (e.response.headers, e.body)
    assert one(patient).usage.output_tokens == 1


def cancel():
    before = aborts()
    # The protocol has no ignore_eos; a long list of numbers gives a long reply.
    numbers = {"type": "array", "items": {"type": "integer"}, "minItems": 900}
    shape = {"type": "object", "properties": {"numbers": numbers}, "required": ["numbers"], "additionalProperties": False}
    long = {"max_tokens": 3000, "output_config": {"format": {"type": "json_schema", "schema": shape}}}
    with client.messages.stream(**params(ENDLESS, **long)) as s:
        for _, text in zip(range(4), s.text_stream):
            assert text
    aborted(before)
    raises(anthropic.APITimeoutError, lambda: ask(ENDLESS, timeout=1, **long))
    aborted(before + 1)


run(chat, stream, turns, stop, models, token_counting, tools, tools_stream, forced, schema, images, errors, key, limits, cancel)
