"""Compares two ranks of one thread with one rank of two threads, in turns: writes the tables of docs/ranks.md.

Llama 3.2 1B with random weights: bf16 and fp8 from its configuration, and a GGUF file in Q8_0, which tests/peer/llama1b.py writes
(22 s, 1.3 GB; its two packages are fetched). Then the collectives: their time in a decode step, the library's all-reduce in the same
minutes, and what rank 0 spends on the control channel. TURNS=n measures n turns (7), GRIDS=tensor leaves out pipelines.
"""

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / ".cache/bench-ranks"
GGUF = KEPT / "llama1b-q8_0.gguf"
VAPP = os.environ.get("VAPP", str(ROOT / "bin/vapp"))
TURNS = int(os.environ.get("TURNS", "7"))
GRIDS = [(2, 1)] if os.environ.get("GRIDS") == "tensor" else [(2, 1), (1, 2)]
PAGE = ROOT / "docs/ranks.md"
BEGIN, END = "<!-- written by make bench-ranks: begin -->", "<!-- written by make bench-ranks: end -->"
DUMMY = 'model: {source: "meta-llama/Llama-3.2-1B", loadFormat: "dummy"}'
WEIGHTS = {"bf16": DUMMY, "fp8": DUMMY + ', quantization: "fp8"', "Q8_0": f'model: source: "{GGUF}"'}
PROFILE = """import "vapp.dev/schema"

schema.#Profile & {
	name: "llama-1b"
	%s
	backend: "cpu"
	maxModelLen: "4K"
	scheduler: {maxNumSeqs: 64, maxNumBatchedTokens: 512}
	cpu: {threads: %d, ranks: %d}
	parallel: {tensor: %d, pipeline: %d}
}
"""


class Side:
    """A loaded model that runs one load for each line on its standard input."""

    def __init__(self, folder, name, weights, threads, tensor, pipeline, work):
        path = folder / f"{name}.cue"
        path.write_text(PROFILE % (WEIGHTS[weights], threads, tensor * pipeline, tensor, pipeline))
        self.process = subprocess.Popen([VAPP, "bench", "engine", "--turns", "--work", work, str(path)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def turn(self):
        """Runs the load once and returns its rates."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit("bench-ranks: the engine ended")
        return json.loads(line)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def write_gguf():
    """Writes the file in Q8_0 if it is not there."""
    if GGUF.exists():
        return
    needed, venv = ROOT / "tests/peer/requirements.txt", KEPT / "venv"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    subprocess.run([venv / "bin/pip", "install", "--quiet", "--disable-pip-version-check", "-r", needed], check=True)
    part = GGUF.with_suffix(".part")
    subprocess.run([venv / "bin/python", ROOT / "tests/peer/llama1b.py", part, "q8_0"], check=True)
    part.rename(GGUF)


def ratios(weights, work, rate, tensor, pipeline):
    """Returns the ratios of the turns: two ranks of one thread by one rank of two threads."""
    with tempfile.TemporaryDirectory() as folder:
        sides = [Side(Path(folder), "one", weights, 2, 1, 1, work), Side(Path(folder), "two", weights, 1, tensor, pipeline, work)]
        try:
            for s in sides:
                s.turn()  # touches all memory
            out = []
            for n in range(TURNS):
                got = {}
                for i in (0, 1) if n % 2 == 0 else (1, 0):
                    got[i] = sides[i].turn()[rate]
                out.append((got[1] / got[0], got[0], got[1]))
            return out
        finally:
            for s in sides:
                s.close()


def collectives():
    """Returns the share of a decode step and the microseconds an exchange of 16 streams on two ranks."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "two.cue"
        path.write_text(PROFILE % (WEIGHTS["bf16"], 1, 2, 2, 1))
        text = subprocess.run([VAPP, "bench", "engine", "--profile", "--json", "--work", "16x64+64", str(path)], check=True, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True).stdout
    steps = next(s for s in json.loads(text)["rows"][0]["steps"] if s["kind"] == "decode")
    sums = [o for o in steps["ops"] if o["op"] in ("all_reduce", "all_gather")]
    return sum(o["share"] for o in sums), [(o["op"], o["us"] / max(1, o["calls"])) for o in sums]


def bench(package, name):
    """Returns the lines that a benchmark of Go prints."""
    return subprocess.run(["go", "test", package, "-run", "^$", "-bench", name, "-benchtime", "2s"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def main():
    lines = ["| weights | ranks | load | two ranks ÷ one, median (least to most) | one rank, tokens/s | two ranks, tokens/s |", "|---|---|---|--:|--:|--:|"]
    write_gguf()
    for name in WEIGHTS:
        for tensor, pipeline in GRIDS:
            for work, rate in (("256+1", "prefill"), ("1+32", "decode")):
                r = ratios(name, work, rate, tensor, pipeline)
                each = sorted(x[0] for x in r)
                grid = "tensor 2" if tensor == 2 else "pipeline 2"
                lines.append(f"| {name} | {grid} | {rate}, {work} | {statistics.median(each):.2f} ({each[0]:.2f} to {each[-1]:.2f}) "
                             f"| {statistics.median(x[1] for x in r):.1f} | {statistics.median(x[2] for x in r):.1f} |")
                print(lines[-1], file=sys.stderr)
    share, times = collectives()
    lines += ["", f"Of a decode step of 16 streams (tensor 2, bf16) collectives take {100 * share:.1f} %: " + ", ".join(f"{op} {us:.0f} µs" for op, us in times) + ".", "", "```"]
    lines += [l for l in bench("./engine/backend/mpi", "AllReduce").splitlines() if "µs" in l or "Benchmark" in l]
    lines += [l for l in bench("./engine/ranks", "Control").splitlines() if "Benchmark" in l] + ["```"]
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    text = PAGE.read_text()
    head, rest = text.split(BEGIN)
    PAGE.write_text(head + BEGIN + f"\nMeasured on {cpu[1] if cpu else 'this machine'}, {os.cpu_count()} CPUs, {TURNS} turns.\n\n" + "\n".join(lines) + "\n" + END + rest.split(END)[1])


if __name__ == "__main__":
    main()
