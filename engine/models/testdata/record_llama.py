"""Record the reference logits of the Llama family: SmolLM2 itself and small random checkpoints.

    python record_llama.py [--model SmolLM2-135M-Instruct.Q4_1.gguf] [tiny | smollm2]

Rewrites the files of this folder; on one machine two runs give the same bytes. README.md has the formats.
"""

import argparse
import json
import os

import gguf
import jinja2.sandbox
import torch

import golden
import gguf_llama
import tiny_llama

HERE = os.path.dirname(os.path.abspath(__file__))
MODEL = os.path.normpath(os.path.join(HERE, "../../../models/SmolLM2-135M-Instruct.Q4_1.gguf"))
GOLDEN = os.path.join(HERE, "golden")
PROMPTS = ("chat", "prose", "code")
STEPS = 32


def chat_text(gguf_file):
    """The chat of prompts/chat.json through the model's own template, as transformers would render it."""
    source = gguf_llama.field(gguf.GGUFReader(gguf_file), "tokenizer.chat_template")
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    with open(f"{HERE}/prompts/chat.json", encoding="utf-8") as f:
        messages = json.load(f)
    return env.from_string(source).render(messages=messages, add_generation_prompt=True)


def prompt_text(name, gguf_file):
    if name == "chat":
        return chat_text(gguf_file)
    with open(f"{HERE}/prompts/{name}.txt", encoding="utf-8", newline="") as f:
        return f.read()


def prompt_ids(gguf_file):
    """name -> (text, ids) of the SmolLM2 prompts."""
    tok = gguf_llama.tokenizer(gguf_file)
    out = {}
    for name in PROMPTS:
        text = prompt_text(name, gguf_file)
        out[name] = text, torch.tensor(tok.encode(text, add_special_tokens=False).ids)
    return out


def record_smollm2(gguf_file):
    model = gguf_llama.load(gguf_file)
    for name, (text, ids) in prompt_ids(gguf_file).items():
        if len(ids) < 200:
            raise SystemExit(f"prompt {name} has {len(ids)} tokens, fewer than 200")
        tensors = golden.record(model, ids, STEPS, every=4, full=False)  # long texts, a large vocabulary
        golden.save(f"{GOLDEN}/smollm2-{name}.safetensors", tensors, model, [gguf_file], text)


def record_tiny():
    for name in [*tiny_llama.CHECKPOINTS, *tiny_llama.TWINS]:
        if name in tiny_llama.TWINS:
            files = tiny_llama.write_twin(HERE, name)
            model = gguf_llama.load(files[0])
        else:
            files = tiny_llama.write(HERE, name)
            model = tiny_llama.load(f"{HERE}/{name}")
        tensors = golden.record(model, tiny_llama.prompt(name), tiny_llama.STEPS)
        golden.save(f"{GOLDEN}/{name}.safetensors", tensors, model, files)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=MODEL, help="the SmolLM2 GGUF file")
    parser.add_argument("what", nargs="?", choices=("all", "tiny", "smollm2"), default="all")
    args = parser.parse_args()
    golden.setup()
    os.makedirs(GOLDEN, exist_ok=True)
    if args.what in ("all", "tiny"):
        record_tiny()
    if args.what in ("all", "smollm2"):
        record_smollm2(args.model)


if __name__ == "__main__":
    main()
