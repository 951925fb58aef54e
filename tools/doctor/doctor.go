// Package doctor judges the facts of a machine and a profile: what is as it should be, what is worth
// knowing, and what keeps a server from starting or running well, with the remedy.
//
// It must not gather facts, print, read a clock or do I/O: package facts does that, and equal facts
// give equal findings. Start reading at Judge.
package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"vapp.dev/appliance/plan"
	"vapp.dev/tools/doctor/facts"
)

// State is how a finding is judged.
type State string

// The states, in the order in which findings are listed.
const (
	OK      State = "ok"
	Note    State = "note"
	Problem State = "problem"
)

// Finding is one judged fact.
type Finding struct {
	State State  `json:"state"`
	Topic string `json:"topic"`
	Found string `json:"found"`
	// Do is what to do; "" where nothing has to be done.
	Do string `json:"do,omitempty"`
}

// Judge returns the findings of the facts: ok, then notes, then problems, each in the order of
// topics.
func Judge(f facts.Facts) []Finding {
	var out []Finding
	for _, topic := range []struct {
		name  string
		judge func(facts.Facts) []Finding
	}{
		{"processor", processor}, {"cores", cores}, {"memory", memory}, {"swap", swap}, {"huge pages", huge}, {"gpu", gpu}, {"cuBLASLt", library},
		{"limits", limits}, {"template sandbox", sandbox}, {"hub", reach}, {"hub cache", cache}, {"clock", clock},
		{"port", port}, {"profile", profile}, {"model", model}, {"plan", planned}, {"disk", disk}, {"packed cache", packed},
	} {
		for _, found := range topic.judge(f) {
			found.Topic = topic.name
			out = append(out, found)
		}
	}
	for _, name := range f.Unfinished {
		state := Problem
		if name == "cuBLASLt" && !f.Profile.BLAS {
			state = Note // a server waits longer, and does without
		}
		out = append(out, Finding{state, name, "not read in time", unfinished[name]})
	}
	order := []State{OK, Note, Problem}
	slices.SortStableFunc(out, func(a, b Finding) int { return cmp.Compare(slices.Index(order, a.State), slices.Index(order, b.State)) })
	return out
}

// unfinished has what to do where a part did not end in time.
var unfinished = map[string]string{
	"gpu":                  "the driver does not answer: look whether nvidia-smi does, and for Xid in the kernel's log (dmesg)",
	"cuBLASLt":             "loading it and a first product take too long here: look whether its file is on a slow disk and whether others use the device",
	"profile":              "reading the profile or its model takes too long: is it on a network disk that does not answer?",
	"hub":                  "the name service may not answer: set HF_HUB_OFFLINE=1 where there is no network",
	"template sandbox":     "this machine is overloaded, or starts processes very slowly",
	"processor and memory": "/proc or /sys does not answer",
}

// Count returns the number of findings of a state.
func Count(list []Finding, s State) int {
	n := 0
	for _, f := range list {
		if f.State == s {
			n++
		}
	}
	return n
}

func is(s State, do, format string, args ...any) []Finding {
	return []Finding{{State: s, Found: fmt.Sprintf(format, args...), Do: do}}
}

// has reports whether a part was read.
func has(f facts.Facts, part string) bool { return !slices.Contains(f.Unfinished, part) }

// here reports whether this system can serve.
func here(f facts.Facts) bool { return f.OS == "linux" }

func processor(f facts.Facts) []Finding {
	p := f.Processor
	if !has(f, "processor and memory") {
		return nil
	}
	name := cmp.Or(p.Name, "unknown processor")
	switch {
	case !here(f):
		return is(Note, "serve on Linux; vet, plan, fit and diff work here", "%s: this build for %s plans and does not serve", name, f.OS)
	case !p.Native:
		return is(Problem, "use a release for this system, or build with cgo (make build)", "%s: this binary was built without cgo: it plans and does not serve", name)
	case len(p.Variants) == 0:
		return is(Problem, "report this line", "%s: no kernel variant can run", name)
	}
	best := p.Variants[0]
	found := fmt.Sprintf("%s: variant %s", name, best)
	if p.NoAMX != "" {
		return is(Note, "allow it in the seccomp filter or the hypervisor, for faster prefill", "%s; amx is not used: %s", found, p.NoAMX)
	}
	switch {
	case best == "generic":
		return is(Note, "use a processor with AVX2 for more than small models", "%s: portable C, many times slower than avx2%s", found, better(p, best))
	case better(p, best) != "":
		found += better(p, best)
	}
	return is(OK, "", "%s", found)
}

// better says what the next better variant of the processor's lacks.
func better(p facts.Processor, best string) string {
	order := []string{"generic", "avx2", "avx512", "avx512bf16", "amx"}
	if arm := []string{"neon", "dotprod", "i8mm"}; slices.Contains(arm, best) {
		order = arm
	}
	for _, v := range order[slices.Index(order, best)+1:] {
		if lacks := p.Lacks[v]; len(lacks) > 0 {
			return fmt.Sprintf("; %s would need %s", v, strings.Join(lacks, ", "))
		}
	}
	return ""
}

func cores(f facts.Facts) []Finding {
	p := f.Processor
	if !has(f, "processor and memory") || p.Online == 0 {
		return nil
	}
	found := number(p.Online, "CPU")
	if p.Nodes > 1 {
		found += fmt.Sprintf(" on %d NUMA nodes", p.Nodes)
	}
	switch {
	case p.Quota > 0 && p.Quota < p.Online:
		return is(Note, "raise the CPU limit of the container, or set cpu.threads to the quota", "%s, and the control group allows the time of %d: threads beyond it wait", found, p.Quota)
	case p.Online == 1:
		return is(Note, "give it two or more: one computes, one answers HTTP", "%s", found)
	case p.Nodes > 1:
		return is(OK, "", "%s: threads and weights are spread over those that this process may use (cpu.numa)", found)
	}
	return is(OK, "", "%s", found)
}

func memory(f facts.Facts) []Finding {
	m := f.Memory
	if !has(f, "processor and memory") {
		return nil
	}
	if m.Total == 0 {
		return is(Problem, "give the memory to plan for with --memory, and set memory.kvCache", "the size of the memory cannot be read")
	}
	found := plan.Size(m.Total)
	if m.Free > 0 {
		found = fmt.Sprintf("%s free of %s", plan.Size(m.Free), plan.Size(m.Total))
	}
	if m.Limit == "cgroup" {
		var groups []string
		for _, g := range m.Groups {
			groups = append(groups, fmt.Sprintf("%s %s, %s used", g.Path, plan.Size(g.Limit), plan.Size(g.Used)))
		}
		found += "; limited by control groups: " + strings.Join(groups, "; ")
	}
	const little, scarce = 512 << 20, 1 << 30
	switch {
	case m.Free > 0 && m.Free < little:
		return is(Problem, "stop other programs, or raise the container's memory limit", "%s: too little for any model", found)
	case m.Free > 0 && m.Free < scarce:
		return is(Note, "stop other programs, or raise the container's memory limit, for more than the smallest models", "%s", found)
	}
	return is(OK, "", "%s", found)
}

func swap(f facts.Facts) []Finding {
	m := f.Memory
	used := m.SwapTotal - m.SwapFree
	switch {
	case !has(f, "processor and memory") || !here(f):
		return nil
	case m.SwapTotal == 0:
		return is(OK, "", "none")
	case used > m.SwapTotal/2:
		return is(Note, "free memory before a start: weights that are swapped out make every step slow", "%s of %s in use", plan.Size(used), plan.Size(m.SwapTotal))
	}
	return is(OK, "", "%s of %s in use", plan.Size(used), plan.Size(m.SwapTotal))
}

func huge(f facts.Facts) []Finding {
	h := f.Huge
	if !has(f, "processor and memory") || !here(f) {
		return nil
	}
	explicit := ""
	if h.Total > 0 {
		explicit = fmt.Sprintf("; %d explicit ones, %d free, which vapp does not use", h.Total, h.Free)
	}
	switch h.Mode {
	case "always", "madvise":
		return is(OK, "", "transparent, %s, mode %s%s", plan.Size(h.Bytes), h.Mode, explicit)
	case "never":
		return is(Note, "echo madvise >/sys/kernel/mm/transparent_hugepage/enabled, as root: steps get faster", "transparent huge pages are off%s", explicit)
	}
	return is(Note, "nothing, unless this kernel can have them: CONFIG_TRANSPARENT_HUGEPAGE", "transparent huge pages cannot be read%s", explicit)
}

func gpu(f facts.Facts) []Finding {
	g := f.GPU
	switch {
	case !has(f, "gpu"):
		return nil
	case !g.Built && g.Present && here(f):
		return is(Note, "use the build for CUDA, or make build CUDA=1", "there is a GPU of NVIDIA, and this binary was built without CUDA: it serves on the CPU")
	case !g.Built:
		return is(OK, "", "this binary was built without CUDA, and there is no GPU of NVIDIA")
	case g.Remedy != "":
		return is(Problem, g.Remedy, "%s", g.Err)
	case g.Err != "" && !g.Present:
		return is(OK, "", "no GPU of NVIDIA: served on the CPU")
	case g.Err != "":
		return is(Problem, "install NVIDIA's driver; in a container, start it with --gpus all", "%s", g.Err)
	case g.Busy != "":
		return is(Problem, "nvidia-smi -c DEFAULT changes the compute mode", "%s", g.Busy)
	}
	found := fmt.Sprintf("%s; driver for CUDA %s", strings.Join(g.Devices, ", "), g.Driver)
	if g.Loads == "" {
		return is(Note, "serve on the CPU, or on a GPU of compute capability 8.0 or newer", "%s: no kernels for it, planned only", found)
	}
	found += ", which loads " + g.Loads
	return is(OK, "", "%s", found)
}

// library judges cuBLASLt: what was found has multiplied as a server's does before it plans.
func library(f facts.Facts) []Finding {
	l := f.Library
	const own = "nothing: vapp's own kernels multiply"
	none := cmp.Or(l.Unusable, l.Absent)
	switch {
	case none != "" && f.Profile.BLAS:
		return is(Problem, "install cuBLAS of CUDA 12 or 13, or set cuda.linear to \"own\"", "%s", none)
	case l.Unusable != "":
		return is(Note, own+" until that is mended", "%s", none)
	case l.Absent != "":
		return is(Note, own+". Products of many rows may be faster with cuBLAS of CUDA 12 or 13", "%s", none)
	case l.Untried != "":
		return is(Note, "end what uses the device (nvidia-smi lists it): a server needs it too", "%s of %s was not tried: %s", l.Version, l.Path, l.Untried)
	case l.Version != "":
		return is(OK, "", "%s of %s multiplies on %s", l.Version, l.Path, l.Device)
	}
	return nil
}

func limits(f facts.Facts) []Finding {
	l := f.Limits
	if !has(f, "processor and memory") || l.Files == 0 {
		return nil
	}
	// What a server opens beyond one file for each request.
	const own = 128
	need := cmp.Or(f.Profile.Requests, 4096) + own
	found := fmt.Sprintf("open files %s, locked memory %s (none is locked)", amount(l.Files, plan.Group), amount(l.Memlock, plan.Size))
	if l.Address > 0 {
		found += ", address space " + plan.Size(l.Address)
	}
	if l.Data > 0 {
		found += ", data " + plan.Size(l.Data)
	}
	switch {
	case l.Err != "":
		return is(Problem, "ulimit -v unlimited; ulimit -d unlimited; in a unit, LimitAS=infinity and LimitDATA=infinity", "%s", l.Err)
	case l.Files > 0 && l.Files < 2*own:
		return is(Problem, "raise the hard limit (ulimit -Hn, LimitNOFILE= of the unit) to "+plan.Group(need), "%s: too few open files for a server", found)
	case l.Files > 0 && l.Files < need:
		return is(Note, "raise the hard limit (ulimit -Hn, LimitNOFILE= of the unit), or lower serve.limits.maxConcurrentRequests",
			"%s: %s requests at once need %s", found, plan.Group(need-own), plan.Group(need))
	}
	return is(OK, "", "%s", found)
}

// amount formats a limit; negative is none.
func amount(n int64, format func(int64) string) string {
	if n < 0 {
		return "unlimited"
	}
	return format(n)
}

func sandbox(f facts.Facts) []Finding {
	switch s := f.Sandbox; {
	case !has(f, "template sandbox"):
		return nil
	case s.Err != "":
		return is(Problem, "let this process start itself as a child: is /proc mounted, does a seccomp filter or a noexec mount forbid it?",
			"templates of requests cannot be rendered: %s", s.Err)
	default:
		return is(OK, "", "a template was rendered in a child process in %d ms", s.Took.Milliseconds())
	}
}

func number(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return plan.Group(int64(n)) + " " + what
}
