"""Recording: run a transformers model over a prompt, then greedily with its KV cache, and keep the logits.

File format: see README.md. Every array of a file has one row per position; the rows of `decode_*`
continue where the prompt's rows end.
"""

import hashlib
import json
import os

import torch
import transformers
from safetensors.torch import save_file

FORMAT = 1
THREADS = 2
SAMPLES = 128


def setup():
    """Fix everything that could change a bit between two runs on one machine."""
    torch.set_num_threads(THREADS)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()


class Hidden:
    """Keeps the output of the final norm of the latest forward pass."""

    def __init__(self, model):
        self.handle = getattr(model.model, "language_model", model.model).norm.register_forward_hook(self.keep)
        self.value = None

    def keep(self, _module, _args, output):
        self.value = output.detach()


@torch.no_grad()
def forward(model, ids, steps, tokens=None, cache=None, **media):
    """Prefill `ids` in one pass, then `steps` cached steps of one token each.

    The token of a step is the argmax of the row before it, or tokens[i] when tokens are given.
    `cache` takes the place of the model's own KV cache; `media` are further arguments of the prefill. Returns prefill logits [T, V], fed tokens [steps], their logits [steps, V], and the hidden state
    after the final norm at the last prompt position [H]; all float32.
    """
    hidden = Hidden(model)
    try:
        out = model(input_ids=ids.view(1, -1), past_key_values=cache, use_cache=True, **media)
        last_hidden = hidden.value[0, -1].float()
        prefill = out.logits[0].float()
        row, fed, rows = prefill[-1], [], []
        for i in range(steps):
            token = row.argmax() if tokens is None else tokens[i]
            out = model(input_ids=token.view(1, 1).long(), past_key_values=out.past_key_values, use_cache=True)
            row = out.logits[0, -1].float()
            fed.append(int(token))
            rows.append(row)
    finally:
        hidden.handle.remove()
    return prefill, torch.tensor(fed), torch.stack(rows), last_hidden


def top2(logits):
    values, ids = logits.topk(2, dim=-1)
    return ids.int(), values


def sampled(vocab):
    """The vocabulary columns kept from every row: SAMPLES of them at most, at changing remainders of every power of two."""
    if vocab <= SAMPLES:
        return torch.arange(vocab)
    return torch.tensor([i * vocab // SAMPLES + (i * 37) % (vocab // SAMPLES) for i in range(SAMPLES)])


def record(model, ids, steps, every=0, full=True, **media):
    """The tensors of one golden file, with every n-th of the sampled columns (0: all of them, half from 96 tokens on), and all logits of the prompt's last row if full; `media` are those of forward."""
    sample_ids = sampled(model.config.get_text_config().vocab_size)[:: every or (2 if len(ids) >= 96 else 1)]
    prefill, fed, decode, last_hidden = forward(model, ids, steps, **media)
    top_ids, top_logits = top2(prefill)
    step_ids, step_logits = top2(decode)
    last = {
        "full_positions": torch.tensor([len(ids) - 1], dtype=torch.int32),
        "full_logits": prefill[-1:],
    }
    return (last if full else {}) | {
        "input_ids": ids.int(),
        "sample_ids": sample_ids.int(),
        "top2_ids": top_ids,
        "top2_logits": top_logits,
        "sample_logits": prefill[:, sample_ids],
        "decode_ids": fed.int(),
        "decode_top2_ids": step_ids,
        "decode_top2_logits": step_logits,
        "decode_sample_logits": decode[:, sample_ids],
        "last_hidden": last_hidden,
    }


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as f:
        while chunk := f.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def save(path, tensors, model, checkpoint_files, text=""):
    """Write one golden file. The facts go under one metadata key, because safetensors does not order several."""
    facts = {
        "format": FORMAT,
        "architecture": model.config.architectures[0] if model.config.architectures else type(model).__name__,
        "vocab_size": model.config.get_text_config().vocab_size,
        "checkpoint": {os.path.basename(f): sha256(f) for f in checkpoint_files},
        "text": text,
        "compute": "float32",
        "threads": THREADS,
        "torch": torch.__version__.split("+")[0],
        "transformers": transformers.__version__,
    }
    blob = json.dumps(facts, sort_keys=True, ensure_ascii=False)
    save_file({k: v.contiguous() for k, v in tensors.items()}, path, metadata={"golden": blob})
    os.chmod(path, 0o644)
    gap = tensors["top2_logits"][:, 0] - tensors["top2_logits"][:, 1]
    print(f"{path}: {os.path.getsize(path)} B, prompt {len(tensors['input_ids'])}, steps {len(tensors['decode_ids'])}, "
          f"|logit| max {tensors['sample_logits'].abs().max():.2f}, top-2 gap min {gap.min():.2g} median {gap.median():.2g}")
