"""Measure how much bf16 products, and mistakes about images, change the logits of the prompts with images.

    python bounds_media.py

Prints a table in units of σ: the largest figures of all prompts of a checkpoint when the inputs of all products are rounded to bf16,
those of the tower's output in units of its root mean square, and the smallest of prompts whose images are computed with a
mistake.
"""

import contextlib

import torch
from torch import nn

import golden
import record_media
import tiny_media

HEAD = "| checkpoint | what | max Δ | rms Δ | largest gap flipped |\n|---|---|---|---|---|"


@contextlib.contextmanager
def rounded_inputs():
    """Every product of a matrix, those of experts too, has inputs rounded to bf16."""
    linear = nn.functional.linear
    nn.functional.linear = lambda x, w, b=None: linear(x.bfloat16().float(), w, b)
    try:
        yield
    finally:
        nn.functional.linear = linear


@torch.no_grad()
def logits(model, name, case, tokens=None, change=lambda kwargs: kwargs):
    ids, items = tiny_media.prompt(name, case)
    inputs, _ = (record_media.qwen35_inputs if "qwen" in name else record_media.gemma4_inputs)(model.config, ids, items)
    inputs["mm_token_type_ids"] = (ids == tiny_media.IMAGE).int()[None]
    prefill, fed, rows, _ = golden.forward(model, ids, tiny_media.STEPS, tokens, **change(inputs))
    return torch.cat([prefill, rows]), fed


@torch.no_grad()
def encoded(model, name, case):
    ids, items = tiny_media.prompt(name, case)
    inputs, _ = (record_media.qwen35_inputs if "qwen" in name else record_media.gemma4_inputs)(model.config, ids, items)
    return torch.cat(list(model.get_image_features(*inputs.values(), return_dict=True).pooler_output))


def difference(got, want):
    """max Δ, rms Δ and the largest flipped gap, in units of the spread of want."""
    sigma = want.std(-1, correction=0).square().mean().sqrt()
    top = want.topk(2).values
    flips = got.argmax(-1) != want.argmax(-1)
    gap = (top[:, 0] - top[:, 1])[flips].max() if flips.any() else torch.tensor(0.0)
    return [float(x / sigma) for x in ((got - want).abs().max(), (got - want).square().mean().sqrt(), gap)]


def without_images(kwargs):
    """The mask does not know the images."""
    return kwargs | dict(mm_token_type_ids=torch.zeros_like(kwargs["mm_token_type_ids"]))


def scaled(model):
    """Encoded rows are scaled like embeddings."""
    features = model.model.get_image_features

    def wrong(*args, **kwargs):
        out = features(*args, **kwargs)
        out.pooler_output = tuple(x * model.config.text_config.hidden_size**0.5 for x in out.pooler_output)
        return out

    model.model.get_image_features = wrong


def plain_positions(kwargs):
    """The three positions of a token are its index."""
    n = kwargs["mm_token_type_ids"].shape[1]
    return kwargs | dict(position_ids=torch.arange(n).expand(3, 1, n))


def swapped(kwargs):
    """The colours of an image are those of its last patch first."""
    return kwargs | dict(pixel_values=kwargs["pixel_values"].flip(-2))


def row(name, what, figures):
    print(f"| `{name}` | {what} | {' | '.join(f'{x:.2g}' for x in figures)} |", flush=True)


def main():
    golden.setup()
    print(HEAD)
    for name in tiny_media.CHECKPOINTS:
        mistakes = [("image ignored by masks", without_images, None), ("rows scaled", lambda k: k, scaled)] if "gemma" in name else \
            [("positions of text", plain_positions, None)]
        model, want = tiny_media.load(record_media.HERE, name), {}
        for case in sorted(set(tiny_media.CASES) - {"video"}):
            want[case] = logits(model, name, case)
        with rounded_inputs():
            figures = [difference(logits(model, name, c, want[c][1])[0], want[c][0]) for c in want]
            towers = {c: encoded(model, name, c) for c in want}
        row(name, "bf16 activations", [max(x) for x in zip(*figures)])
        deltas = [(towers[c] - e, e.square().mean().sqrt()) for c in want for e in [encoded(model, name, c)]]
        row(name, "bf16 activations, tower", [max(float(f(d) / rms) for d, rms in deltas) for f in (lambda d: d.abs().max(), lambda d: d.square().mean().sqrt())] + [0])
        for what, change, alter in mistakes + [("patches in another order", swapped, None)]:
            wrong = tiny_media.load(record_media.HERE, name)
            if alter:
                alter(wrong)
            figures = [difference(logits(wrong, name, c, want[c][1], change)[0], want[c][0]) for c in want]
            row(name, what, [min(x) for x in zip(*figures)])


if __name__ == "__main__":
    main()
