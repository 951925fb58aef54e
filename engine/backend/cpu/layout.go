package cpu

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"vapp.dev/engine/backend"
	"vapp.dev/kernels"
	kcpu "vapp.dev/kernels/cpu"
)

// maxThreads bounds Settings.Threads.
const maxThreads = 1024

// layout is the pure half.
type layout struct {
	variant, why string
	have         []string // the machine's variants, the best first
	forced       bool     // the variant is as set
	favor        string   // Settings.Favor
	int8         bool     // inputs are rounded to int8 for weights with integer kernels
	attention    string   // variant of the attention kernel; "": variant
	threads      int
	share        float64 // of CPU time, left to other threads
	unit         int64   // size of arenas is a multiple of it
	page         int64   // of the system
	huge         backend.Choice
	nodes        []node         // nil: threads and memory are not placed
	numa         backend.Choice // zero on a machine with one node
	group        backend.Group  // of the ranks; nil: there is one
}

func newLayout(f backend.Facts, s backend.Settings) (layout, error) {
	l := layout{variant: s.Variant, why: "as set", threads: s.Threads, share: s.HTTPShare, unit: max(f.HugeBytes, f.PageBytes, 4096), page: max(f.PageBytes, 4096), huge: hugePages(f), group: s.Group}
	have := f.Variants
	if len(have) == 0 {
		have = []string{generic}
	}
	l.have, l.forced, l.favor = have, s.Variant != "", s.Favor
	if s.Variant == "" {
		l.variant, l.why = have[0], "the best of "+strings.Join(have, ", ")
	}
	if !slices.Contains(have, l.variant) {
		why := "this machine has " + strings.Join(have, ", ")
		if l.variant == amx && f.NoAMX != "" {
			why += "; " + f.NoAMX
		}
		if of := kcpu.Architecture(l.variant); of != "" && kcpu.Architecture(have[0]) != "" && of != kcpu.Architecture(have[0]) {
			why += fmt.Sprintf("; %s is of %s, this machine is %s", l.variant, of, kcpu.Architecture(have[0]))
		}
		return layout{}, backend.Unsupported(name, "variant "+l.variant, why)
	}
	if len(kcpu.SupportedFormats(l.variant)) == 0 {
		return layout{}, backend.Unsupported(name, "variant "+l.variant, "there are no kernels for it")
	}
	if s.Activations != "" && s.Activations != backend.Int8Activations {
		return layout{}, backend.Unsupported(name, "activations "+s.Activations, "they are int8, or what the variant computes in")
	}
	l.int8 = s.Activations == backend.Int8Activations
	if s.Favor != "" && s.Favor != backend.FavorDecode && s.Favor != backend.FavorPrefill {
		return layout{}, backend.Unsupported(name, "favor "+s.Favor, "it is decode or prefill, or absent")
	}
	if s.Threads < 0 || s.Threads > maxThreads {
		return layout{}, backend.Unsupported(name, fmt.Sprintf("%d threads", s.Threads), fmt.Sprintf("0 (one for each core) to %d", maxThreads))
	}
	if !(s.HTTPShare >= 0 && s.HTTPShare < 1) {
		return layout{}, backend.Unsupported(name, fmt.Sprintf("an HTTP share of %g", s.HTTPShare), "it is at least 0 and below 1")
	}
	if l.threads == 0 {
		l.threads = min(max(1, f.Cores), maxThreads)
	}
	if s.NUMA != "" && s.NUMA != backend.NUMAOff {
		return layout{}, backend.Unsupported(name, "NUMA "+s.NUMA, `it is "off", or "" for nodes of the machine`)
	}
	l.spread(f, s.NUMA == backend.NUMAOff)
	return l, nil
}

// Choices lists the variant, what is favored if the machine has a choice, the activations, the
// threads, the CPU time left to other threads, the page size of the arenas, and on a machine
// with several NUMA nodes what is on which.
func (l layout) Choices() []backend.Choice {
	threads := "one for each core"
	share := "threads rest after a step when others were waiting for a processor"
	if l.share == 0 {
		share = "threads never rest"
	}
	out := []backend.Choice{{Name: "variant", Value: l.variant, Why: l.why}}
	if c, ok := l.favorChoice(); ok {
		out = append(out, c)
	}
	out = append(out,
		l.activations(),
		backend.Choice{Name: "threads", Value: strconv.Itoa(l.threads), Why: threads},
		backend.Choice{Name: "http share", Value: strconv.FormatFloat(l.share, 'g', -1, 64), Why: share},
		l.huge,
	)
	if l.numa.Name != "" {
		out = append(out, l.numa)
	}
	return out
}

// Packing implements backend.PackingLayout: the variant and, where memory is placed on nodes, their threads, since each
// node's memory has the panels that its threads take.
func (l layout) Packing() string {
	s := l.variant
	if l.int8 {
		s += " with int8 activations"
	}
	for _, n := range l.nodes {
		s += fmt.Sprintf(", %d threads on node %d", n.threads, n.ID)
	}
	return s
}

// hugePages returns the page size of the arenas as a choice. How many bytes the system did
// put in huge pages is known at start and logged then.
func hugePages(f backend.Facts) backend.Choice {
	c := backend.Choice{Name: "huge pages", Value: "off", Why: fmt.Sprintf("the machine has none: arenas use pages of %d KiB", max(f.PageBytes, 4096)>>10)}
	switch {
	case f.HugeBytes > 0:
		c.Value, c.Why = fmt.Sprintf("%d KiB", f.HugeBytes>>10), "transparent, requested with madvise: arenas are multiples of a huge page"
		if f.HugeBytes >= 1<<20 {
			c.Value = fmt.Sprintf("%d MiB", f.HugeBytes>>20)
		}
	case !f.Measured:
		c.Value, c.Why = "unknown", "the machine was not probed"
	}
	return c
}

// activations returns the format of inputs in products as a choice.
func (l layout) activations() backend.Choice {
	c := backend.Choice{Name: "activations", Value: "f32", Why: "what " + l.variant + " computes in"}
	switch {
	case l.int8:
		c.Value, c.Why = "int8", "as set: 32 share a scale; with weights of other kernels than +int8 and +w8a8 what "+l.variant+" computes in"
	case l.variant == amx:
		c.Value = "bf16"
		if v := l.linear(kernels.Q8_0); v != amx {
			c.Why += "; with quantized weights what " + v + " does"
		}
	case l.variant == avx512bf16:
		c.Value, c.Why = "bf16", c.Why+"; 15 bits, 32 to a scale, with weights whose blocks hold integers"
	case l.variant == i8mm:
		c.Value, c.Why = "bf16", c.Why+" with weights in bf16; 15 bits, 32 to a scale, with weights whose blocks hold integers; f32 with others"
	case l.variant == dotprod:
		c.Why += "; 15 bits, 32 to a scale, with weights whose blocks hold integers"
	}
	return c
}

// KVFormats returns the formats that attention reads: half precision with the longer
// mantissa, then with the wider range, then single precision, then 8-bit floats.
func (l layout) KVFormats() []kernels.Format {
	return []kernels.Format{kernels.F16, kernels.BF16, kernels.F32, kernels.F8E4M3, kernels.F8E5M2}
}

// The smallest results of Chunk: enough rows to amortize unpacking a weight, and on tiles two
// times the rows that read weights once, so that a step of 512 is one product.
const (
	chunk      = 384
	tilesChunk = 2 * kcpu.TilesRows
)

// Chunk limits the intermediate values of a gated MLP to rows that stay in a cache. On tiles it
// is whole times the rows that read weights once.
func (l layout) Chunk(tokens int) int {
	least, unit := chunk, backend.ValueAlign
	if l.variant == amx {
		least, unit = tilesChunk, kcpu.TilesRows
	}
	if tokens <= least {
		return 0
	}
	each := (tokens + backend.MaxChunks - 1) / backend.MaxChunks
	return max(least, (each+unit-1)/unit*unit)
}

// Round returns n rounded up to whole huge pages, or pages if those are off.
func (l layout) Round(n int64) int64 { return (n + l.unit - 1) / l.unit * l.unit }

// kernels returns the variant of an op's kernel.
func (l layout) kernels(op kcpu.Op) string {
	if l.attention != "" && (op == kcpu.OpAttention || op == kcpu.OpAttentionJoin || op == kcpu.OpAttentionPack) {
		return l.attention
	}
	return l.variant
}

func align(n int64) int64 { return (n + 63) / 64 * 64 }
