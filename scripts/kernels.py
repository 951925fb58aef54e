#!/usr/bin/env python3
"""What scripts/kernels.sh does with files: NVRTC, and archives.

  kernels.py compile WHEELS ARCH FILE.cu OUT [OPTION...]   machine code of sm_ARCH in OUT.cubin, PTX in OUT.ptx
  kernels.py pack OUT.zip NAME=FILE...                     an archive with equal bytes for equal files

WHEELS is the folder nvidia of the installed wheels. compile runs in the folder of the kernels, so that no path of
the machine gets into the code, and writes what NVRTC and ptxas say to standard error.
"""
import ctypes, os, re, sys, zipfile


def compile(wheels, arch, source, out, *options):
    nvrtc = ctypes.CDLL(os.path.join(wheels, "cuda_nvrtc/lib/libnvrtc.so.12"))
    program, size = ctypes.c_void_p(), ctypes.c_size_t()

    def text(what):  # two calls: its size, its bytes
        if getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)) or size.value == 0:
            return b""
        b = ctypes.create_string_buffer(size.value)
        return b.raw if getattr(nvrtc, f"nvrtcGet{what}")(program, b) == 0 else b""

    with open(source, "rb") as f:
        status = nvrtc.nvrtcCreateProgram(ctypes.byref(program), f.read(), source.encode(), 0, None, None)
    if status == 0:
        folders = ["nvrtc", *(os.path.join(wheels, w, "include") for w in ("cuda_runtime", "cuda_cccl"))]
        # Lambdas with parameters `auto` have no place for __device__: every function is one.
        every = [f"-arch=sm_{arch}", "-default-device", "-I.", *("-I" + d for d in folders), *options]
        status = nvrtc.nvrtcCompileProgram(program, len(every), (ctypes.c_char_p * len(every))(*(o.encode() for o in every)))
        log = text("ProgramLog").rstrip(b"\0").decode()
        sys.stderr.write(re.sub(r"(?m)^ptxas +\. ", "", log))  # as ptxas itself writes these lines
    code, ptx = text("CUBIN"), text("PTX")
    if status != 0 or not code or not ptx:
        nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
        sys.exit(f"{source}: {nvrtc.nvrtcGetErrorString(status).decode() if status else 'no machine code'}")
    for name, b in ((".ptx", ptx), (".cubin", code)):
        with open(out + name + ".new", "wb") as f:
            f.write(b)
        os.rename(out + name + ".new", out + name)


def pack(out, *files):
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
        for f in files:
            name, path = f.split("=", 1)
            with open(path, "rb") as b:
                z.writestr(zipfile.ZipInfo(name), b.read(), zipfile.ZIP_DEFLATED, 9)


{"compile": compile, "pack": pack}[sys.argv[1]](*sys.argv[2:])
