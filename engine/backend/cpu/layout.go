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
	int8         bool   // x is rounded for weights that are multiplied in integers
	attention    string // whose attention runs; "": the variant's
	threads      int
	share        float64 // of the time, left to others
	unit         int64   // arenas are multiples of it
	huge         backend.Choice
}

func newLayout(f backend.Facts, s backend.Settings) (layout, error) {
	l := layout{variant: s.Variant, why: "as set", threads: s.Threads, share: s.HTTPShare, unit: max(f.HugeBytes, f.PageBytes, 4096), huge: hugePages(f)}
	have := f.Variants
	if len(have) == 0 {
		have = []string{generic}
	}
	if s.Variant == "" {
		l.variant, l.why = have[0], "the best of "+strings.Join(have, ", ")
	}
	if !slices.Contains(have, l.variant) {
		why := "this machine has " + strings.Join(have, ", ")
		if l.variant == amx && f.NoAMX != "" {
			why += "; " + f.NoAMX
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
	if s.Threads < 0 || s.Threads > maxThreads {
		return layout{}, backend.Unsupported(name, fmt.Sprintf("%d threads", s.Threads), fmt.Sprintf("0 (one for each core) to %d", maxThreads))
	}
	if !(s.HTTPShare >= 0 && s.HTTPShare < 1) {
		return layout{}, backend.Unsupported(name, fmt.Sprintf("an HTTP share of %g", s.HTTPShare), "it is at least 0 and below 1")
	}
	if l.threads == 0 {
		l.threads = min(max(1, f.Cores), maxThreads)
	}
	return l, nil
}

// Choices names the variant, the threads and what they leave to others, and the pages that arenas lie in.
func (l layout) Choices() []backend.Choice {
	threads := "one for each core"
	share := "threads rest after a step when others were waiting for a processor"
	if l.share == 0 {
		share = "threads never rest"
	}
	return []backend.Choice{
		{Name: "variant", Value: l.variant, Why: l.why},
		l.activations(),
		{Name: "threads", Value: strconv.Itoa(l.threads), Why: threads},
		{Name: "http share", Value: strconv.FormatFloat(l.share, 'g', -1, 64), Why: share},
		l.huge,
	}
}

// hugePages says what arenas lie in. How many of their bytes the system did find huge pages
// for is known at start, and logged then.
func hugePages(f backend.Facts) backend.Choice {
	c := backend.Choice{Name: "huge pages", Value: "off", Why: fmt.Sprintf("the machine has none: arenas lie in pages of %d KiB", max(f.PageBytes, 4096)>>10)}
	switch {
	case f.HugeBytes > 0:
		c.Value, c.Why = fmt.Sprintf("%d KiB", f.HugeBytes>>10), "transparent, asked for by madvise: arenas are whole ones"
		if f.HugeBytes >= 1<<20 {
			c.Value = fmt.Sprintf("%d MiB", f.HugeBytes>>20)
		}
	case !f.Measured:
		c.Value, c.Why = "unknown", "the machine was not looked at"
	}
	return c
}

// activations is what x is while it is multiplied.
func (l layout) activations() backend.Choice {
	c := backend.Choice{Name: "activations", Value: "f32", Why: "what " + l.variant + " computes in"}
	switch {
	case l.int8:
		c.Value, c.Why = "int8", "as set: 32 share a scale; with weights of other kernels than +int8 and +w8a8 what "+l.variant+" computes in"
	case l.variant == amx:
		c.Value = "bf16"
	case l.variant == avx512bf16:
		c.Value, c.Why = "bf16", c.Why+"; 15 bits, 32 to a scale, with weights whose blocks hold integers"
	}
	return c
}

// linear is the variant of Linear that multiplies weights stored as f.
func (l layout) linear(f kernels.Format) string {
	if v, ok := kcpu.Int8(l.variant, f); ok && l.int8 {
		return v
	}
	return l.variant
}

// KVFormats are all that attention reads: half precision with the longer
// mantissa, then with the wider range, then single precision, then 8-bit floats.
func (l layout) KVFormats() []kernels.Format {
	return []kernels.Format{kernels.F16, kernels.BF16, kernels.F32, kernels.F8E4M3, kernels.F8E5M2}
}

// chunk is the least that Chunk gives: rows enough that a weight is unpacked for many.
const chunk = 384

// Chunk keeps what lies between the products of a gated MLP to rows that stay in a cache.
func (l layout) Chunk(tokens int) int {
	if tokens <= chunk {
		return 0
	}
	each := (tokens + backend.MaxChunks - 1) / backend.MaxChunks
	return max(chunk, (each+backend.ValueAlign-1)/backend.ValueAlign*backend.ValueAlign)
}

// Round is up to whole huge pages, or pages where those are off.
func (l layout) Round(n int64) int64 { return (n + l.unit - 1) / l.unit * l.unit }

// kernels is the variant that an op is taken from.
func (l layout) kernels(op kcpu.Op) string {
	if l.attention != "" && (op == kcpu.OpAttention || op == kcpu.OpAttentionJoin) {
		return l.attention
	}
	return l.variant
}

func align(n int64) int64 { return (n + 63) / 64 * 64 }
