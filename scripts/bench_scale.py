"""Compares the simulation of vapp bench replicas with a server on this machine, at three rates and two lengths.

One replica is served and measured by vapp bench serve, and simulated with the same requests and arrivals, with step times measured
just before. The p95 of TTFT, ITL and E2E is compared; an error above 20 % is marked. The model computes on half of the cores: the
client and HTTP, which are not simulated, have the others. A machine that other programs use moves more than that: the load average
is printed. PROFILE names another profile, THREADS another number of threads, RATES other shares of the capacity.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VAPP = os.environ.get("VAPP", str(ROOT / "bin/vapp"))
PROFILE = os.environ.get("PROFILE", str(ROOT / "profiles/smollm2.cue"))
THREADS = int(os.environ.get("THREADS", max(1, len(os.sched_getaffinity(0)) // 2)))
COUNT = os.environ.get("COUNT", "60")
LENGTHS = [(64, 32), (256, 64)]  # tokens in and out
RATES = [float(x) for x in os.environ.get("RATES", "0.3,0.5,0.7").split(",")]  # shares of the capacity
FIGURES = [("TTFT", "p95_ttft_ms", "ttft_seconds"), ("ITL", "p95_itl_ms", "itl_seconds"), ("E2E", "p95_e2el_ms", "e2e_seconds")]


def on_threads(dir):
    """Writes the profile with THREADS and its weights by an absolute path, and returns where it is."""
    text = Path(PROFILE).read_text()
    text = re.sub(r'source: "(\.[^"]*)"', lambda m: f'source: "{(Path(PROFILE).parent / m[1]).resolve()}"', text)
    to = Path(dir) / Path(PROFILE).name
    to.write_text(text.rstrip().removesuffix("}") + f"\tcpu: threads: {THREADS}\n}}\n")
    return str(to)


def simulate(profile, costs, prompt, output, rate, seed=0, count=COUNT):
    """Returns what one replica is simulated to do."""
    args = ["bench", "replicas", profile, "--cost-model", costs, "--request-rate", str(rate), "--num-prompts", str(count)]
    args += ["--random-input-len", str(prompt), "--random-output-len", str(output), "--target", "e2el:99999999", "--max-replicas", "1", "--seed", str(seed), "--json"]
    return json.loads(subprocess.run([VAPP, *args], check=True, stdout=subprocess.PIPE, text=True).stdout)["simulated"][0]


def whole_words(url):
    """Returns tokens that are English words, each a text of its own: a token that is a part of a character comes in the next one's chunk."""
    body = {"prompt": "the of and to in is that it was for on are as with his they at be this from have or by one had not but what all were", "add_special_tokens": False}
    request = urllib.request.Request(url + "/tokenize", json.dumps(body).encode(), {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=60))["tokens"]


def measure(url, dir, prompt, output, rate, seed):
    """Returns what the server does."""
    args = ["bench", "serve", "--base-url", url, "--request-rate", str(rate), "--num-prompts", COUNT, "--temperature", "0", "--disable-tqdm", "--seed", str(seed)]
    args += ["--extra-body", json.dumps({"allowed_token_ids": whole_words(url)})]
    args += ["--random-input-len", str(prompt), "--random-output-len", str(output), "--percentile-metrics", "ttft,itl,e2el", "--metric-percentiles", "95"]
    args += ["--save-result", "--result-dir", dir, "--result-filename", "result.json"]
    subprocess.run([VAPP, *args], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return json.loads((Path(dir) / "result.json").read_text())


def main():
    worst = seed = 0
    with tempfile.TemporaryDirectory() as dir:
        profile = on_threads(dir)
        costs = os.environ.get("COSTS") or str(Path(dir) / "steps.json")
        if not os.environ.get("COSTS"):
            subprocess.run([VAPP, "bench", "steps", profile, "--output", costs], check=True)
        log = Path(dir) / "server.log"
        with log.open("w") as to:
            server = subprocess.Popen([VAPP, "up", profile, "--port", "0"], stderr=to)
        try:
            while not (found := re.search(r"msg=ready .*url=(http://\S+)/v1", log.read_text())):
                if server.poll() is not None:
                    sys.exit("bench-scale: the server did not start: " + log.read_text().strip())
                time.sleep(0.1)
            url = found[1]
            print("| tokens | requests/s | figure, p95 | simulated, ms | measured, ms | error | load average |\n|---|---|---|---|---|---|---|")
            for prompt, output in LENGTHS:
                capacity = simulate(profile, costs, prompt, output, "inf", count="200")["output_tokens_per_second"] / output
                for share in RATES:
                    rate, seed = round(share * capacity, 3), seed + 1  # other prompts each time: the server keeps those before in its prefix cache
                    real, simulated = measure(url, dir, prompt, output, rate, seed), simulate(profile, costs, prompt, output, rate, seed)
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
