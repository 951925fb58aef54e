"""Drives a server with OpenAI's client; checks.py says how."""

from typing import Literal

import openai
from checks import *
from pydantic import BaseModel, Field

client = openai.OpenAI(base_url=URL + "/v1", api_key="none", max_retries=0)


class Forecast(BaseModel):
    city: Literal["Paris", "London"]
    days: int = Field(ge=1, le=7)


def ask(question, **more):
    if isinstance(question, str):
        question = [{"role": "user", "content": question}]
    more = {"temperature": 0, "max_tokens": 40, **more}
    return client.chat.completions.create(model=MODEL, messages=question, **more)


def chat():
    r = ask(PARIS)
    assert "Paris" in r.choices[0].message.content, r
    assert r.choices[0].finish_reason == "stop", r
    assert r.usage.total_tokens == r.usage.prompt_tokens + r.usage.completion_tokens, r.usage


def stream():
    plain = ask(MOON)
    text, finish, usage = "", None, None
    for chunk in ask(MOON, stream=True, stream_options={"include_usage": True}):
        for c in chunk.choices:
            text += c.delta.content or ""
            finish = c.finish_reason or finish
        usage = chunk.usage or usage
    assert text == plain.choices[0].message.content, (text, plain)
    assert finish == plain.choices[0].finish_reason
    assert usage == plain.usage, (usage, plain.usage)


def turns():
    said = [{"role": "system", "content": "You are terse."}, {"role": "user", "content": PARIS}]
    first = ask(said)
    said += [first.choices[0].message.model_dump(exclude_none=True), {"role": "user", "content": [{"type": "text", "text": MOON}]}]
    second = ask(said)
    assert second.choices[0].message.content and second.usage.prompt_tokens > first.usage.total_tokens, (first, second)


def logprobs():
    r = ask("Name a colour.", logprobs=True, top_logprobs=3)
    content = r.choices[0].logprobs.content
    assert "".join(c.token for c in content).startswith(r.choices[0].message.content)
    for c in content:
        assert len(c.top_logprobs) == 3 and c.token == c.top_logprobs[0].token, c
        assert bytes(c.bytes).decode(errors="replace") == c.token, c


def stop():
    whole = ask(MOON).choices[0].message.content
    word = whole[10:14]
    r = ask(MOON, stop=[word])
    assert r.choices[0].message.content == whole[: whole.index(word)], r
    assert r.choices[0].finish_reason == "stop"


def seed_and_n():
    a, b = (ask("Write a line of a poem.", temperature=1.2, seed=42, n=3) for _ in range(2))
    assert [c.message.content for c in a.choices] == [c.message.content for c in b.choices]
    assert len({c.message.content for c in a.choices}) > 1
    assert [c.index for c in a.choices] == [0, 1, 2]


def completions():
    more = dict(model=MODEL, prompt=["Once upon a time", "The sun is"], max_tokens=16, temperature=0, logprobs=2)
    r = client.completions.create(**more)
    assert [c.index for c in r.choices] == [0, 1]
    assert r.usage.completion_tokens == 32
    texts = {0: "", 1: ""}
    for chunk in client.completions.create(stream=True, **more):
        for c in chunk.choices:
            texts[c.index] += c.text
    for c in r.choices:
        assert texts[c.index] == c.text and "".join(c.logprobs.tokens) == c.text


def models():
    assert [m.id for m in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).id == MODEL
    raises(openai.NotFoundError, lambda: client.models.retrieve("nobody"))


def tools():
    said = [{"role": "user", "content": CALL}]
    c = ask(said, tools=[TOOL]).choices[0]
    call = c.message.tool_calls[0]
    assert c.finish_reason == "tool_calls" and call.function.name == "weather" and call.type == "function", c
    arguments(call.function.arguments)
    # An agent's loop: send the model's message back unchanged, then the tool's answer.
    said += [c.message, {"role": "tool", "tool_call_id": call.id, "content": "sunny, 21 degrees"}]
    c = ask(said, tools=[TOOL], tool_choice="none").choices[0]
    assert c.message.content and not c.message.tool_calls and c.finish_reason in ("stop", "length"), c


def tools_stream():
    plain = ask(CALL, tools=[TOOL]).choices[0].message
    with client.chat.completions.stream(
        model=MODEL, messages=[{"role": "user", "content": CALL}], tools=[TOOL], temperature=0, max_tokens=40
    ) as s:
        kinds = {e.type for e in s}
        c = s.get_final_completion().choices[0]
    assert "tool_calls.function.arguments.done" in kinds, kinds
    assert c.finish_reason == "tool_calls" and c.message.content == plain.content, (c, plain)
    got, want = c.message.tool_calls[0], plain.tool_calls[0]
    assert got.id and got.function.name == "weather" and got.function.arguments == want.function.arguments, (got, want)


def forced():
    named = {"type": "function", "function": {"name": "forecast"}}
    for choice in ("required", named):
        more = dict(tools=[TOOL, FORECAST_TOOL] if choice == named else [FORECAST_TOOL], tool_choice=choice)
        c = ask(PARIS, **more).choices[0]
        call = c.message.tool_calls[0]
        assert call.function.name == "forecast" and c.finish_reason == ("stop" if choice == named else "tool_calls"), c
        forecast(call.function.arguments)
        whole = ""
        for chunk in ask(PARIS, stream=True, **more):
            for d in chunk.choices[0].delta.tool_calls or []:
                whole += d.function.arguments if d.index == 0 else ""
        assert whole == call.function.arguments, (whole, call)


def schema():
    r = client.chat.completions.parse(
        model=MODEL, messages=[{"role": "user", "content": PARIS}], temperature=0, max_tokens=60, response_format=Forecast
    )
    assert isinstance(r.choices[0].message.parsed, Forecast), r
    r = ask("Give me JSON.", response_format={"type": "json_object"})
    assert r.choices[0].message.content.lstrip().startswith("{"), r
    r = ask("Is Paris in France?", extra_body={"structured_outputs": {"choice": ["yes", "no"]}})
    assert r.choices[0].message.content in ("yes", "no"), r
    broken = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nothing"}}}
    raises(openai.BadRequestError, lambda: ask("x", response_format=broken))


def responses():
    r = client.responses.create(model=MODEL, input=PARIS, temperature=0, max_output_tokens=40)
    assert "Paris" in r.output_text and r.status == "completed" and r.usage.total_tokens > 0, r
    with client.responses.stream(model=MODEL, input=PARIS, temperature=0, max_output_tokens=40) as s:
        kinds = [e.type for e in s]
        assert s.get_final_response().output_text == r.output_text, kinds
    assert kinds[:2] == ["response.created", "response.in_progress"] and kinds[-1] == "response.completed", kinds
    function = {"type": "function", "name": "forecast", "description": "The weather of the next days.", "parameters": FORECAST, "strict": True}
    r = client.responses.create(model=MODEL, input=PARIS, temperature=0, max_output_tokens=60, tools=[function], tool_choice="required")
    call = r.output[0]
    assert call.type == "function_call" and call.name == "forecast", r
    forecast(call.arguments)
    said = [{"role": "user", "content": PARIS}, call, {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}]
    assert client.responses.create(model=MODEL, input=said, max_output_tokens=20).output_text
    r = client.responses.parse(model=MODEL, input=PARIS, temperature=0, max_output_tokens=60, text_format=Forecast)
    assert isinstance(r.output_parsed, Forecast), r


def images():
    sees = client.with_options(base_url=SIGHTED + "/v1")
    look = lambda *images, c=sees: c.chat.completions.create(model=MODEL, messages=openai_look(*images), max_tokens=8)
    none, one, other, both = look(), look(RED), look(BLUE), look(RED, BLUE)
    tokens = one.usage.prompt_tokens - none.usage.prompt_tokens
    assert tokens >= 10 and both.usage.prompt_tokens == none.usage.prompt_tokens + 2 * tokens, (none, one, both)
    text = one.choices[0].message.content
    assert text and text != other.choices[0].message.content, (one, other)
    shown = {"type": "input_image", "image_url": "data:image/png;base64," + RED, "detail": "auto"}
    said = [{"role": "user", "content": [shown, {"type": "input_text", "text": LOOK}]}]
    r = sees.responses.create(model=MODEL, input=said, max_output_tokens=8)
    assert r.output_text == text and r.usage.input_tokens == one.usage.prompt_tokens, (r, one)
    call = {"type": "function_call", "call_id": "c", "name": "screenshot", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c", "output": [shown]}
    assert sees.responses.create(model=MODEL, input=[*said, call, result], max_output_tokens=8).usage.input_tokens > r.usage.input_tokens + tokens - 1
    for c, given, why in ((client, [RED], NO_IMAGES), (sees, [RED, RED, BLUE], TOO_MANY), (sees, [RED[:40]], BROKEN)):
        e = raises(openai.BadRequestError, lambda: look(*given, c=c))
        assert why in e.body["message"] and e.body["type"] == "BadRequestError" and "\n" not in e.body["message"], e


def errors():
    e = raises(openai.NotFoundError, lambda: client.chat.completions.create(model="nobody", messages=[{"role": "user", "content": "x"}]))
    assert e.body["type"] == "NotFoundError" and e.body["param"] == "model", e.body
    e = raises(openai.BadRequestError, lambda: ask("x", top_p=2))
    assert "top_p" in e.message and e.body["code"] == 400, e
    e = raises(openai.BadRequestError, lambda: ask("word " * 5000, stream=True))
    assert "maximum context length is 4096 tokens" in e.message, e
    raises(openai.BadRequestError, lambda: ask([]))
    raises(openai.APIStatusError, lambda: client.get("/nowhere", cast_to=object))


def key():
    c = openai.OpenAI(base_url=GUARDED + "/v1", api_key="wrong", max_retries=0)
    e = raises(openai.AuthenticationError, lambda: c.models.list())
    assert e.status_code == 401, e
    c = c.with_options(api_key="openai-python")
    assert c.models.list().data[0].id == MODEL


def limits():
    patient = openai.OpenAI(base_url=GUARDED + "/v1", api_key="openai-python", max_retries=5)
    hasty = patient.with_options(max_retries=0)
    one = lambda c: c.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "x"}], max_tokens=1)
    e = limited(lambda: one(hasty), openai.RateLimitError)
    assert 1 <= int(e.response.headers["Retry-After"]) <= 60 and e.type == "RateLimitError", e.response.headers
    assert one(patient).usage.completion_tokens == 1


def cancel():
    before = aborts()
    s = ask(ENDLESS, max_tokens=3000, stream=True, extra_body={"ignore_eos": True})
    for _, chunk in zip(range(4), s):
        assert chunk.choices[0].finish_reason is None
    s.close()
    aborted(before)
    raises(openai.APITimeoutError, lambda: ask(ENDLESS, max_tokens=3000, timeout=1, extra_body={"ignore_eos": True}))
    aborted(before + 1)


run(chat, stream, turns, logprobs, stop, seed_and_n, completions, models, tools, tools_stream, forced, schema, responses, images, errors, key, limits, cancel)
