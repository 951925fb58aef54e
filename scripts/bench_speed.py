"""Compares the speed that vapp plans with what vapp bench engine measures, and writes docs/speed.md.

The machine's rates are measured once; then each model is planned and each load measured. The rates of a
shared machine change within seconds. Each run of bench engine therefore measures reading and multiplying
again, and of several runs the one counts whose rates are nearest to those of the plan. Results stay in
.cache/bench-speed, so that an interrupted run goes on. FRESH=1 measures all again. ONLY=name measures one model.
"""

import json
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / ".cache/bench-speed"
PAGE = ROOT / "docs/speed.md"
VAPP = os.environ.get("VAPP", str(ROOT / "bin/vapp"))
RUN = os.environ.get("RUN", "").split()  # a command that runs each measurement
TRIES = 5  # measurements of a load at most
STILL = 8  # percent: a load is measured again if the machine's rates differ by more from those of the plan
BEGIN, END = "<!-- written by make bench-speed: begin -->", "<!-- written by make bench-speed: end -->"


def run(*args):
    """Returns the standard output of a command."""
    print("bench-speed:", *args[len(RUN):], file=sys.stderr)
    return subprocess.run(args, check=True, stdout=subprocess.PIPE, text=True).stdout


def loads(speed):
    """Returns the loads of a plan as arguments of bench engine."""
    for l in speed["loads"]:
        yield f'{l["streams"]}x{l["prompt_tokens"]}+{l["output_tokens"]}'


def figure(load, rates):
    """Returns the figure of a load that is compared: tokens a second of decode, prefill, or both."""
    if load["streams"] > 1:
        return rates["total"]
    return rates["decode"] if load["output_tokens"] > 1 else rates["prefill"]


def moved(before, now):
    """Returns by how much the machine's rates of reading and of multiplying bf16 changed, in percent."""
    pairs = [(before["read"], now["read"] / 1e9), (before["bf16"], now["bf16"] / 1e9)]
    return max(100 * abs(b / a - 1) for a, b in pairs)


def rates():
    """Measures the machine, and returns its rates in GB/s and GFLOP/s."""
    text = run(*RUN, VAPP, "doctor", "--measure")
    found = re.search(r"reads ([0-9.]+) GB/s, multiplies [0-9.]+ GFLOP/s in f32, ([0-9.]+) in bf16", text)
    return {"read": float(found[1]), "bf16": float(found[2])}


def bench(profile, work, before):
    """Measures a load until the machine is as it was before: returns the rates of the run nearest to that."""
    best = None
    for _ in range(TRIES):
        out = json.loads(run(*RUN, VAPP, "bench", "engine", "--json", "--repeat", "3", "--work", work, str(profile)))
        row = {k: statistics.median(out["rows"][0].get(k) or [0]) for k in ("total", "decode", "prefill")}
        row["moved"] = moved(before, out["limits"])
        if best is None or row["moved"] < best["moved"]:
            best = row
        if best["moved"] <= STILL:
            break
    return best


def measure(profile, before):
    """Plans a model, and measures it unless its results are kept."""
    plan = json.loads(run(VAPP, "plan", str(profile), "--speed", "--json"))
    if plan["speed"]["basis"] != "measured":
        sys.exit("bench-speed: " + plan["speed"]["why"])
    file = KEPT / (profile.stem + ".json")
    kept = json.loads(file.read_text()) if file.exists() else {}
    rows = []
    for load, work in zip(plan["speed"]["loads"], loads(plan["speed"]), strict=True):
        if work not in kept:
            kept[work] = bench(profile, work, before)
            file.write_text(json.dumps(kept, indent=1))
        planned = {
            "total": load["tokens_per_second"],
            "decode": load["decode_tokens_per_second"],
            "prefill": load["prefill_tokens_per_second"],
        }
        real = kept[work]
        rows.append({"load": load["name"], "planned": figure(load, planned), "measured": figure(load, real), "moved": real["moved"]})
    return {"model": profile.stem, "rates": plan["speed"]["rates"], "rows": rows}


def table(results):
    """Returns the table of some models, with its median and worst error."""
    lines = ["| model | load | planned | measured | error | machine moved |", "|---|---|---|---|---|---|"]
    errors = []
    for r in results:
        for row in r["rows"]:
            e = 100 * (row["planned"] / row["measured"] - 1)
            errors.append(abs(e))
            lines.append(f'| {r["model"]} | {row["load"]} | {row["planned"]:,.1f} | {row["measured"]:,.1f} | {e:+.0f} % | {row["moved"]:.0f} % |')
    lines += ["", f"Of {len(errors)} predictions the median error is {statistics.median(errors):.0f} %, the worst {max(errors):.0f} %.", ""]
    return lines


def main():
    KEPT.mkdir(parents=True, exist_ok=True)
    if os.environ.get("FRESH"):
        for f in KEPT.iterdir():
            f.unlink()
    known = KEPT / "measured.json"
    if not known.exists():
        known.write_text(json.dumps(rates()))
    before = json.loads(known.read_text())
    profiles = sorted((ROOT / "tests/bench/speed").glob("*.cue"))
    only = os.environ.get("ONLY")
    results = [measure(p, before) for p in profiles if not only or p.stem == only]
    if only:
        return
    text = PAGE.read_text()
    head, tail = text.split(BEGIN)[0], text.split(END)[1]
    body = [BEGIN, "", f'Tokens a second on {results[0]["rates"]}.', "", "The models of the test:", ""]
    body += table([r for r in results if r["model"].startswith("test-")])
    body += ["The models of the fit:", ""]
    body += table([r for r in results if r["model"].startswith("fit-")])
    PAGE.write_text(head + "\n".join(body) + END + tail)


main()
