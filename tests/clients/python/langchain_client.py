"""Drives a server with LangChain's ChatOpenAI; checks.py says how."""

from typing import Literal

import openai
from checks import *
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field


def model(url=URL, **more):
    return ChatOpenAI(**{"base_url": url + "/v1", "api_key": "none", "model": MODEL, "temperature": 0, "max_tokens": 40, "max_retries": 0, **more})


llm = model()


class Forecast(BaseModel):
    """The weather of the next days."""

    city: Literal["Paris", "London"]
    days: int = Field(ge=1, le=7)


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


def chat():
    r = llm.invoke(PARIS)
    assert "Paris" in r.content and r.response_metadata["finish_reason"] == "stop", r
    assert r.usage_metadata["total_tokens"] == r.usage_metadata["input_tokens"] + r.usage_metadata["output_tokens"] > 0, r


def stream():
    plain = llm.invoke(MOON)
    whole = None
    for chunk in llm.stream(MOON, stream_usage=True):
        whole = chunk if whole is None else whole + chunk
    assert whole.content == plain.content, (whole, plain)
    assert whole.response_metadata["finish_reason"] == plain.response_metadata["finish_reason"]
    for k in ("input_tokens", "output_tokens", "total_tokens"):
        assert whole.usage_metadata[k] == plain.usage_metadata[k], (whole, plain)


def turns():
    said = [SystemMessage("You are terse."), HumanMessage(PARIS)]
    first = llm.invoke(said)
    second = llm.invoke(said + [first, HumanMessage([{"type": "text", "text": MOON}])])
    assert second.content and second.usage_metadata["input_tokens"] > first.usage_metadata["total_tokens"], (first, second)
    assert [r.content for r in llm.batch([PARIS, MOON])] == [llm.invoke(q).content for q in (PARIS, MOON)]


def logprobs():
    r = llm.bind(logprobs=True, top_logprobs=2).invoke("Name a colour.")
    content = r.response_metadata["logprobs"]["content"]
    assert "".join(c["token"] for c in content).startswith(r.content) and all(len(c["top_logprobs"]) == 2 for c in content), r


def stop():
    whole = llm.invoke(MOON).content
    word = whole[10:14]
    assert llm.invoke(MOON, stop=[word]).content == whole[: whole.index(word)]


def tools():
    able = llm.bind_tools([weather])
    said = [HumanMessage(CALL)]
    r = able.invoke(said)
    call = r.tool_calls[0]
    assert r.response_metadata["finish_reason"] == "tool_calls" and call["name"] == "weather", r
    arguments(call["args"])
    answer = weather.invoke(call)
    assert isinstance(answer, ToolMessage) and answer.content == "sunny in Paris"
    last = llm.bind_tools([weather], tool_choice="none").invoke(said + [r, answer])
    assert isinstance(last, AIMessage) and last.content and not last.tool_calls, last


def tools_stream():
    able = llm.bind_tools([weather])
    plain, whole = able.invoke(CALL), None
    for chunk in able.stream(CALL):
        whole = chunk if whole is None else whole + chunk
    (call,) = whole.tool_calls
    assert call["name"] == "weather" and call["id"], whole
    arguments(call["args"])
    assert whole.content == plain.content, (whole, plain)


def forced():
    for choice in ("any", "Forecast"):
        r = llm.bind_tools([Forecast], tool_choice=choice).invoke(PARIS)
        assert r.tool_calls[0]["name"] == "Forecast", r
        forecast(r.tool_calls[0]["args"], more=True)


def schema():
    for how in ("json_schema", "function_calling"):
        assert isinstance(llm.with_structured_output(Forecast, method=how).invoke(PARIS), Forecast), how
    parts = list(llm.with_structured_output(Forecast, method="json_schema").stream(PARIS))
    assert isinstance(parts[-1], Forecast), parts
    forecast(llm.with_structured_output({"title": "forecast", **FORECAST}).invoke(PARIS))


def responses():
    by = model(use_responses_api=True)
    r = by.invoke(PARIS)
    assert "Paris" in r.text, r
    whole = None
    for chunk in by.stream(PARIS):
        whole = chunk if whole is None else whole + chunk
    assert whole.text == r.text, (whole, r)
    call = by.bind_tools([Forecast], tool_choice="required").invoke(PARIS).tool_calls[0]
    forecast(call["args"], more=True)


def images():
    r = model(SIGHTED).invoke([HumanMessage(openai_look(RED)[0]["content"])])
    assert r.content and r.usage_metadata["input_tokens"] > len(LOOK) + 10, r
    e = raises(openai.BadRequestError, lambda: model(SIGHTED).invoke([HumanMessage(openai_look(RED, RED, BLUE)[0]["content"])]))
    assert TOO_MANY in e.message, e


def errors():
    raises(openai.NotFoundError, lambda: model(model="nobody").invoke("x"))
    e = raises(openai.BadRequestError, lambda: llm.bind(top_p=2).invoke("x"))
    assert "top_p" in e.message, e
    raises(openai.BadRequestError, lambda: list(llm.stream("word " * 5000)))


def key():
    raises(openai.AuthenticationError, lambda: model(GUARDED, api_key="wrong").invoke("x"))
    assert model(GUARDED, api_key="langchain").invoke("x").content is not None


def limits():
    patient, hasty = (model(GUARDED, api_key="langchain", max_tokens=1, max_retries=n) for n in (5, 0))
    limited(lambda: hasty.invoke("x"), openai.RateLimitError)
    assert patient.invoke("x").usage_metadata["output_tokens"] == 1


def cancel():
    before = aborts()
    s = llm.bind(max_tokens=3000, extra_body={"ignore_eos": True}).stream(ENDLESS)
    for _ in range(4):
        next(s)
    s.close()
    aborted(before)


run(chat, stream, turns, logprobs, stop, tools, tools_stream, forced, schema, responses, images, errors, key, limits, cancel)
