"""Drives a server with the openai client: python openai_client.py URL MODEL"""

import sys

import openai

url, model = sys.argv[1:]
client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)


def ask(question, **more):
    more = {"temperature": 0, "max_tokens": 40, **more}
    return client.chat.completions.create(model=model, messages=[{"role": "user", "content": question}], **more)


def chat():
    r = ask("What is the capital of France?")
    assert "Paris" in r.choices[0].message.content, r
    assert r.choices[0].finish_reason == "stop", r
    assert r.usage.total_tokens == r.usage.prompt_tokens + r.usage.completion_tokens, r.usage


def chat_stream():
    plain = ask("Tell me three facts about the moon.")
    text, finish, usage = "", None, None
    for chunk in ask("Tell me three facts about the moon.", stream=True, stream_options={"include_usage": True}):
        for c in chunk.choices:
            text += c.delta.content or ""
            finish = c.finish_reason or finish
        usage = chunk.usage or usage
    assert text == plain.choices[0].message.content, (text, plain)
    assert finish == plain.choices[0].finish_reason
    assert usage == plain.usage, (usage, plain.usage)


def logprobs():
    r = ask("Name a colour.", logprobs=True, top_logprobs=3)
    content = r.choices[0].logprobs.content
    assert "".join(c.token for c in content).startswith(r.choices[0].message.content)
    for c in content:
        assert len(c.top_logprobs) == 3 and c.token == c.top_logprobs[0].token, c
        assert bytes(c.bytes).decode(errors="replace") == c.token, c


def stop():
    whole = ask("Count from one to ten in words, separated by commas.").choices[0].message.content
    word = whole[10:14]
    r = ask("Count from one to ten in words, separated by commas.", stop=[word])
    assert r.choices[0].message.content == whole[: whole.index(word)], r
    assert r.choices[0].finish_reason == "stop"


def seed_and_n():
    a, b = (ask("Write a line of a poem.", temperature=1.2, seed=42, n=3) for _ in range(2))
    assert [c.message.content for c in a.choices] == [c.message.content for c in b.choices]
    assert len({c.message.content for c in a.choices}) > 1
    assert [c.index for c in a.choices] == [0, 1, 2]


def completions():
    more = dict(model=model, prompt=["Once upon a time", "The sun is"], max_tokens=16, temperature=0, logprobs=2)
    r = client.completions.create(**more)
    assert [c.index for c in r.choices] == [0, 1]
    assert r.usage.completion_tokens == 32
    texts = {0: "", 1: ""}
    for chunk in client.completions.create(stream=True, **more):
        for c in chunk.choices:
            texts[c.index] += c.text
    for c in r.choices:
        assert texts[c.index] == c.text and "".join(c.logprobs.tokens) == c.text


def errors():
    try:
        client.chat.completions.create(model="nobody", messages=[{"role": "user", "content": "x"}])
        raise AssertionError("an unknown model was served")
    except openai.NotFoundError as e:
        assert e.body["type"] == "NotFoundError", e.body
    try:
        ask("x", top_p=2)
        raise AssertionError("top_p 2 was taken")
    except openai.BadRequestError as e:
        assert "top_p" in e.message, e


for check in (chat, chat_stream, logprobs, stop, seed_and_n, completions, errors):
    check()
    print(check.__name__, "ok")
print([m.id for m in client.models.list()])
