"""Time Pillow's resize on one thread beside BenchmarkPatches, in turns.

    python compare.py [ROUNDS]

An image of 12 megapixels becomes the 912 × 672 pixels of Gemma's 280 tokens; vapp's time has the
patches too. Times are the least of all rounds: on the clock, and of processors.
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import time

from PIL import Image

from pictures import picture


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    here = pathlib.Path(__file__).parent.parent
    image = Image.fromarray(picture(4000, 3000))
    image.load()
    best = {}

    def note(name, *times):
        best[name] = tuple(map(min, times, best.get(name, times)))

    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["go", "test", "-c", "-o", folder + "/vision.test", "."], cwd=here, check=True)
        for _ in range(rounds):
            for _ in range(5):
                clock, processor = time.perf_counter(), time.process_time()
                image.resize((912, 672), Image.Resampling.BICUBIC)
                note("Pillow, 1 thread", time.perf_counter() - clock, time.process_time() - processor)
            out = subprocess.run([folder + "/vision.test", "-test.run=^$", "-test.bench=Patches", "-test.benchtime=1x", "-test.count=5"], cwd=here, check=True, capture_output=True, text=True).stdout
            for threads, clock, processor in re.findall(r"Patches/(\d+)\S*\s+1\s+(\d+) ns/op\s+(\d+) cpu-ns/op", out):
                note(f"vapp, {threads} threads", int(clock) / 1e9, int(processor) / 1e9)
    for name, (clock, processor) in best.items():
        print(f"{name}: {1e3 * clock:.1f} ms, {1e3 * processor:.1f} ms of processors")


if __name__ == "__main__":
    main()
