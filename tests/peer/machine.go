package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"vapp.dev/tests/peer/figures"
)

// wanted lists the CPU flags that the kernels of either side use.
var wanted = []string{"avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "avx_vnni", "amx_tile", "amx_bf16", "amx_int8"}

// tiles reports whether the processor has AMX.
func tiles() bool {
	return slices.Contains(strings.Fields(cpuField(read("/proc/cpuinfo"), "flags")), "amx_tile")
}

// machine describes the machine and the versions of the software.
func (b bench) machine(ctx context.Context) figures.Place {
	info := read("/proc/cpuinfo")
	flags := strings.Fields(cpuField(info, "flags"))
	has := slices.DeleteFunc(slices.Clone(wanted), func(f string) bool { return !slices.Contains(flags, f) })
	model, family, number := cpuField(info, "model name"), cpuField(info, "cpu family"), cpuField(info, "model")
	m := figures.Place{
		AMX:  slices.Contains(has, "amx_tile"),
		CPU:  fmt.Sprintf("%s (family %s, model %s)", model, family, number),
		File: figures.PageName(model, family, number),
	}
	m.Lines = []string{
		fmt.Sprintf("%d cores, %s threads on each side", runtime.NumCPU(), threads()),
		"instructions: " + strings.Join(has, ", "),
		fmt.Sprintf("memory %s, transparent huge pages %s, Linux %s", memory(read("/proc/meminfo")), strings.TrimSpace(read("/sys/kernel/mm/transparent_hugepage/enabled")), strings.TrimSpace(read("/proc/sys/kernel/osrelease"))),
		"page written " + time.Now().UTC().Format("2006-01-02 15:04 UTC"),
		version(ctx, b.vapp, "--version") + ", " + runtime.Version(),
		"llama.cpp of " + strings.TrimSpace(read(filepath.Join(b.dir, "llama.cpp", "version"))) + ", compiled natively by " + version(ctx, "cc", "--version"),
	}
	if b.torch != "" {
		m.Lines = append(m.Lines, "PyTorch "+version(ctx, b.torch, "-c", "import importlib.metadata as m; print(m.version('torch') + ', transformers ' + m.version('transformers'))"))
	}
	return m
}

func read(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return "unknown"
	}
	return string(data)
}

// cpuField returns a field of the first processor in /proc/cpuinfo.
func cpuField(info, name string) string {
	for line := range strings.Lines(info) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return "unknown"
}

// memory returns MemTotal of /proc/meminfo in GiB.
func memory(info string) string {
	var kib float64
	if _, err := fmt.Sscanf(cpuField(info, "MemTotal"), "%f kB", &kib); err != nil {
		return "unknown"
	}
	return fmt.Sprintf("%.1f GiB", kib/(1<<20))
}

// version returns the first line that a command prints.
func version(ctx context.Context, name string, args ...string) string {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return "unknown"
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimSpace(line)
}
