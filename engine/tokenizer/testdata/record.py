#!/usr/bin/env python3
"""Records the results of transformers and tokenizers for this directory's templates and texts.

    pip install transformers==5.15.1 Jinja2==3.1.6 tokenizers==0.22.2
    python record.py                       writes templates.json.gz and texts.json here
    python record.py --sweep DIR OUT.gz    records every *.jinja of DIR on every conversation into OUT.gz,
                                           for go test -run TestTemplates -args -goldens OUT.gz
"""
import argparse
import datetime
import gzip
import json
import pathlib

import jinja2
import transformers.utils.chat_template_utils as chat

HERE = pathlib.Path(__file__).parent
NOW = datetime.datetime(2024, 7, 26, 3, 4, 5)


def compiled(source):
    t = chat._compile_jinja_template(source)
    t.globals["strftime_now"] = NOW.strftime
    return t


def case(name, source, variables, file=None):
    c = {"name": name, "vars": variables}
    c.update({"file": file} if file else {"source": source})
    try:
        c["want"] = compiled(source).render(**variables)
    except Exception as e:
        # transformers' raise_exception raises a plain TemplateError
        c["raised" if type(e) is jinja2.exceptions.TemplateError else "fails"] = str(e)
    return c


def user(text, **more):
    return {"role": "user", "content": text, **more}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a place <now> & \"later\"",
    "parameters": {"type": "object", "properties": {
        "place": {"type": "string", "description": "a town — Zürich"},
        "days": {"type": "integer", "default": 1, "minimum": 0},
        "unit": {"type": ["string", "null"], "enum": ["C", "F"]}}, "required": ["place"]}}}
SUM = {"type": "function", "function": {"name": "sum", "description": "Adds numbers", "parameters": {
    "type": "object", "properties": {"xs": {"type": "array", "items": {"type": "number"}}}, "required": ["xs"]}}}


def called(arguments, content=None, id="call_abc12"):
    return {"role": "assistant", "content": content,
            "tool_calls": [{"id": id, "type": "function", "function": {"name": "get_weather", "arguments": arguments}}]}


ARGS = {"place": "Zürich", "days": 3, "share": 0.5, "deep": {"a": [1, 2.0, None, True, "x"]}, "none": None}
TOOL = {"role": "tool", "name": "get_weather", "tool_call_id": "call_abc12", "content": "{\"t\": 21}"}
PARTS = [{"type": "text", "text": "What is "}, {"type": "text", "text": "this?"}]
GO = {"add_generation_prompt": True}

CONVERSATIONS = {
    "user": {"messages": [user("Hi <there> & 'you'")], **GO},
    "no prompt": {"messages": [user("Hi"), assistant("Hello.")], "add_generation_prompt": False},
    "system": {"messages": [{"role": "system", "content": "Be \"brief\".\n"}, user("  Hi  ")], **GO},
    "turns": {"messages": [user("1"), assistant(" 2 "), user("3"), assistant("4"), user("5\n\n")], **GO},
    "unicode": {"messages": [user("é 🙂 \u0000 \u2028 \u00a0 日本\tx")], **GO},
    "tools": {"messages": [user("Weather?")], "tools": [WEATHER, SUM], **GO},
    "system and tools": {"messages": [{"role": "system", "content": "S"}, user("Weather?")], "tools": [WEATHER], **GO},
    "tool call": {"messages": [user("Weather?"), called(ARGS), TOOL], "tools": [WEATHER], **GO},
    "tool call as text": {"messages": [user("Weather?"), called(json.dumps(ARGS), ""), TOOL, assistant("21."), user("ok")], "tools": [WEATHER], **GO},
    "two results": {"messages": [user("W?"), called(ARGS, "Let me see."), TOOL, {**TOOL, "content": "second"}], "tools": [WEATHER], **GO},
    "parts": {"messages": [user(PARTS)], **GO},
    "null content": {"messages": [user("a"), assistant(None), user("b")], **GO},
    "no content": {"messages": [user("a"), {"role": "assistant"}, user("b")], **GO},
    "assistant first": {"messages": [assistant("a"), user("b")], **GO},
    "two users": {"messages": [user("a"), user("b")], **GO},
    "empty": {"messages": [], **GO},
    "odd role": {"messages": [user("a"), {"role": "critic", "content": "c"}], **GO},
    "developer": {"messages": [{"role": "developer", "content": "D"}, user("a")], **GO},
    "reasoning": {"messages": [user("a"), assistant("<think>\nhm\n</think>\n\nb", reasoning_content="hm"), user("c")], "enable_thinking": True, **GO},
    "no thinking": {"messages": [user("a"), assistant("<think>hm</think>b"), user("c")], "enable_thinking": False, **GO},
    "effort": {"messages": [user("a")], "reasoning_effort": "high", "custom_tools": None, "date_string": "1 May 2025", **GO},
    "documents": {"messages": [user("a")], "documents": [{"title": "T", "text": "x <y>"}, {"title": "U", "text": ""}], **GO},
}
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


def sweep(directory, out):
    cases = []
    for f in sorted(pathlib.Path(directory).glob("*.jinja")):
        source = f.read_text()
        for name, v in CONVERSATIONS.items():
            cases.append(case(f.stem + "/" + name, source, {**TOKENS, **v}))
    write(out, cases)


def write(path, cases):
    text = "[\n" + ",\n".join(json.dumps(c, ensure_ascii=True) for c in cases) + "\n]\n"
    pathlib.Path(path).write_bytes(gzip.compress(text.encode(), 9, mtime=0) if str(path).endswith(".gz") else text.encode())


def templates():
    cases = []
    for f in sorted((HERE / "templates").glob("*.jinja")):
        source = f.read_text()
        for name, v in CONVERSATIONS.items():
            cases.append(case(f.stem + "/" + name, source, {**TOKENS, **v}, file=f.name))
    for line in (HERE / "expressions.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            cases.append(case(line, line.replace("⏎", "\n"), VALUES))
    write(HERE / "templates.json.gz", cases)


VALUES = {"n": None, "i": 7, "big": 2**53 + 1, "f": 0.1, "g": 1e16, "h": 1.5e-7, "w": 3.0, "yes": True, "s": "a<b>'c'\"é\n",
          "l": [3, 1, 2], "e": [], "d": {"z": 1, "a": [None, True, 2.0, "x'y"], "m": {}}, "text": "  two words \n", "word": "ßtraße",
          "msgs": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]}

TEXTS = ["", "a", "a  5", "Hello world", "in 2024, 12345 items", "x = 10;\n    y = 20\n", "   42", "\n\n7", "1²³½ ٣٤٥", "año naïve 東京 2020年",
         "👩‍👩‍👧‍👦🏳️‍🌈", "<|im_start|>user\n3.14<|im_end|>", "I'll don't we've  it's\t\t12 ", "\x00", "a\x00b\x00", "é", "e\u0301", "\u200b\ufeff\u2028", "�",
         "the the  the   the", "<|im_end", "<|im_start|><|im_end|>"]


def train():
    """Small tokenizers of the three kinds: byte level (like SmolLM2), byte fallback (like Gemma), word pieces."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    corpus = [*TEXTS, "the quick brown fox jumps over the lazy dog", "in the beginning there was the word and the word was long"] * 3

    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=400, special_tokens=["<|im_start|>", "<|im_end|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    t.add_tokens([AddedToken("<think>", special=False, normalized=False)])
    t.post_processor = processors.TemplateProcessing(single="<|im_start|> $A", special_tokens=[("<|im_start|>", t.token_to_id("<|im_start|>"))])
    t.save(str(HERE / "bytelevel.tokenizer.json"))

    t = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    t.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    special = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256))]
    plain = [c for c in corpus if c.isascii() and "\x00" not in c]
    t.train_from_iterator(plain, trainers.BpeTrainer(vocab_size=420, special_tokens=special, show_progress=False))
    d = json.loads(t.to_str())
    d["added_tokens"] = d["added_tokens"][:3]
    (HERE / "fallback.tokenizer.json").write_text(json.dumps(d, ensure_ascii=False, indent=1) + "\n")

    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer()
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    t.train_from_iterator(plain, trainers.WordPieceTrainer(vocab_size=150, special_tokens=["[UNK]", "[CLS]", "[SEP]"], show_progress=False))
    t.save(str(HERE / "wordpiece.tokenizer.json"))


def texts():
    from tokenizers import Tokenizer
    if not list(HERE.glob("*.tokenizer.json")):
        train()
    out = {}
    for f in sorted(HERE.glob("*.tokenizer.json")):
        t = Tokenizer.from_file(str(f))
        out[f.name] = encoded(t)
    model = HERE / "smollm2-tokenizer.json"  # not committed: what checkpoint.TokenizerJSON writes of the default model
    if model.exists():
        out["SmolLM2"] = encoded(Tokenizer.from_file(str(model)))
    (HERE / "texts.json").write_text(json.dumps(out, ensure_ascii=True, separators=(",", ":")) + "\n")


def encoded(t):
    rows = []
    for s in TEXTS:
        ids = t.encode(s).ids
        rows.append({"text": s, "ids": ids, "bare": t.encode(s, add_special_tokens=False).ids,
                     "decoded": t.decode(ids, skip_special_tokens=False), "skipped": t.decode(ids)})
    return rows


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--sweep", nargs=2, metavar=("DIR", "OUT"))
    a = p.parse_args()
    if a.sweep:
        sweep(*a.sweep)
    else:
        templates()
        texts()
