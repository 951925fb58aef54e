#!/usr/bin/env python3
"""Makes a small folder in the form of Kimi K2's tokenizer and records its tokens of texts.

    pip install tiktoken==0.14.0 regex
    python record.py

It writes tiktoken.model, tokenizer_config.json and texts.json. The vocabulary is trained on the texts of
../tokenizers; tiktoken encodes them with the expression of moonshotai/Kimi-K2-Instruct's tokenization_kimi.py, which
allows special tokens in texts and names those that it reserves.
"""
import base64
import gzip
import json
import pathlib
import sys

import tiktoken
from tiktoken._educational import bpe_train

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tokenizers"))
TEXTS = json.loads(gzip.decompress((HERE.parent / "tokenizers" / "tokenizers.json.gz").read_bytes()))["texts"]
WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
PATTERN = "|".join([
    r"[\p{Han}]+", rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{WORDS}", rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{WORDS}",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+",
])
SPECIAL = {0: ("[BOS]", True), 1: ("[EOS]", True), 2: ("<|im_end|>", True), 11: ("<|tool_calls_section_begin|>", False)}


def main():
    # Trained on words of a plain expression, so that some tokens cross the words of PATTERN and some words are no token.
    ranks = bpe_train(data=" ".join(TEXTS * 2), vocab_size=640, pat_str=r"\S+ ?|\s+", visualise=None)
    lines = [f"{base64.b64encode(word).decode()} {rank}\n" for word, rank in ranks.items()]
    (HERE / "tiktoken.model").write_text("".join(lines))
    added = {str(len(ranks) + i): dict(content=text, lstrip=False, normalized=False, rstrip=False, single_word=False, special=special)
             for i, (text, special) in SPECIAL.items()}
    config = dict(added_tokens_decoder=added, bos_token="[BOS]", eos_token="[EOS]", tokenizer_class="TikTokenTokenizer")
    (HERE / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")
    names = {i: t["content"] for i, t in ((int(k), v) for k, v in added.items())}
    special = {names.get(i, f"<|reserved_token_{i}|>"): i for i in range(len(ranks), len(ranks) + 256)}
    kimi = tiktoken.Encoding(name="tiktoken.model", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens=special)
    texts = TEXTS + ["<|im_end|>user<|tool_calls_section_begin|> a[EOS]", f"<|reserved_token_{len(ranks) + 5}|>", " " * 40 + "x", "东京 Tokyo東京"]
    ids = [kimi.encode(t, allowed_special="all") for t in texts]
    assert all(kimi.decode(i) == t for i, t in zip(ids, texts))
    out = dict(tiktoken=tiktoken.__version__, texts=texts, ids=ids)
    (HERE / "texts.json").write_text(json.dumps(out, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
