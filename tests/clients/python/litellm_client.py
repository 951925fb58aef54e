"""Drives a server with litellm; checks.py says how."""

import os
from typing import Literal

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it asks the network for prices

import litellm
from checks import *
from pydantic import BaseModel, Field

litellm.suppress_debug_info = True


class Forecast(BaseModel):
    city: Literal["Paris", "London"]
    days: int = Field(ge=1, le=7)


def ask(question, url=URL, **more):
    if isinstance(question, str):
        question = [{"role": "user", "content": question}]
    more = {"model": "hosted_vllm/" + MODEL, "api_key": "none", "temperature": 0, "max_tokens": 40, "num_retries": 0, **more}
    return litellm.completion(messages=question, api_base=url + "/v1", **more)


def chat():
    for provider in ("hosted_vllm/", "openai/"):
        r = ask(PARIS, model=provider + MODEL)
        assert "Paris" in r.choices[0].message.content and r.choices[0].finish_reason == "stop", r
        assert r.usage.total_tokens == r.usage.prompt_tokens + r.usage.completion_tokens > 0, r


def stream():
    plain = ask(MOON)
    chunks = list(ask(MOON, stream=True, stream_options={"include_usage": True}))
    whole = litellm.stream_chunk_builder(chunks)
    assert whole.choices[0].message.content == plain.choices[0].message.content, (whole, plain)
    # litellm's builder reads the finish reason from the last chunk, which has only the usage.
    assert [c.choices[0].finish_reason for c in chunks if c.choices[0].finish_reason] == [plain.choices[0].finish_reason], chunks
    assert whole.usage.total_tokens == plain.usage.total_tokens, (whole.usage, plain.usage)


def turns():
    said = [{"role": "system", "content": "You are terse."}, {"role": "user", "content": PARIS}]
    first = ask(said)
    said += [first.choices[0].message, {"role": "user", "content": [{"type": "text", "text": MOON}]}]
    second = ask(said)
    assert second.choices[0].message.content and second.usage.prompt_tokens > first.usage.total_tokens, (first, second)


def logprobs():
    r = ask("Name a colour.", logprobs=True, top_logprobs=2)
    assert all(len(c.top_logprobs) == 2 for c in r.choices[0].logprobs.content) and r.choices[0].logprobs.content, r


def stop():
    whole = ask(MOON).choices[0].message.content
    word = whole[10:14]
    assert ask(MOON, stop=[word]).choices[0].message.content == whole[: whole.index(word)]


def seed_and_n():
    a, b = (ask("Write a line of a poem.", temperature=1.2, seed=42, n=3) for _ in range(2))
    assert [c.message.content for c in a.choices] == [c.message.content for c in b.choices]
    assert len({c.message.content for c in a.choices}) > 1


def completions():
    r = litellm.text_completion(
        model="text-completion-openai/" + MODEL, prompt="Once upon a time", max_tokens=16, temperature=0, api_base=URL + "/v1", api_key="none"
    )
    assert r.choices[0].text and r.usage.completion_tokens == 16, r


def tools():
    said = [{"role": "user", "content": CALL}]
    c = ask(said, tools=[TOOL]).choices[0]
    call = c.message.tool_calls[0]
    assert c.finish_reason == "tool_calls" and call.function.name == "weather", c
    arguments(call.function.arguments)
    said += [c.message, {"role": "tool", "tool_call_id": call.id, "content": "sunny, 21 degrees"}]
    c = ask(said, tools=[TOOL], tool_choice="none").choices[0]
    assert c.message.content and not c.message.tool_calls, c


def tools_stream():
    plain = ask(CALL, tools=[TOOL]).choices[0].message
    c = litellm.stream_chunk_builder(list(ask(CALL, tools=[TOOL], stream=True))).choices[0]
    assert c.finish_reason == "tool_calls" and c.message.content == plain.content, (c, plain)
    (call,) = c.message.tool_calls
    assert call.id and call.function.name == "weather" and call.function.arguments == plain.tool_calls[0].function.arguments, (c, plain)


def forced():
    for choice in ("required", {"type": "function", "function": {"name": "forecast"}}):
        call = ask(PARIS, tools=[FORECAST_TOOL], tool_choice=choice).choices[0].message.tool_calls[0]
        assert call.function.name == "forecast", call
        forecast(call.function.arguments, more=True)


def schema():
    forecast(ask(PARIS, response_format=Forecast).choices[0].message.content)
    whole = litellm.stream_chunk_builder(list(ask(PARIS, response_format=Forecast, stream=True)))
    forecast(whole.choices[0].message.content)


def images():
    r = ask(openai_look(RED), url=SIGHTED)
    assert r.choices[0].message.content and r.usage.prompt_tokens > len(LOOK) + 10, r
    e = raises(litellm.BadRequestError, lambda: ask(openai_look(RED)))
    assert NO_IMAGES in str(e), e


def errors():
    raises(litellm.NotFoundError, lambda: ask("x", model="hosted_vllm/nobody"))
    e = raises(litellm.BadRequestError, lambda: ask("x", top_p=2))
    assert "top_p" in e.message, e
    raises(litellm.ContextWindowExceededError, lambda: ask("word " * 5000))


def key():
    raises(litellm.AuthenticationError, lambda: ask("x", GUARDED, api_key="wrong"))
    assert ask("x", GUARDED, api_key="litellm").choices


def limits():
    limited(lambda: ask("x", GUARDED, api_key="litellm", max_tokens=1), litellm.RateLimitError)
    # completion() retries at once; the router waits for the server's Retry-After.
    where = {"model": "hosted_vllm/" + MODEL, "api_base": GUARDED + "/v1", "api_key": "litellm", "max_tokens": 1}
    router = litellm.Router([{"model_name": "m", "litellm_params": where}], num_retries=5, disable_cooldowns=True)
    assert router.completion("m", [{"role": "user", "content": "x"}]).usage.completion_tokens == 1


def cancel():
    before = aborts()
    s = ask(ENDLESS, model="openai/" + MODEL, max_tokens=3000, stream=True, extra_body={"ignore_eos": True})
    for _ in range(4):
        next(s)
    s.completion_stream.close()
    aborted(before)


run(chat, stream, turns, logprobs, stop, seed_and_n, completions, tools, tools_stream, forced, schema, images, errors, key, limits, cancel)
