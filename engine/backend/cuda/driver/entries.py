#!/usr/bin/env python3
"""Writes entries.h, the driver's functions that the binary has: scripts/cuda-run.sh entries.py SOURCE... > entries.h

SOURCE are the Go and C files that call them: gorgonia.org/cu's, native.go and native.c. The prototypes are
cuda.h's. Run it when one of them changes; without it the linker names the function that is missing.
"""
import os, re, subprocess, sys

calls = set()
for source in sys.argv[1:]:
    calls |= set(re.findall(r"\b(?:C\.)?(cu[A-Z]\w+)\(", open(source).read()))
flags = os.environ["CGO_CFLAGS"].split()
text = "#include <cuda.h>\n" + "".join(f"called {c};\n" for c in sorted(calls - {"cuInit"}))
text = subprocess.run(["gcc", *flags, "-E", "-P", "-x", "c", "-"], input=text, capture_output=True, text=True, check=True).stdout
text = re.sub(r"__attribute__\(\(.*?\)\)", "", text)
prototypes = {m[1]: m[2] for m in re.finditer(r"CUresult\s+(cu\w+)\s*\(([^;{}]*)\)\s*;", text)}
print("// Made by entries.py: what gorgonia.org/cu and native.go call.")
# cuda.h may have renamed what is called; what it does not know is no function of the driver.
for name in sorted(set(re.findall(r"^called (\w+);", text, re.M)) & set(prototypes)):
    parameters = re.sub(r"\s+", " ", prototypes[name]).strip()
    called = [] if parameters == "void" else [re.sub(r"\[.*\]$", "", p).split()[-1].lstrip("*") for p in parameters.split(",")]
    print(f"ENTRY({name}, ({parameters}), ({', '.join(called)}))")
