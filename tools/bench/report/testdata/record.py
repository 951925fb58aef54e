"""Writes the goldens of this folder: traces in, the table and the saved figures out,
computed with numpy and independently of the Go code.

    python record.py        # recorded with what versions.txt says
"""

import gzip
import json
import math
import pathlib
import platform

import numpy as np

HERE = pathlib.Path(__file__).parent
TITLES = [
    ("ttft", "Time to First Token", "TTFT"),
    ("tpot", "Time per Output Token (excl. 1st token)", "TPOT"),
    ("itl", "Inter-token Latency", "ITL"),
    ("e2el", "End-to-end Latency", "E2EL"),
]


def word(p):
    return str(int(p)) if int(p) == p else str(p)


def figures(case):
    s, good = case["setup"], [t for t in case["traces"] if "failure" not in t]
    seconds = case["seconds"]
    lists = {m: [] for m, _, _ in TITLES}
    met = 0
    for t in good:
        lists["ttft"].append(t["ttft"])
        lists["itl"] += t["itl"]
        lists["e2el"].append(t["latency"])
        tpot = 0
        if t["output"] > 1:
            tpot = (t["latency"] - t["ttft"]) / (t["output"] - 1)
            lists["tpot"].append(tpot)
        got = {"ttft": t["ttft"], "tpot": tpot, "e2el": t["latency"]}
        met += all(got[m] <= limit / 1000 for m, limit in (s["goodput"] or {}).items())
    peak_tokens, peak_requests = 0.0, 0
    if good:
        first = min(t["start"] for t in good)
        last = max(t["start"] + t["latency"] for t in good)
        tokens = np.zeros(int(np.ceil(last - first)) + 1)
        active = np.zeros(len(tokens))
        for t in good:
            times = t["start"] - first + t["ttft"] + np.cumsum([0.0] + t["itl"])
            for at in times:
                if int(at) < len(tokens):
                    tokens[int(at)] += 1
            active[int(t["start"] - first) : int(t["start"] - first + t["latency"]) + 1] += 1
        peak_tokens, peak_requests = float(tokens.max()), int(active.max())
    tin, tout = sum(t["input"] for t in good), sum(t["output"] for t in good)
    out = {
        "date": s["date"], "endpoint_type": s["backend"], "backend": s["backend"], "label": s["label"],
        "model_id": s["model"], "tokenizer_id": s["tokenizer"], "num_prompts": len(case["traces"]),
        **dict(s["metadata"]),
        "request_rate": s["rate"], "burstiness": s["burstiness"], "max_concurrency": s["max_concurrency"],
    }
    if s["ramp_up"]:
        strategy, start, end = s["ramp_up"]
        out |= {"ramp_up_strategy": strategy, "ramp_up_start_rps": start, "ramp_up_end_rps": end}
    per = (lambda n: n / seconds) if seconds else (lambda n: 0)
    out |= {
        "duration": seconds, "completed": len(good), "failed": len(case["traces"]) - len(good),
        "total_input_tokens": tin, "total_output_tokens": tout, "request_throughput": per(len(good)),
        "request_goodput": per(met) if s["goodput"] else None,
        "output_throughput": per(tout), "total_token_throughput": per(tin + tout),
        "max_output_tokens_per_s": peak_tokens, "max_concurrent_requests": peak_requests, "rtfx": 0,
    }
    for m, _, _ in TITLES:
        if m not in s["metrics"]:
            continue
        x = np.array(lists[m] or [0]) * 1000
        out[f"mean_{m}_ms"], out[f"median_{m}_ms"], out[f"std_{m}_ms"] = np.mean(x), np.median(x), np.std(x)
        for p in s["percentiles"]:
            out[f"p{word(p)}_{m}_ms"] = np.percentile(x, p)
    spec = case.get("speculation")
    if spec and spec["drafts"] > 0:
        out |= {
            "spec_decode_acceptance_rate": spec["accepted"] / spec["draft_tokens"] * 100,
            "spec_decode_acceptance_length": 1 + spec["accepted"] / spec["drafts"],
            "spec_decode_num_drafts": spec["drafts"], "spec_decode_draft_tokens": spec["draft_tokens"],
            "spec_decode_accepted_tokens": spec["accepted"],
            "spec_decode_per_position_acceptance_rates": [n / spec["drafts"] for n in spec["positions"]],
        }
    return out


def table(case, f):
    s, rows = case["setup"], []
    count = lambda label, n: rows.append("{:<40} {:<10}".format(label, n))
    value = lambda label, x: rows.append("{:<40} {:<10.2f}".format(label, x))
    rows.append("{s:{c}^{n}}".format(s=" Serving Benchmark Result ", n=50, c="="))
    count("Successful requests:", f["completed"])
    count("Failed requests:", f["failed"])
    if f["max_concurrency"]:
        count("Maximum request concurrency:", f["max_concurrency"])
    if f["request_rate"] != "inf":
        value("Request rate configured (RPS):", f["request_rate"])
    value("Benchmark duration (s):", f["duration"])
    count("Total input tokens:", f["total_input_tokens"])
    count("Total generated tokens:", f["total_output_tokens"])
    value("Request throughput (req/s):", f["request_throughput"])
    if s["goodput"]:
        value("Request goodput (req/s):", f["request_goodput"])
    value("Output token throughput (tok/s):", f["output_throughput"])
    value("Peak output token throughput (tok/s):", f["max_output_tokens_per_s"])
    value("Peak concurrent requests:", f["max_concurrent_requests"])
    value("Total token throughput (tok/s):", f["total_token_throughput"])
    for m, title, short in TITLES:
        if m not in s["metrics"]:
            continue
        rows.append("{s:{c}^{n}}".format(s=title, n=50, c="-"))
        value(f"Mean {short} (ms):", f[f"mean_{m}_ms"])
        value(f"Median {short} (ms):", f[f"median_{m}_ms"])
        for p in s["percentiles"]:
            value(f"P{word(p)} {short} (ms):", f[f"p{word(p)}_{m}_ms"])
    if "spec_decode_num_drafts" in f:
        rows.append("{s:{c}^{n}}".format(s="Speculative Decoding", n=50, c="-"))
        value("Acceptance rate (%):", f["spec_decode_acceptance_rate"])
        value("Acceptance length:", f["spec_decode_acceptance_length"])
        count("Drafts:", f["spec_decode_num_drafts"])
        count("Draft tokens:", f["spec_decode_draft_tokens"])
        count("Accepted tokens:", f["spec_decode_accepted_tokens"])
        rows.append("Per-position acceptance (%):")
        for i, x in enumerate(f["spec_decode_per_position_acceptance_rates"]):
            value(f"  Position {i}:", x * 100)
    rows.append("=" * 50)
    return "\n".join(rows) + "\n"


def setup(**words):
    return {
        "date": "20260102-030405", "backend": "openai", "label": None, "model": "org/tiny", "tokenizer": "org/tiny",
        "metadata": [], "rate": "inf", "burstiness": 1.0, "max_concurrency": None, "ramp_up": None,
        "goodput": None, "metrics": ["ttft", "tpot", "itl"], "percentiles": [99],
    } | words


def trace(start, times, output=None, inputs=128, end=None):
    """A request whose chunks come at these times after its start."""
    return {
        "start": start, "ttft": times[0], "latency": times[-1] if end is None else end,
        "itl": list(np.diff(times)), "input": inputs, "output": len(times) if output is None else output,
    }


def failed(start, seconds, reason, detail=""):
    return {"start": start, "ttft": 0.25, "latency": seconds, "itl": [0.125], "input": 512, "output": 0,
            "failure": {"reason": reason, "detail": detail}}


def drawn(seed, n):
    r, out = np.random.default_rng(seed), []
    for i in range(n):
        times = np.cumsum(np.concatenate([r.gamma(2, 0.1, 1), r.gamma(3, 0.01, r.integers(0, 90))]))
        out.append(trace(float(r.uniform(0, 6)), [float(x) for x in times], inputs=int(r.integers(10, 2000))))
    return out


def cases():
    yield "plain", {"setup": setup(), "seconds": 2.5, "traces": [
        trace(0.0, [0.5, 0.75, 1.0, 1.5]), trace(0.25, [0.5, 1.25, 2.25]), trace(0.125, [1.0, 1.5, 2.0])]}
    yield "failures", {"setup": setup(rate=10.0, max_concurrency=32, label="A", metadata=[["gpu", "none"], ["run", "7"]]),
        "seconds": 4.0, "traces": [
            failed(0.0, 3.9, "HTTP 503", "overloaded"), trace(0.25, [0.5, 0.75, 1.0]), failed(0.5, 1.0, "closed early"),
            failed(0.5, 1.0, "HTTP 503", "still overloaded"), trace(0.75, [0.25, 0.5])]}
    yield "nothing", {"setup": setup(goodput={"ttft": 500.0}), "seconds": 1.0, "traces": [failed(0.0, 1.0, "timeout")]}
    yield "single", {"setup": setup(metrics=["ttft", "tpot", "itl", "e2el"], goodput={"tpot": 10.0, "e2el": 700.0}), "seconds": 1.5,
        "traces": [trace(0.0, [0.5]), trace(0.5, [0.75]), trace(0.75, [0.25])]}
    yield "several_tokens_a_chunk", {"setup": setup(metrics=["itl", "e2el"], percentiles=[50, 90, 99.9]), "seconds": 3.0,
        "traces": [trace(0.0, [0.5, 1.0, 1.5], output=9), trace(1.0, [0.25, 1.25], output=6, end=1.5)],
        "speculation": {"drafts": 1000, "draft_tokens": 2000, "accepted": 1333, "positions": [800, 533]}}
    yield "peaks", {"setup": setup(), "seconds": 3.0, "traces": [
        trace(10.0, [1.0, 1.25, 1.5, 2.0]), trace(10.5, [0.5, 0.625, 0.75, 1.0]), trace(12.0, [0.5, 0.75]), trace(11.0, [0.0, 1.0])]}
    yield "no_time", {"setup": setup(), "seconds": 0, "traces": []}
    yield "drawn", {"setup": setup(rate=16.5, burstiness=0.5, goodput={"ttft": 300.0, "tpot": 30.0, "e2el": 1600.0},
        metrics=["ttft", "tpot", "itl", "e2el"], percentiles=[0, 25, 33.3, 50, 75, 90, 95, 99, 99.9, 100]),
        "seconds": 8.75, "traces": drawn(11, 100)}
    yield "ramp", {"setup": setup(ramp_up=["linear", 1.0, 20.0], percentiles=[50]), "seconds": 7.5, "traces": drawn(12, 15)}


for name, case in cases():
    f = figures(case)
    case["json"], case["table"] = f, table(case, f)
    if len(case["traces"]) < 10:
        (HERE / f"{name}.json").write_text(json.dumps(case, indent=1) + "\n")
    else:  # large
        (HERE / f"{name}.json.gz").write_bytes(gzip.compress((json.dumps(case) + "\n").encode(), 9, mtime=0))
(HERE / "versions.txt").write_text(f"Python {platform.python_version()}, numpy {np.__version__}\n")
