"""Measure how much rounding changes the logits of the Llama family, and how much real mistakes change them.

    python bounds_llama.py [--model SmolLM2-135M-Instruct.Q4_1.gguf] [--quick]

Compares variants of the computation with the recorded float32 one, on the recorded tokens, and rewrites the
tables of README.md between the markers. --quick leaves SmolLM2 out and only prints.
"""

import argparse
import contextlib
import re

import torch
from safetensors.torch import load_file
from torch import nn
from transformers import DynamicCache
from transformers.models.llama import modeling_llama

import gguf_llama
import golden
import record_llama
import tiny_llama

README = f"{record_llama.HERE}/README.md"
TINY = [*tiny_llama.CHECKPOINTS, *tiny_llama.TWINS]
SMOL = [f"smollm2-{p}" for p in record_llama.PROMPTS]


class RoundedCache(DynamicCache):
    """A KV cache that stores K (after the rotation) and V in another dtype; attention reads the stored values."""

    def __init__(self, dtype):
        super().__init__()
        self.dtype = dtype

    def update(self, key, value, *args, **kwargs):
        rounded = (x.to(self.dtype).to(x.dtype) for x in (key, value))
        return super().update(*rounded, *args, **kwargs)


def int8_blocks(x):
    """Round to int8 with one float scale per 32 values of a row, as block-quantized products do."""
    blocks = x.view(*x.shape[:-1], -1, 32)
    scale = blocks.abs().amax(-1, keepdim=True) / 127
    return (torch.where(scale > 0, blocks / scale, 0).round() * scale).view(x.shape)


def bf16(x):
    return x.bfloat16().to(x.dtype)


@contextlib.contextmanager
def activations(model, rounding):
    """Round the input of every linear layer, the head included."""
    layers = [m for m in model.modules() if isinstance(m, nn.Linear)] if rounding else []
    hooks = [m.register_forward_pre_hook(lambda _m, args: (rounding(args[0]), *args[1:])) for m in layers]
    try:
        yield
    finally:
        for h in hooks:
            h.remove()


@contextlib.contextmanager
def weights(model, rounding):
    """Change every matrix temporarily."""
    kept = {n: p.data for n, p in model.named_parameters() if p.ndim == 2} if rounding else {}
    params = dict(model.named_parameters())
    for n, w in kept.items():
        params[n].data = rounding(w)
    try:
        yield
    finally:
        for n, w in kept.items():
            params[n].data = w


# label -> rounding of activations, of weights, dtype of the KV cache
ROUNDINGS = {
    "A: bf16 activations": (bf16, None, None),
    "W: bf16 weights": (None, bf16, None),
    "A+W": (bf16, bf16, None),
    "K/V float16": (None, None, torch.float16),
    "K/V bfloat16": (None, None, torch.bfloat16),
    "A + K/V float16": (bf16, None, torch.float16),
    "A + K/V bfloat16": (bf16, None, torch.bfloat16),
    "A+W + K/V float16": (bf16, bf16, torch.float16),
    "A+W + K/V bfloat16": (bf16, bf16, torch.bfloat16),
    "int8 activations (blocks of 32) + K/V bfloat16": (int8_blocks, None, torch.bfloat16),
}


class Difference:
    """Worst and typical difference from the reference over several runs."""

    def __init__(self):
        self.worst, self.square, self.count, self.rows, self.gaps = 0.0, 0.0, 0, 0, []

    def add(self, reference, other):
        """Both [rows, V]; runs over all logits of all rows."""
        for r, o in zip(reference.split(64), other.split(64)):
            d = r - o
            self.worst = max(self.worst, d.abs().max().item())
            self.square += d.double().pow(2).sum().item()
            self.count += d.numel()
            values, _ = r.topk(2, dim=-1)
            flipped = r.argmax(-1) != o.argmax(-1)
            self.rows += len(r)
            self.gaps += (values[:, 0] - values[:, 1])[flipped].tolist()

    def rms(self):
        return (self.square / self.count) ** 0.5

    def row(self):
        gap = f"{max(self.gaps):.2g}" if self.gaps else "–"
        return f"{self.worst:.2g} | {self.rms():.2g} | {len(self.gaps)} of {self.rows} | {gap}"


class Subject:
    """A model with its recorded prompts and their float32 logits, recomputed here in full."""

    def __init__(self, model, names):
        self.model = model
        self.runs = []
        for name in names:
            kept = load_file(f"{record_llama.GOLDEN}/{name}.safetensors")
            ids, tokens = kept["input_ids"].long(), kept["decode_ids"].long()
            reference = self.logits(ids, tokens)
            again = torch.cat([kept["sample_logits"], kept["decode_sample_logits"]])
            if (reference[:, kept["sample_ids"].long()] - again).abs().max() > 1e-3:
                raise SystemExit(f"{name}: this machine does not reproduce the recorded logits")
            self.runs.append((ids, tokens, reference))

    def logits(self, ids, tokens, cache=None):
        prefill, _, decode, _ = golden.forward(self.model, ids, len(tokens), tokens, cache)
        return torch.cat([prefill, decode])

    def difference(self, kv=None):
        """The difference of the model in its current state from the reference."""
        d = Difference()
        for ids, tokens, reference in self.runs:
            d.add(reference, self.logits(ids, tokens, RoundedCache(kv) if kv else None))
        return d

    def rounded(self, acts, mats, kv):
        with activations(self.model, acts), weights(self.model, mats):
            return self.difference(kv)

    def float64(self):
        self.model.double()
        try:
            return self.difference()
        finally:
            self.model.float()


HEAD = "| max Δ | rms Δ | top-1 flips | largest gap flipped |\n"


def variants():
    """label -> how to measure it on a subject."""
    rows = {"float64 (error of the reference itself)": lambda s: s.float64()}
    return rows | {k: (lambda s, v=v: s.rounded(*v)) for k, v in ROUNDINGS.items()}


def smollm2_table(subject):
    lines = [f"### SmolLM2, three prompts\n\n| variant {HEAD}|---|---|---|---|---|\n"]
    for label, measure in variants().items():
        lines.append(f"| {label} | {measure(subject).row()} |\n")
        print(lines[-1], end="", flush=True)
    return "".join(lines)


def tiny_table(subjects):
    """max and rms Δ of each small checkpoint; flips and their largest gap over all of them."""
    names = [n.removeprefix("tiny-") for n in subjects]
    lines = ["### Small checkpoints, max Δ / rms Δ of each\n\n",
             f"| variant | {' | '.join(names)} | top-1 flips | largest gap flipped |\n",
             "|---" * (len(names) + 3) + "|\n"]
    for label, measure in variants().items():
        each = [measure(s) for s in subjects.values()]
        gaps = [g for d in each for g in d.gaps]
        cells = [f"{d.worst:.2g} / {d.rms():.2g}" for d in each]
        cells += [f"{len(gaps)} of {sum(d.rows for d in each)}", f"{max(gaps):.2g}" if gaps else "–"]
        lines.append(f"| {label} | {' | '.join(cells)} |\n")
        print(lines[-1], end="", flush=True)
    return "".join(lines)


@contextlib.contextmanager
def patched(owner, name, value):
    kept = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, kept)


def plain_frequencies(model):
    """The rotary frequencies without llama3 scaling."""
    c = model.config
    return c.rope_parameters["rope_theta"] ** -(torch.arange(0, c.head_dim, 2) / c.head_dim)


def unsmoothed(model):
    """llama3 scaling with a step instead of the smooth band."""
    p, plain = model.config.rope_parameters, plain_frequencies(model)
    limit = p["original_max_position_embeddings"] / p["low_freq_factor"]
    return torch.where(2 * torch.pi / plain > limit, plain / p["factor"], plain)


def scaled(model, factor):
    for layer in model.model.layers:
        layer.self_attn.scaling *= factor


def interleaved(x, n_rep):
    """Grouped heads in the wrong order: head i reads kv head i mod kv heads."""
    return x.repeat(1, n_rep, 1, 1)


def pairwise(x):
    """Rotation of neighbours instead of halves."""
    return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)


def without_bias(model, part):
    for n, p in model.named_parameters():
        if n.endswith("bias") and part in n:
            p.data = torch.zeros_like(p)


def set_eps(model, eps):
    for m in model.modules():
        if isinstance(m, modeling_llama.LlamaRMSNorm):
            m.variance_epsilon = eps


def set_frequencies(model, f):
    model.model.rotary_emb.inv_freq = f


# checkpoint, mistake, how to introduce it; each starts from a freshly loaded model.
MISTAKES = [
    ("tiny-llama3-tied", "rope scaling ignored", lambda m: set_frequencies(m, plain_frequencies(m))),
    ("tiny-llama3-tied", "no smooth band", lambda m: set_frequencies(m, unsmoothed(m))),
    ("tiny-llama3-tied", "attention scale from hidden/heads", lambda m: scaled(m, 2.0)),
    ("tiny-llama3-tied", "head read by kv head i mod kv", (modeling_llama, "repeat_kv", interleaved)),
    ("tiny-llama3-long", "rope scaling ignored", lambda m: set_frequencies(m, plain_frequencies(m))),
    ("tiny-llama3-long", "no smooth band", lambda m: set_frequencies(m, unsmoothed(m))),
    ("tiny-bias", "attention biases ignored", lambda m: without_bias(m, "self_attn")),
    ("tiny-bias", "bias of o_proj ignored", lambda m: without_bias(m, "o_proj")),
    ("tiny-bias", "bias of down_proj ignored", lambda m: without_bias(m, "down_proj")),
    ("tiny-bias", "epsilon 1e-5", lambda m: set_eps(m, 1e-5)),
    ("tiny-bias", "head read by kv head i mod kv", (modeling_llama, "repeat_kv", interleaved)),
    ("tiny-mha-f16", "rope base 500000", lambda m: set_frequencies(m, 500000.0 ** -(torch.arange(0, 64, 2) / 64))),
    ("tiny-mha-q4_1", "rotation of neighbours", (modeling_llama, "rotate_half", pairwise)),
]


def load_tiny(name):
    if name in tiny_llama.TWINS:
        return gguf_llama.load(f"{record_llama.HERE}/{name}/model.gguf")
    return tiny_llama.load(f"{record_llama.HERE}/{name}")


def mistakes():
    lines = [f"### Mistakes, for comparison\n\n| checkpoint | mistake {HEAD}|---|---|---|---|---|---|\n"]
    for name, label, make in MISTAKES:
        subject = Subject(load_tiny(name), [name])
        subject.model.set_attn_implementation("eager")  # the fused attention does not call repeat_kv
        context = contextlib.nullcontext()
        if callable(make):
            make(subject.model)
        else:
            context = patched(*make)
        with context:
            lines.append(f"| `{name}` | {label} | {subject.difference().row()} |\n")
        print(lines[-1], end="", flush=True)
    return "".join(lines)


def rewrite(sections):
    with open(README, encoding="utf-8") as f:
        text = f.read()
    begin, end = "<!-- begin: bounds_llama.py -->\n", "<!-- end: bounds_llama.py -->"
    body = begin + "\n" + "\n".join(sections) + "\n" + end
    new = re.sub(re.escape(begin) + ".*?" + re.escape(end), lambda _: body, text, flags=re.S)
    if begin not in text or end not in text:
        raise SystemExit(f"{README}: the markers are missing")
    with open(README, "w", encoding="utf-8", newline="\n") as f:
        f.write(new)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=record_llama.MODEL, help="the SmolLM2 GGUF file")
    parser.add_argument("--quick", action="store_true", help="small checkpoints only, print only")
    args = parser.parse_args()
    golden.setup()
    sections = [
        tiny_table({n: Subject(load_tiny(n), [n]) for n in TINY}),
        mistakes(),
    ]
    if args.quick:
        return
    sections.insert(0, smollm2_table(Subject(gguf_llama.load(args.model), SMOL)))
    rewrite(sections)


if __name__ == "__main__":
    main()
