#!/usr/bin/env python3
"""Records how llama.cpp splits this file's texts into tokens, for every name of a pre-tokenizer that vapp reads.

    pip install gguf==0.19.0 tokenizers==0.23.3
    python record.py TOK            TOK loads a vocabulary and tokenizes: tok.cpp, linked with llama.cpp
                                    (llama-cpp-python 0.3.36)

It writes tokenizers.json.gz: two small vocabularies (byte level; pieces with ▁), the texts, and the ids by name.
The merges are trained without splitting, so that a word that is split elsewhere has other ids.
"""
import gzip
import json
import pathlib
import subprocess
import sys
import tempfile

import gguf
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

HERE = pathlib.Path(__file__).parent
TEXTS = [
    "Hello world", "in 2024, 12345678 items cost 1234.50 EUR", "I'll don't WE'VE it'S they'RE\t\t12 ", "x = 10;\n    y = 20\n\n\nif (a!=b) {z+=1;}\r\n",
    "   leading, trailing   ", "\n\n7\n \n", "camelCase HTMLParser XMLHttpRequest don'tStop ÄÖÜß Straße", "año naïve 東京 2020年 第3回 ひらがなカタカナ",
    "한국어 문장입니다. 123", "русский текст, ещё раз", "1²³½ ٣٤٥ Ⅳ", "👩‍👩‍👧‍👦 🙂 ok", "... !!! ?? -- $5 + <b>~^|`</b> a=b", "#include <stdio.h> /* x */ //y\n/path/to",
    "<|special|>user\n3.14<|special|> a", "a<|special|>  b", "the the  the   the    the", "Türkçe'nin İstanbul'da", "x\u200bу\u00a0z", "(a,b).c…d。e، f",
]
DECOMPOSED = ["e\u0301 naı\u0308ve हिन्दी में", "ภาษาไทย"]
NAMES = """gpt-2 phi-2 mpt gigachat a.x-4.0 mellum jais trillion granite-docling exaone4 smollm starcoder refact codeshell exaone minerva-7b mellum2
llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 dbrx smaug-bpe chatglm-bpe glm4 glm5 deepseek-v3 hunyuan-dense joyai-llm hy_v4
gpt-4o llama4 kanana2 talkie minimax-m2 bloom gpt3-finnish poro-chat bailingmoe bailingmoe2 llada-moe qwen2 deepseek-r1-qwen kormo f2llmv2 megrez
stablelm2 hunyuan solar-open grok-2 deepseek-coder deepseek-llm kimi-k2 spark2_5 falcon viking jais-2 qwen35 tekken superbpe
seed-coder ufakzeka laguna exaone-moe minicpm5 command-r olmo youtu tiny_aya cohere2moe""".split()
SPECIAL = "<|special|>"


def packed(x):
    return json.dumps(x, separators=(",", ":"))


def byte_level():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    t.train_from_iterator((TEXTS + DECOMPOSED) * 3, trainers.BpeTrainer(
        vocab_size=700, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), max_token_length=9, show_progress=False))
    d = json.loads(t.to_str())["model"]
    tokens = [t for t, _ in sorted(d["vocab"].items(), key=lambda x: x[1])] + [SPECIAL]
    return {"tokens": tokens, "types": [1] * (len(tokens) - 1) + [3], "merges": [" ".join(m) for m in d["merges"]]}


def pieces():
    t = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    t.normalizer = normalizers.Replace(" ", "▁")
    lead = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), "<user>", "    "]
    corpus = [x for x in TEXTS if all(ord(c) < 0x500 for c in x)]
    t.train_from_iterator(corpus * 3, trainers.BpeTrainer(vocab_size=len(lead) + 420, special_tokens=lead, max_token_length=8, show_progress=False))
    d = json.loads(t.to_str())["model"]
    merged = {"".join(m): i for i, m in enumerate(d["merges"])}
    tokens = [t for t, _ in sorted(d["vocab"].items(), key=lambda x: x[1])] + [SPECIAL]
    types = [2, 3, 3] + [6] * 256 + [4, 4] + [1] * (len(tokens) - len(lead) - 1) + [3]
    scores = [-float(merged[t]) if t in merged else -1000.0 for t in tokens]
    return {"tokens": tokens, "types": types, "scores": scores, "merges": [" ".join(m) for m in d["merges"]]}


def ids(tok, model, pre, v, **flags):
    with tempfile.TemporaryDirectory() as d:
        path = pathlib.Path(d) / "v.gguf"
        w = gguf.GGUFWriter(path, "llama")
        w.add_tokenizer_model(model)
        w.add_tokenizer_pre(pre)
        w.add_token_list(v["tokens"])
        w.add_token_types(v["types"])
        if model == "llama":
            w.add_token_scores(v["scores"])
        else:
            w.add_token_merges(v["merges"])
        w.add_bos_token_id(len(v["tokens"]) - 1)
        w.add_eos_token_id(len(v["tokens"]) - 1)
        for key, value in flags.items():
            w.add_bool("tokenizer.ggml." + key, value)
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()
        sent = b"".join(b"%d\n%s\n" % (len(t.encode()) , t.encode()) for t in TEXTS + DECOMPOSED)
        out = subprocess.run([tok, path], input=sent, capture_output=True, check=True).stdout.decode()
    return [[int(n) for n in line.split()] for line in out.splitlines()]


def main():
    tok = sys.argv[1]
    b, p = byte_level(), pieces()
    got = {}
    for name in NAMES:
        got.setdefault(packed(ids(tok, "gpt2", name, b, add_bos_token=False)), []).append(name)
    lines = ['{"texts":' + packed(TEXTS + DECOMPOSED), ',"bytes":' + packed(b), ',"pieces":' + packed(p), ',"kinds":[']
    lines.append(",\n".join(f'{{"names":{packed(names)},"ids":{x}}}' for x, names in got.items()) + "]")
    for key, x in {
        "spm": ids(tok, "llama", "default", p), "spmPlain": ids(tok, "llama", "default", p, add_space_prefix=False),
        "gemma4": ids(tok, "gemma4", "gemma4", p),
    }.items():
        lines.append(f',"{key}":{packed(x)}')
    (HERE / "tokenizers.json.gz").write_bytes(gzip.compress(("\n".join(lines) + "}\n").encode(), 9, mtime=0))


main()
