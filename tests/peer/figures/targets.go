package figures

import (
	"fmt"
	"slices"
)

// file is a model file that all sides run.
type file struct {
	part, label string
	bits        int // of a weight's code
	big         bool
}

// bf16 reports whether the weights are bf16.
func (f file) bf16() bool { return f.bits == 16 }

// files lists the parts of model files in the order of the report.
var files = []file{
	{"llama1b-bf16", "Llama-3.2-1B bf16", 16, true},
	{"llama1b-q8_0", "Llama-3.2-1B Q8_0", 8, true},
	{"llama1b-q4_0", "Llama-3.2-1B Q4_0", 4, true},
	{"llama1b-q4_k_m", "Llama-3.2-1B Q4_K_M", 4, true},
	{"smollm2-bf16", "SmolLM2-135M bf16", 16, false},
	{"smollm2-q4_1", "SmolLM2-135M Q4_1", 4, false},
}

// Streams is the part that measures the CPU time of the server apart from the model.
const Streams = "streams"

// Names returns the names of all parts.
func Names() []string {
	var out []string
	for _, f := range files {
		out = append(out, f.part)
	}
	return append(out, Streams)
}

// FourBits reports whether a part is a file of four bits, whose kernels on AMX cpu.favor selects.
func FourBits(part string) bool {
	return slices.ContainsFunc(files, func(f file) bool { return f.part == part && f.bits == 4 })
}

// target is a bound for a figure.
type target struct {
	text   string  // in the table
	got    float64 // 0: not measured
	bound  float64
	peer   float64 // the peer's figure, if got is a multiple of it
	most   bool    // the bound is a maximum
	form   string  // the format of got and bound
	spread string  // the range of got; "": there is one measurement
	limit  float64 // what got would be at the machine's limit; 0: unknown
}

func (t target) measured() bool { return t.got != 0 }

func (t target) met() bool { return t.measured() && (t.got >= t.bound) != t.most || t.got == t.bound }

// beyond reports whether a target that is not met cannot be met at the machine's limit either.
func (t target) beyond() bool {
	if !t.measured() || t.met() || t.limit == 0 {
		return false
	}
	most := t
	most.got = t.limit
	return !most.met()
}

// atLimit returns the value at the machine's limit as text.
func (t target) atLimit() string { return fmt.Sprintf(t.form, t.limit) }

func (t target) String() string {
	return fmt.Sprintf(t.form, t.got) + t.spread
}

func atLeast(text string, got, bound float64, form string) target {
	return target{text: text, got: got, bound: bound, form: form}
}

func atMost(text string, got, bound float64, form string) target {
	return target{text: text, got: got, bound: bound, most: true, form: form}
}

// ratio returns a/b; 0 if one was not measured.
func ratio(a, b float64) float64 {
	if a == 0 || b == 0 {
		return 0
	}
	return a / b
}

// times returns the target "at least n times a peer".
func times(n float64, whom string, mine, theirs Stat) target {
	t := atLeast(fmt.Sprintf("≥ %gx %s", n, whom), ratio(mine.Median, theirs.Median), n, "%.2fx")
	t.peer = theirs.Median
	return t
}

func ofLimit(share, bound float64, what string) target {
	return atLeast(fmt.Sprintf("≥ %.2f of the %s", bound, what), share, bound, "%.2f")
}

// faster returns the target "at least n times a peer" for a ratio measured in alternate turns.
func faster(n float64, whom string, times, mine Stat) target {
	t := atLeast(fmt.Sprintf("≥ %gx %s", n, whom), times.Median, n, "%.2fx")
	t.peer = ratio(mine.Median, times.Median)
	if times.Runs > 1 {
		t.spread = fmt.Sprintf(" (%.2f to %.2f)", times.Least, times.Most)
	}
	return t
}

// decodeTargets returns the targets of decoding at batch size 1. Codes of four bits are exact
// without AMX and with cpu.favor "decode"; AMX rounds them to a grid otherwise.
func (f file) decodeTargets(p Part, side string, amx bool) []target {
	mine, best := p.Stat(side, Decode), p.ratioToBest(side, Llama, LlamaBest)
	if !f.big {
		return []target{faster(1, "llama.cpp", best, mine)}
	}
	bound := map[int]float64{16: 0.90, 8: 0.85, 4: 0.80}[f.bits]
	if f.bits == 4 && amx && side == Vapp {
		bound = 0.65
	}
	return []target{ofLimit(p.share(side, Decode, DecodeLimit), bound, "bandwidth"), faster(1.2, "llama.cpp", best, mine)}
}

// prefillTargets returns the targets of prefill.
func (f file) prefillTargets(p Part, side, key string, amx bool) []target {
	mine, best := p.Stat(side, key), p.best(key, Llama, LlamaBest)
	switch {
	case !f.big:
		return []target{times(1, "llama.cpp", mine, best)}
	case f.bf16():
		share := ofLimit(p.share(side, key, MatrixLimit), 0.45, "matrix rate")
		if amx {
			share = ofLimit(p.share(side, key, MatrixLimit), 0.32, "tile rate")
		}
		return []target{share, times(10, "llama.cpp", mine, best), times(2, "PyTorch", mine, p.Stat(Torch, key))}
	}
	return []target{times(3.5, "llama.cpp", mine, best)}
}

// sixteenTargets returns the target of 16 streams without HTTP: a share of reading or multiplying,
// whichever takes longer.
func (f file) sixteenTargets(p Part, side string) []target {
	if !f.big {
		return []target{times(1, "llama.cpp", p.Stat(side, Sixteen), p.best(Sixteen, Llama, LlamaBest))}
	}
	return []target{ofLimit(p.share(side, Sixteen, SixteenLimit), 0.60, "limit")}
}

func (f file) serveTargets(p Part, side string) []target {
	n := 3.0
	switch {
	case !f.big:
		n = 1
	case f.bf16():
		n = 6
	}
	return []target{times(n, "llama-server", p.Stat(side, Served), p.best(Served, Llama, LlamaBest))}
}

func (f file) firstTokenTargets(p Part, side string) []target {
	t := atMost("≤ a third of llama-server's", ratio(p.Stat(side, TTFT).Median, p.Stat(Llama, TTFT).Median), 1.0/3, "%.2f of it")
	t.peer = p.Stat(Llama, TTFT).Median
	return []target{t}
}

func (f file) memoryTargets(p Part, side string) []target {
	mine := p.Stat(side, Peak).Median
	return []target{
		atMost("≤ the plan", ratio(mine, p.Stat(side, Planned).Median), 1, "%.2f of it"),
		atMost("≤ 1.05 of llama.cpp's", ratio(mine, p.Stat(Llama, Peak).Median), 1.05, "%.2f of it"),
	}
}

// startTargets returns the target of a start with the file in the page cache.
func startTargets(p Part, side string) []target {
	return []target{atMost("≤ 0.5 s", p.Stat(side, Start).Median, 0.5, "%.2f s")}
}

func streamTargets(p Part) []target {
	return []target{atMost("≤ 5 % of a step", p.Stat(Vapp, ServerShare).Median, 5, "%.1f %%")}
}
