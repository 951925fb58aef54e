"""Measures PyTorch, and what is installed beside it, on the GPU: the limits of the device, the products of vapp's models by
torch.matmul, torch._scaled_mm and a Triton kernel, attention by SDPA and FlashInfer, and the models of vapp's agenda by
transformers with random weights, with and without a static cache in a CUDA graph. Prints one JSON object; what is not
there is a line of its list "absent". Exit code 77 means that the machine has no PyTorch with CUDA."""

import json
import math
import signal
import sys
import time

START = time.monotonic()  # the time to import PyTorch counts
ENOUGH, LATE = 52, 66  # seconds: no measurement begins after the first; the second interrupts


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

found, absent, failed = {"torch": torch.__version__, "cuda": torch.version.cuda}, [], []


def enough():
    return time.monotonic() - START > ENOUGH


def line(e):
    """Returns an error as one line."""
    return " ".join(f"{type(e).__name__}: {e}".split())[:300]


def timed(f, n):
    """Returns the seconds of one call by the device's clock: the median of three rounds of n calls, in a CUDA graph where
    they can be captured."""
    f()
    torch.cuda.synchronize()
    run = lambda: [f() for _ in range(n)]
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
        run = graph.replay
    except RuntimeError:
        torch.cuda.synchronize()
    rounds = []
    for _ in range(3):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        rounds.append(begin.elapsed_time(end) / 1e3 / n)
    return sorted(rounds)[1]


def limits():
    a = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    b = torch.empty_like(a)
    copy = 2 * a.numel() / timed(lambda: b.copy_(a), 20)
    del a, b
    x = torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda")
    y = torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda")
    found.update(copy_bytes_a_second=copy, bf16_flops=2 * 8192**3 / timed(lambda: x @ y, 10))


# Outputs and inputs of Llama-3.1-8B's and Llama-3.2-1B's products.
SHAPES = [(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (3072, 2048), (16384, 2048), (2048, 8192)]
ROWS = [1, 16, 64, 256, 2048]
BEYOND = 256 << 20  # bytes of weights that are read in turn, more than caches hold


def triton_product():
    """Returns a product Y = X · Wᵀ of bf16 as a Triton kernel."""
    import triton
    import triton.language as tl

    @triton.jit
    def kernel(x, w, y, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
        rows = tl.program_id(0) * M + tl.arange(0, M)
        cols = tl.program_id(1) * N + tl.arange(0, N)
        total = tl.zeros((M, N), dtype=tl.float32)
        for at in range(0, k, K):
            inner = at + tl.arange(0, K)
            a = tl.load(x + rows[:, None] * k + inner[None, :], mask=rows[:, None] < m, other=0.0)
            b = tl.load(w + cols[None, :] * k + inner[:, None], mask=cols[None, :] < n, other=0.0)
            total += tl.dot(a, b)
        tl.store(y + rows[:, None] * n + cols[None, :], total.to(tl.bfloat16), mask=(rows[:, None] < m) & (cols[None, :] < n))

    def product(x, w, y):
        m, n, k = x.shape[0], w.shape[0], w.shape[1]
        rows = 16 if m <= 16 else 64 if m <= 64 else 128
        kernel[(triton.cdiv(m, rows), triton.cdiv(n, 128))](x, w, y, m, n, k, M=rows, N=128, K=64, num_warps=4 if rows < 128 else 8, num_stages=4)

    return product


def products(out):
    """Adds a row of microseconds for each shape and number of rows to out."""
    try:
        triton = triton_product()
    except Exception as e:
        absent.append("Triton: " + line(e))
        triton = None
    scaled = True
    for n, k in SHAPES:
        copies = max(2, math.ceil(BEYOND / (2 * n * k)))
        w = [torch.randn(n, k, dtype=torch.bfloat16, device="cuda") for _ in range(copies)]
        w8 = None
        for m in ROWS:
            if enough():
                return
            x, y = torch.randn(m, k, dtype=torch.bfloat16, device="cuda"), torch.empty(m, n, dtype=torch.bfloat16, device="cuda")
            row = {"rows": m, "out": n, "in": k, "matmul us": 1e6 * timed(lambda: [torch.matmul(x, v.t(), out=y) for v in w], 1) / copies, "_scaled_mm us": None, "triton us": None}
            if scaled and m >= 16:
                try:
                    w8 = w8 or [v.to(torch.float8_e4m3fn) for v in w]
                    x8 = x.to(torch.float8_e4m3fn)
                    a, b = torch.ones(m, 1, device="cuda"), torch.ones(1, n, device="cuda")
                    call = lambda: [torch._scaled_mm(x8, v.t(), scale_a=a, scale_b=b, out_dtype=torch.bfloat16) for v in w8]
                    row["_scaled_mm us"] = 1e6 * timed(call, 1) / copies
                except Late:
                    raise
                except Exception as e:
                    absent.append("torch._scaled_mm: " + line(e))
                    scaled = False
            if triton:
                try:
                    row["triton us"] = 1e6 * timed(lambda: [triton(x, v, y) for v in w], 1) / copies
                except Late:
                    raise
                except Exception as e:
                    absent.append("Triton: " + line(e))
                    triton = None
            out.append(row)
        del w, w8


# Streams, new tokens of each, tokens in the cache: decoding, and a prompt. 32 heads and 8 of keys, of 128.
ATTENTION = [(1, 1, 1024), (64, 1, 1024), (1, 1, 32768), (1, 2048, 2048), (1, 16384, 16384)]


def attention(out):
    """Adds a row of microseconds for each kind of attention to out."""
    from torch.nn.functional import scaled_dot_product_attention as sdpa

    try:
        import flashinfer
    except Exception as e:
        absent.append("FlashInfer: " + line(e))
        flashinfer = None
    for streams, new, tokens in ATTENTION:
        if enough():
            return
        q = torch.randn(streams, 32, new, 128, dtype=torch.bfloat16, device="cuda")
        k, v = (torch.randn(streams, 8, tokens, 128, dtype=torch.bfloat16, device="cuda") for _ in range(2))
        row = {"streams": streams, "new": new, "tokens": tokens, "sdpa us": None, "flashinfer us": None}
        try:
            row["sdpa us"] = 1e6 * timed(lambda: sdpa(q, k, v, is_causal=new > 1, enable_gqa=True), 3)
        except Late:
            raise
        except Exception as e:
            absent.append(f"SDPA of {tokens} tokens: " + line(e))
        if flashinfer and streams == 1:
            try:
                keys, values = k[0].transpose(0, 1).contiguous(), v[0].transpose(0, 1).contiguous()
                if new == 1:
                    one = q[0, :, 0].contiguous()
                    call = lambda: flashinfer.single_decode_with_kv_cache(one, keys, values)
                else:
                    many = q[0].transpose(0, 1).contiguous()
                    call = lambda: flashinfer.single_prefill_with_kv_cache(many, keys, values, causal=True)
                row["flashinfer us"] = 1e6 * timed(call, 3)
            except Late:
                raise
            except Exception as e:
                absent.append("FlashInfer: " + line(e))
                flashinfer = None
        out.append(row)


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
    return {"streams": streams, "context": 1024, "prefill": streams * 1024 / prefill, "decode": streams * steps / decode, "decode, graph": None}


def graphed(model, streams):
    """Returns the tokens a second of decode steps with a static cache of 1,088 tokens, as a CUDA graph."""
    from transformers import StaticCache

    cache = StaticCache(config=model.config, max_batch_size=streams, max_cache_len=1088, device="cuda", dtype=torch.bfloat16)
    token, at = torch.zeros(streams, 1, dtype=torch.long, device="cuda"), torch.tensor([1024], device="cuda")
    with torch.inference_mode():
        step = lambda: model(token, past_key_values=cache, cache_position=at, position_ids=at[None].expand(streams, 1), use_cache=True)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(32):
            graph.replay()
        torch.cuda.synchronize()
        return 32 * streams / (time.perf_counter() - start)


def models(out):
    """Adds the rows of each model to out, and failures to failed; a failure does not stop the next model.
    Without transformers it adds no rows."""
    try:
        from transformers import AutoConfig, AutoModelForCausalLM
    except Exception as e:
        absent.append("transformers: " + line(e))
        return

    static = True
    for name, (kind, sizes) in MODELS.items():
        if enough():
            break
        try:
            config = AutoConfig.for_model(kind, max_position_embeddings=32768, **sizes)
            with torch.device("cuda"):
                model = AutoModelForCausalLM.from_config(config, torch_dtype=torch.bfloat16).eval()
            for streams in (1, 8, 32):
                if enough():
                    break
                out.append({"model": name, **row(model, streams)})
                if static:
                    try:
                        out[-1]["decode, graph"] = graphed(model, streams)
                    except Late:
                        raise
                    except Exception as e:
                        absent.append("static cache in a CUDA graph: " + line(e))
                        static = False
        except Late:
            raise
        except Exception as e:
            failed.append(f"{name}: {line(e)}")
        model = None
        torch.cuda.empty_cache()


lists = {"products": [], "attention": [], "models": []}
steps = [lambda: found.update(device=torch.cuda.get_device_name()), limits, lambda: models(lists["models"]), lambda: products(lists["products"]), lambda: attention(lists["attention"])]
for what in steps:
    try:
        what()
    except Late as e:
        failed.append(str(e))
        break
    except Exception as e:
        failed.append(line(e))
signal.alarm(0)
found.update({name: rows for name, rows in lists.items() if rows})
if absent:
    found["absent"] = [{"not measured, because": a} for a in absent]
if failed:
    found["failed"] = "; ".join(failed)
print(json.dumps(found))
sys.exit(1 if failed else 0)
