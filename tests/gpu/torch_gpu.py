"""Measures PyTorch and transformers on the GPU: the limits of the device, and the models of vapp's
agenda with random weights and the same shapes. Prints one JSON object. Exit code 77 means that the
machine has no PyTorch with CUDA."""

import json
import signal
import sys
import time

START = time.monotonic()  # the time to import PyTorch counts
ENOUGH, LATE = 40, 52  # seconds: no measurement begins after the first; the second interrupts


class Late(Exception):
    """The time is over; the figures measured so far are printed."""


def late(*_):
    raise Late(f"ended after {LATE} s")


signal.signal(signal.SIGALRM, late)
signal.alarm(LATE)

try:
    import torch
except ImportError as e:
    print(f"no PyTorch: {e}", file=sys.stderr)
    sys.exit(77)
if not torch.cuda.is_available():
    print("PyTorch finds no CUDA device", file=sys.stderr)
    sys.exit(77)


def timed(f, n):
    """Returns the seconds of one call: the median of three rounds of n calls."""
    f()
    torch.cuda.synchronize()
    rounds = []
    for _ in range(3):
        start = time.perf_counter()
        for _ in range(n):
            f()
        torch.cuda.synchronize()
        rounds.append((time.perf_counter() - start) / n)
    return sorted(rounds)[1]


def limits():
    a = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    b = torch.empty_like(a)
    copy = 2 * a.numel() / timed(lambda: b.copy_(a), 20)
    del a, b
    x = torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda")
    y = torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda")
    return {"copy_bytes_a_second": copy, "bf16_flops": 2 * 8192**3 / timed(lambda: x @ y, 10)}


MODELS = {
    "llama-3.2-1b": ("llama", dict(hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32,
                                   num_key_value_heads=8, head_dim=64, vocab_size=128256, tie_word_embeddings=True)),
    "llama-3.1-8b": ("llama", dict(hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32,
                                   num_key_value_heads=8, vocab_size=128256, tie_word_embeddings=False)),
}


def row(model, streams):
    """Measures a model on prompts of 1,024 tokens and 32 generated tokens each."""
    ids = torch.randint(0, 1000, (streams, 1024), device="cuda")
    with torch.inference_mode():
        for _ in range(2):  # the first is a warm-up
            torch.cuda.synchronize()
            start = time.perf_counter()
            past = model(ids, use_cache=True, logits_to_keep=1).past_key_values
            torch.cuda.synchronize()
            prefill = time.perf_counter() - start
        token = ids[:, :1]
        start = time.perf_counter()
        steps = 32
        for _ in range(steps):
            step = model(token, past_key_values=past, use_cache=True)
            past, token = step.past_key_values, step.logits[:, -1].argmax(-1, keepdim=True)
        torch.cuda.synchronize()
        decode = time.perf_counter() - start
    return {"streams": streams, "context": 1024, "prefill": streams * 1024 / prefill, "decode": streams * steps / decode}


def models(out, failed):
    """Adds the rows of each model to out, and failures to failed; a failure does not stop the next model.
    Without transformers it adds no rows."""
    try:
        from transformers import AutoConfig, AutoModelForCausalLM
    except ImportError as e:
        found["transformers"] = f"none: {e}"
        return

    for name, (kind, sizes) in MODELS.items():
        if time.monotonic() - START > ENOUGH:
            break
        try:
            config = AutoConfig.for_model(kind, max_position_embeddings=32768, **sizes)
            with torch.device("cuda"):
                model = AutoModelForCausalLM.from_config(config, torch_dtype=torch.bfloat16).eval()
            for streams in (1, 8, 32):
                if time.monotonic() - START > ENOUGH:
                    break
                out.append({"model": name, **row(model, streams)})
        except Late:
            raise
        except Exception as e:
            failed.append(f"{name}: {type(e).__name__}: {e}")
        model = None
        torch.cuda.empty_cache()


found, done, failed = {"torch": torch.__version__, "cuda": torch.version.cuda}, [], []
for what in (lambda: found.update(device=torch.cuda.get_device_name()), lambda: found.update(limits()), lambda: models(done, failed)):
    try:
        what()
    except Late as e:
        failed.append(str(e))
        break
    except Exception as e:
        failed.append(f"{type(e).__name__}: {e}")
signal.alarm(0)
if done:
    found["models"] = done
if failed:
    found["failed"] = "; ".join(failed)
print(json.dumps(found))
sys.exit(1 if failed else 0)
