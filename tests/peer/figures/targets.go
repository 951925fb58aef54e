package figures

import "fmt"

// file is a model file that all sides run.
type file struct {
	part, label string
	bf16, big   bool
}

// files lists the parts of model files in the order of the report.
var files = []file{
	{"llama1b-bf16", "Llama-3.2-1B bf16", true, true},
	{"llama1b-q8_0", "Llama-3.2-1B Q8_0", false, true},
	{"llama1b-q4_0", "Llama-3.2-1B Q4_0", false, true},
	{"llama1b-q4_k_m", "Llama-3.2-1B Q4_K_M", false, true},
	{"smollm2-bf16", "SmolLM2-135M bf16", true, false},
	{"smollm2-q4_1", "SmolLM2-135M Q4_1", false, false},
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

// target is a bound for a figure.
type target struct {
	text   string  // in the table
	got    float64 // 0: not measured
	bound  float64
	peer   float64 // the peer's figure, if got is a multiple of it
	most   bool    // the bound is a maximum
	form   string  // the format of got and bound
	spread string  // the range of got; "": there is one measurement
}

func (t target) measured() bool { return t.got != 0 }

func (t target) met() bool { return t.measured() && (t.got >= t.bound) != t.most || t.got == t.bound }

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

// decodeTargets returns the targets of decoding at batch size 1.
func (f file) decodeTargets(p Part, side string) []target {
	mine, best := p.Stat(side, Decode), p.ratioToBest(side, Llama, LlamaBest)
	share := p.share(side, Decode, DecodeLimit)
	switch {
	case f.big && f.bf16:
		peers := p.ratioToBest(side, Llama, LlamaBest, Torch)
		return []target{ofLimit(share, 0.90, "bandwidth"), faster(1.2, "llama.cpp", p.RatioTo(side, Llama), mine), faster(1.1, "the best peer", peers, mine)}
	case f.big:
		return []target{ofLimit(share, 0.85, "bandwidth"), faster(1.3, "llama.cpp", best, mine)}
	case f.bf16:
		return []target{faster(1.5, "llama.cpp", best, mine)}
	default:
		return []target{faster(1.3, "llama.cpp", best, mine)}
	}
}

// prefillTargets returns the targets of prefill, which only the large model has.
func (f file) prefillTargets(p Part, side, key string) []target {
	mine, best := p.Stat(side, key), p.best(key, Llama, LlamaBest)
	switch {
	case f.big && f.bf16:
		return []target{
			ofLimit(p.share(side, key, MatrixLimit), 0.45, "matrix rate"), times(10, "llama.cpp", mine, best),
			times(2, "PyTorch", mine, p.Stat(Torch, key)),
		}
	case f.big:
		return []target{times(3.5, "llama.cpp", mine, best)}
	}
	return nil
}

func (f file) serveTargets(p Part, side string) []target {
	if !f.big {
		return nil
	}
	n := 3.0
	if f.bf16 {
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

func streamTargets(p Part) []target {
	return []target{atMost("≤ 5 % of a step", p.Stat(Vapp, ServerShare).Median, 5, "%.1f %%")}
}
