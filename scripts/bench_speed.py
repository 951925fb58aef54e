"""Compares the speed that vapp plans with what vapp bench engine measures, and writes docs/speed.md.

Each model is planned and measured once; its results stay in .cache/bench-speed, so that an
interrupted run goes on. FRESH=1 measures all again. ONLY=name measures one model.
"""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / ".cache/bench-speed"
PAGE = ROOT / "docs/speed.md"
VAPP = os.environ.get("VAPP", str(ROOT / "bin/vapp"))
RUN = os.environ.get("RUN", "").split()  # a command that runs each measurement
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


def measure(profile):
    """Measures a model, and keeps the result."""
    kept = KEPT / (profile.stem + ".json")
    if kept.exists():
        return json.loads(kept.read_text())
    plan = json.loads(run(VAPP, "plan", str(profile), "--speed", "--json"))
    if plan["speed"]["basis"] != "measured":
        sys.exit("bench-speed: " + plan["speed"]["why"])
    work = [a for w in loads(plan["speed"]) for a in ("--work", w)]
    bench = json.loads(run(*RUN, VAPP, "bench", "engine", "--limits=false", "--json", "--repeat", "3", *work, str(profile)))
    rows = []
    for load, row in zip(plan["speed"]["loads"], bench["rows"], strict=True):
        planned = {
            "total": load["tokens_per_second"],
            "decode": load["decode_tokens_per_second"],
            "prefill": load["prefill_tokens_per_second"],
        }
        real = {k: statistics.median(row.get(k) or [0]) for k in planned}
        rows.append({"load": load["name"], "planned": figure(load, planned), "measured": figure(load, real)})
    out = {"model": profile.stem, "rates": plan["speed"]["rates"], "rows": rows}
    KEPT.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(out, indent=1))
    return out


def table(results):
    """Returns the table of some models, with its median and worst error."""
    lines = ["| model | load | planned | measured | error |", "|---|---|---|---|---|"]
    errors = []
    for r in results:
        for row in r["rows"]:
            e = 100 * (row["planned"] / row["measured"] - 1)
            errors.append(abs(e))
            lines.append(f'| {r["model"]} | {row["load"]} | {row["planned"]:,.1f} | {row["measured"]:,.1f} | {e:+.0f} % |')
    lines += ["", f"Of {len(errors)} predictions the median error is {statistics.median(errors):.0f} %, the worst {max(errors):.0f} %.", ""]
    return lines


def main():
    KEPT.mkdir(parents=True, exist_ok=True)
    if os.environ.get("FRESH"):
        for f in KEPT.iterdir():
            f.unlink()
    rates = KEPT / "measured"
    if not rates.exists():
        run(*RUN, VAPP, "doctor", "--measure")
        rates.write_text("")
    profiles = sorted((ROOT / "tests/bench/speed").glob("*.cue"))
    only = os.environ.get("ONLY")
    results = [measure(p) for p in profiles if not only or p.stem == only]
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
