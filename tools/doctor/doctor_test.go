package doctor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"vapp.dev/internal/goldentest"
	"vapp.dev/tools/doctor/facts"
)

const gib = 1 << 30

var now = time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)

// healthy returns the facts of a machine and a profile without notes and problems.
func healthy() facts.Facts {
	return facts.Facts{
		OS: "linux", Arch: "amd64",
		Processor: facts.Processor{
			Name: "EPYC", Online: 16, Nodes: 2, Native: true, Variants: []string{"avx512", "avx2", "generic"},
			Lacks: map[string][]string{"avx512bf16": {"AVX512_BF16"}, "amx": {"AVX512_BF16", "AMX_TILE"}},
		},
		Memory:  facts.Memory{Total: 64 * gib, Free: 60 * gib, Limit: "system"},
		Huge:    facts.Huge{Mode: "madvise", Bytes: 2 << 20},
		GPU:     facts.GPU{Built: true, Present: true, Devices: []string{"NVIDIA H100"}, Driver: "13.0", Loads: "machine code of sm_90a"},
		Library: facts.Library{Version: "13.0.2", Path: "libcublasLt.so.13", Device: "device 0, NVIDIA H100"},
		Limits:  facts.Limits{Files: 1 << 20, Memlock: -1, Address: -1, Data: -1},
		Hub:     facts.Hub{Endpoint: "https://hub", Token: true, Took: 20 * time.Millisecond, Cache: "/cache", Free: 100 * gib, Writable: true},
		Clock:   facts.Clock{Now: now, Built: now.AddDate(0, -1, 0), Hub: now, Model: now.AddDate(0, -2, 0)},
		Port:    facts.Port{Address: "0.0.0.0:8000", Number: 8000},
		Disk:    facts.Disk{File: "/m/model.gguf", Bytes: 8 * gib, Rate: 2 * gib, Read: 64 << 20, Packed: "/m", PackedNeeds: 8 * gib, PackedFree: 90 * gib, PackedWritable: true},
		Sandbox: facts.Sandbox{Took: 20 * time.Millisecond},
		Profile: facts.Profile{Path: "p.cue", Name: "p", Source: "org/m", Where: "checkpoint", Needs: 20 * gib, Budget: 64 * gib, Carry: "4 of 8,192 tokens at once", On: "cpu", Requests: 4096},
	}
}

// worse are changes of healthy facts, with the topic that they concern and its state.
var worse = []struct {
	name   string
	topic  string
	state  State
	change func(*facts.Facts)
}{
	{"not Linux", "processor", Note, func(f *facts.Facts) { f.OS = "darwin" }},
	{"no C kernels", "processor", Problem, func(f *facts.Facts) { f.Processor.Native = false }},
	{"no variant", "processor", Problem, func(f *facts.Facts) { f.Processor.Variants = nil }},
	{"old processor", "processor", Note, func(f *facts.Facts) {
		f.Processor.Variants, f.Processor.Lacks = []string{"generic"}, map[string][]string{"avx2": {"AVX2", "FMA"}}
	}},
	{"AMX refused", "processor", Note, func(f *facts.Facts) { f.Processor.NoAMX = "the system refuses the tile registers of AMX" }},
	{"CPU quota", "cores", Note, func(f *facts.Facts) { f.Processor.Quota = 2 }},
	{"one CPU", "cores", Note, func(f *facts.Facts) { f.Processor.Online = 1 }},
	{"unknown memory", "memory", Problem, func(f *facts.Facts) { f.Memory = facts.Memory{} }},
	{"no memory", "memory", Problem, func(f *facts.Facts) {
		f.Memory = facts.Memory{Total: gib, Free: 100 << 20, Limit: "cgroup", Groups: []facts.Group{{Path: "/pod/c", Limit: gib, Used: 900 << 20}, {Path: "/pod", Limit: 2 * gib, Used: gib}}}
	}},
	{"little memory", "memory", Note, func(f *facts.Facts) { f.Memory.Free = 900 << 20 }},
	{"swapped", "swap", Note, func(f *facts.Facts) { f.Memory.SwapTotal, f.Memory.SwapFree = 4*gib, gib }},
	{"no huge pages", "huge pages", Note, func(f *facts.Facts) { f.Huge = facts.Huge{Mode: "never", Total: 8, Free: 3} }},
	{"unknown huge pages", "huge pages", Note, func(f *facts.Facts) { f.Huge = facts.Huge{} }},
	{"no CUDA", "gpu", Note, func(f *facts.Facts) { f.GPU = facts.GPU{Present: true} }},
	{"no driver", "gpu", Problem, func(f *facts.Facts) {
		f.GPU = facts.GPU{Built: true, Present: true, Err: "no CUDA driver on this machine"}
	}},
	{"old driver", "gpu", Problem, func(f *facts.Facts) {
		f.GPU = facts.GPU{Built: true, Present: true, Remedy: "update NVIDIA's driver", Err: "the CUDA driver is for CUDA 11.8 and the kernels need 12.0, driver 525"}
	}},
	{"old GPU", "gpu", Note, func(f *facts.Facts) {
		f.GPU = facts.GPU{Built: true, Present: true, Devices: []string{"Tesla V100"}, Driver: "12.4"}
	}},
	{"GPU in use", "gpu", Problem, func(f *facts.Facts) { f.GPU.Busy = "device 0, NVIDIA H100: busy" }},
	{"no cuBLASLt", "cuBLASLt", Note, func(f *facts.Facts) { f.Library = facts.Library{Absent: "no cuBLASLt"} }},
	{"no cuBLASLt for the profile", "cuBLASLt", Problem, func(f *facts.Facts) { f.Library, f.Profile.BLAS = facts.Library{Absent: "no cuBLASLt"}, true }},
	{"cuBLASLt that multiplies wrongly", "cuBLASLt", Note, func(f *facts.Facts) {
		f.Library.Version, f.Library.Unusable = "", "device 0, NVIDIA H100: cuBLASLt 13.0.2 multiplies wrongly"
	}},
	{"half a cuBLASLt for the profile", "cuBLASLt", Problem, func(f *facts.Facts) {
		f.Library, f.Profile.BLAS = facts.Library{Unusable: "cuBLASLt cannot be used (libcublasLt.so.13 is not whole)"}, true
	}},
	{"full GPU", "cuBLASLt", Note, func(f *facts.Facts) { f.Library.Untried = "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY" }},
	{"slow cuBLASLt", "cuBLASLt", Note, func(f *facts.Facts) { f.Unfinished, f.Library = []string{"cuBLASLt"}, facts.Library{} }},
	{"slow cuBLASLt for the profile", "cuBLASLt", Problem, func(f *facts.Facts) {
		f.Unfinished, f.Library, f.Profile.BLAS = []string{"cuBLASLt"}, facts.Library{}, true
	}},
	{"address space", "limits", Problem, func(f *facts.Facts) {
		f.Limits.Address, f.Limits.Err = gib, "memory: limited to 1 GiB of address space"
	}},
	{"few files", "limits", Problem, func(f *facts.Facts) { f.Limits.Files = 64 }},
	{"not enough files", "limits", Note, func(f *facts.Facts) { f.Limits.Files = 1024 }},
	{"no sandbox", "template sandbox", Problem, func(f *facts.Facts) { f.Sandbox.Err = "fork/exec: operation not permitted" }},
	{"offline", "hub", Note, func(f *facts.Facts) { f.Hub.Offline = true }},
	{"no network", "hub", Note, func(f *facts.Facts) { f.Hub.Err, f.Clock.Hub = "no such host", time.Time{} }},
	{"no address of a hub", "hub", Problem, func(f *facts.Facts) { f.Hub.Endpoint = "garbage" }},
	{"no cache", "hub cache", Note, func(f *facts.Facts) { f.Hub.Cache = "" }},
	{"read-only cache", "hub cache", Note, func(f *facts.Facts) { f.Hub.Writable = false }},
	{"read-only cache to fill", "hub cache", Problem, func(f *facts.Facts) { f.Hub.Writable, f.Profile.Fetch = false, true }},
	{"full disk", "hub cache", Note, func(f *facts.Facts) { f.Hub.Free = gib }},
	{"full disk to download to", "hub cache", Problem, func(f *facts.Facts) { f.Hub.Free, f.Profile.Fetch = gib, true }},
	{"clock behind the hub", "clock", Problem, func(f *facts.Facts) { f.Clock.Hub = now.Add(3 * time.Hour) }},
	{"clock ahead of the hub", "clock", Problem, func(f *facts.Facts) { f.Clock.Hub = now.Add(-20 * time.Minute) }},
	{"clock of 1970", "clock", Problem, func(f *facts.Facts) { f.Clock.Hub, f.Clock.Now = time.Time{}, time.Unix(1000, 0) }},
	{"model of the future", "clock", Note, func(f *facts.Facts) { f.Clock.Model = now.AddDate(1, 0, 0) }},
	{"port in use", "port", Problem, func(f *facts.Facts) { f.Port.Used, f.Port.Holder = true, "python3 (process 12)" }},
	{"port in use by another user", "port", Problem, func(f *facts.Facts) { f.Port.Used = true }},
	{"port in use, no profile", "port", Note, func(f *facts.Facts) { f.Port.Used, f.Profile = true, facts.Profile{} }},
	{"low port", "port", Problem, func(f *facts.Facts) { f.Port.Err = "permission denied" }},
	{"invalid profile", "profile", Problem, func(f *facts.Facts) {
		f.Profile = facts.Profile{Path: "p.cue", Err: "p.cue:5:9: model.sauce: unknown field"}
	}},
	{"does not fit", "profile", Problem, func(f *facts.Facts) {
		f.Profile = facts.Profile{Path: "p.cue", NoFit: true, Err: "p.cue:5:2: memory: does not fit: 4.00 GiB missing"}
	}},
	{"to download", "model", Note, func(f *facts.Facts) { f.Profile.Fetch = true }},
	{"to download, offline", "model", Problem, func(f *facts.Facts) { f.Profile.Fetch, f.Hub.Offline = true, true }},
	{"to download, no network", "model", Problem, func(f *facts.Facts) { f.Profile.Fetch, f.Hub.Err = true, "no such host" }},
	{"unknown before the download", "plan", Note, func(f *facts.Facts) { f.Profile.Fetch, f.Profile.Where = true, facts.FromHub }},
	{"no weights", "model", Note, func(f *facts.Facts) { f.Profile.Where = "catalogue" }},
	{"cannot start", "plan", Problem, func(f *facts.Facts) {
		f.Profile.Start = "memory: the plan takes 20.00 GiB but only 4.00 GiB is available now"
	}},
	{"unreadable model", "disk", Problem, func(f *facts.Facts) { f.Disk.Err = "input/output error" }},
	{"slow disk", "disk", Note, func(f *facts.Facts) { f.Disk.Rate = 20 << 20 }},
	{"read-only packed cache", "packed cache", Note, func(f *facts.Facts) { f.Disk.PackedWritable = false }},
	{"full packed cache", "packed cache", Note, func(f *facts.Facts) { f.Disk.PackedFree = gib }},
	{"hanging driver", "gpu", Problem, func(f *facts.Facts) { f.Unfinished = []string{"gpu"} }},
	{"hanging hub", "hub", Problem, func(f *facts.Facts) { f.Unfinished = []string{"hub"} }},
	{"hanging disk", "profile", Problem, func(f *facts.Facts) {
		f.Unfinished, f.Profile, f.Port, f.Disk = []string{"profile"}, facts.Profile{Path: "p.cue"}, facts.Port{}, facts.Disk{}
	}},
	{"overloaded", "template sandbox", Problem, func(f *facts.Facts) { f.Unfinished = []string{"template sandbox"} }},
	{"hanging /proc", "processor and memory", Problem, func(f *facts.Facts) { f.Unfinished = []string{"processor and memory"} }},
}

// TestJudge compares the findings of healthy facts and of each that is worse with the golden. Every
// note and problem must have a remedy.
func TestJudge(t *testing.T) {
	var b strings.Builder
	b.WriteString("# healthy\n")
	for _, f := range Judge(healthy()) {
		if f.State != OK || f.Do != "" {
			t.Errorf("healthy facts: %+v", f)
		}
		fmt.Fprintf(&b, "%s  %s: %s\n", f.State, f.Topic, f.Found)
	}
	for _, c := range worse {
		f := healthy()
		c.change(&f)
		fmt.Fprintf(&b, "\n# %s\n", c.name)
		concerned := false
		for _, found := range Judge(f) {
			if found.State == OK {
				continue
			}
			concerned = concerned || found.Topic == c.topic && found.State == c.state
			if found.Do == "" || strings.ContainsAny(found.Found+found.Do, "\n") {
				t.Errorf("%s: no remedy, or more than a line: %+v", c.name, found)
			}
			fmt.Fprintf(&b, "%s  %s: %s\n  → %s\n", found.State, found.Topic, found.Found, found.Do)
		}
		if !concerned {
			t.Errorf("%s: no %s about %s: %+v", c.name, c.state, c.topic, Judge(f))
		}
	}
	goldentest.Compare(t, "testdata/findings.txt", b.String())
}

// TestOrder checks that problems come last, and that the bare machine of a planner has no problem.
func TestOrder(t *testing.T) {
	f := healthy()
	f.Port.Used, f.Processor.Online = true, 1
	list := Judge(f)
	if n := len(list); list[n-1].State != Problem || list[n-2].State != Note || list[0].State != OK || Count(list, Problem) != 1 {
		t.Errorf("%+v", list)
	}
	f = facts.Facts{OS: "windows", Processor: facts.Processor{Online: 4}, Memory: facts.Memory{Total: gib, Limit: "system"},
		Hub: facts.Hub{Endpoint: "https://hub", Cache: "c", Free: -1, Writable: true}, Clock: facts.Clock{Now: now}}
	if list := Judge(f); Count(list, Problem) > 0 {
		t.Errorf("on Windows: %+v", list)
	}
}
