"""Empty stand-ins for the GPU libraries that the torch wheel links to, so that it runs on a CPU without them.

    torch_stubs.py TORCH_LIB_DIR OUT_DIR

Every function answers 100 (no device); run Python with LD_LIBRARY_PATH=OUT_DIR. Needs gcc and readelf.
"""

import collections
import os
import subprocess
import sys

LIBRARIES = ("libcu", "libnv", "libnccl")
FUNCTIONS = ("cu", "nccl", "nv")
CATCH_ALL = "libcudart.so"  # takes the symbols that no version ties to a library
NVSHMEM = "libnvshmem_host.so"  # its symbols carry the version NVSHMEM in place of the library's name


def readelf(option, path):
    return subprocess.run(["readelf", option, "-W", path], capture_output=True, text=True, check=True).stdout.splitlines()


def needed(paths):
    """The GPU libraries that the given files link to."""
    return {name for p in paths for line in readelf("-d", p) if "(NEEDED)" in line
            if (name := line.split("[")[1].split("]")[0]).startswith(LIBRARIES)}


def symbols(paths):
    """(version → {name: type}) of undefined versioned symbols, {name: type} of the others that nobody defines."""
    versioned, plain, defined = collections.defaultdict(dict), {}, set()
    for path in paths:
        for line in readelf("--dyn-syms", path):
            columns = line.split()
            if len(columns) < 8 or not columns[0].rstrip(":").isdigit():
                continue
            kind, section, (name, _, version) = columns[3], columns[6], columns[7].partition("@")
            version = version.lstrip("@")
            if section != "UND":
                defined.add(name)
            elif version:
                versioned[version][name] = kind
            else:
                plain[name] = kind
    return versioned, {n: k for n, k in plain.items() if n.startswith(FUNCTIONS) and n not in defined}


def source(wanted):
    for name, kind in sorted(wanted.items()):
        if kind == "OBJECT":
            yield f"char {name}[65536];"
        elif name.endswith(("GetErrorString", "GetErrorName")):
            yield f'const char *{name}(void) {{ return "no device"; }}'
        else:
            yield f"long {name}(void) {{ return 100; }}"


def build(library, versioned, plain, out):
    version = "NVSHMEM" if library.startswith(NVSHMEM) else library
    mine = versioned.get(version, {})
    wanted = mine | (plain if library.startswith(CATCH_ALL) else {})
    code, script = os.path.join(out, "stub.c"), os.path.join(out, "stub.map")
    with open(code, "w") as f:
        f.write("\n".join(source(wanted)) + "\n")
    command = ["gcc", "-w", "-shared", "-fPIC", "-O0", "-fno-builtin", "-nostdlib",
               "-o", os.path.join(out, library), code, f"-Wl,-soname,{library}"]
    if mine:
        with open(script, "w") as f:
            f.write(f"{version} {{ global: {'; '.join(sorted(mine))}; }};\n")
        command.append(f"-Wl,--version-script={script}")
    subprocess.run(command, check=True)
    for path in (code, script):
        if os.path.exists(path):
            os.unlink(path)


def main():
    lib, out = sys.argv[1:]
    os.makedirs(out, exist_ok=True)
    paths = [os.path.join(lib, f) for f in sorted(os.listdir(lib)) if f.endswith(".so")]
    versioned, plain = symbols(paths)
    libraries = sorted(needed(paths))
    for library in libraries:
        build(library, versioned, plain, out)
    print(f"{len(libraries)} stand-in libraries in {out}")


if __name__ == "__main__":
    main()
