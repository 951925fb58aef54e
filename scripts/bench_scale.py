"""Compares the simulation of vapp bench replicas with a server on this machine, at three rates and two lengths.

One replica is served and measured by vapp bench serve, and simulated with the same requests and arrivals, with step times measured
just before. The p95 of TTFT, ITL and E2E is compared; an error above 20 % is marked. A machine that other programs use moves more
than that: the load average is printed. PROFILE names another profile, RATES other shares of the capacity.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VAPP = os.environ.get("VAPP", str(ROOT / "bin/vapp"))
PROFILE = os.environ.get("PROFILE", str(ROOT / "profiles/smollm2.cue"))
COUNT = os.environ.get("COUNT", "60")
LENGTHS = [(64, 32), (256, 64)]  # tokens in and out
RATES = [float(x) for x in os.environ.get("RATES", "0.3,0.5,0.7").split(",")]  # shares of the capacity
FIGURES = [("TTFT", "p95_ttft_ms", "ttft_seconds"), ("ITL", "p95_itl_ms", "itl_seconds"), ("E2E", "p95_e2el_ms", "e2e_seconds")]


def simulate(costs, prompt, output, rate, count=COUNT):
    """Returns what one replica is simulated to do."""
    args = ["bench", "replicas", PROFILE, "--cost-model", costs, "--request-rate", str(rate), "--num-prompts", str(count)]
    args += ["--random-input-len", str(prompt), "--random-output-len", str(output), "--target", "e2el:99999999", "--max-replicas", "1", "--json"]
    return json.loads(subprocess.run([VAPP, *args], check=True, stdout=subprocess.PIPE, text=True).stdout)["simulated"][0]


def measure(url, dir, prompt, output, rate):
    """Returns what the server does."""
    args = ["bench", "serve", "--base-url", url, "--request-rate", str(rate), "--num-prompts", COUNT, "--temperature", "0", "--disable-tqdm"]
    args += ["--random-input-len", str(prompt), "--random-output-len", str(output), "--percentile-metrics", "ttft,itl,e2el", "--metric-percentiles", "95"]
    args += ["--save-result", "--result-dir", dir, "--result-filename", "result.json"]
    subprocess.run([VAPP, *args], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return json.loads((Path(dir) / "result.json").read_text())


def main():
    worst = 0
    with tempfile.TemporaryDirectory() as dir:
        costs = os.environ.get("COSTS") or str(Path(dir) / "steps.json")
        if not os.environ.get("COSTS"):
            subprocess.run([VAPP, "bench", "steps", PROFILE, "--output", costs], check=True)
        server = subprocess.Popen([VAPP, "up", PROFILE, "--port", "0"], stderr=subprocess.PIPE, text=True)
        try:
            url = None
            for line in server.stderr:
                if found := re.search(r"msg=ready .*url=(http://\S+)/v1", line):
                    url = found[1]
                    break
            if not url:
                sys.exit("bench-scale: the server did not start")
            print("| tokens | requests/s | figure, p95 | simulated, ms | measured, ms | error | load average |\n|---|---|---|---|---|---|---|")
            for prompt, output in LENGTHS:
                capacity = simulate(costs, prompt, output, "inf", 200)["output_tokens_per_second"] / output
                for share in RATES:
                    rate = round(share * capacity, 3)
                    real, simulated = measure(url, dir, prompt, output, rate), simulate(costs, prompt, output, rate)
                    for name, key, other in FIGURES:
                        a, b = 1e3 * simulated[other], real[key]
                        error = 100 * (a / b - 1)
                        worst = max(worst, abs(error))
                        mark = "" if abs(error) <= 20 else " !"
                        print(f"| {prompt} + {output} | {rate} | {name} | {a:.1f} | {b:.1f} | {error:+.0f} %{mark} | {os.getloadavg()[0]:.1f} |", flush=True)
        finally:
            server.terminate()
            server.wait()
    print(f"\nThe worst error is {worst:.0f} %.")


main()
