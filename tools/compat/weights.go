package compat

import "math/bits"

// part is a category of resident memory.
type part int

const (
	resident part = iota // parameters of the language model
	tower                // vision
	drafter              // the MTP head
	tables               // cos/sin tables
	scalars              // attention scales, workspaces
	parts
)

// rank is one GPU's share of a model during loading: the tensors in the order in which the release
// allocates them.
type rank struct {
	*shape
	rel      Release
	dtype    int64 // bytes per element of the model's dtype
	tp       int64
	first    int64 // first layer of this pipeline stage
	last     int64
	sms      int64
	marlin   bool // fp8 weights are dequantized in the kernel
	online   bool // weights are converted to fp8 at load
	unsplit  bool // the matrix is whole on every rank
	a        allocator
	part     part
	bytes    [parts]int64 // without the allocator's rounding
	built    map[rotary]bool
	repacked []repacked // fp8 weights of the checkpoint, for Marlin
	experts4 [][]*block // mxfp4 experts by layer
	pending  []pending  // conversions to fp8, in order of creation
	layer    int64      // current layer
	count    int
	err      error
}

// loaded has the resident bytes of a rank after loading.
type loaded struct {
	total   int64 // the figure of "Model loading took"
	bytes   [parts]int64
	target  int64 // total before the drafter
	tensors int
}

func (w *rank) sum() int64 {
	var n int64
	for _, b := range w.bytes {
		n += b
	}
	return n
}

// tensor allocates a tensor of the given element size and shape.
func (w *rank) tensor(size int64, dims ...int64) *block {
	n := size
	for _, d := range dims {
		hi, lo := bits.Mul64(uint64(n), uint64(d))
		if hi != 0 || lo > maxTensor {
			w.fail("a tensor of %v is larger than %d TiB", dims, int64(maxTensor)>>40)
			return &block{}
		}
		n = int64(lo)
	}
	w.count++
	if w.count > maxTensors || w.sum() > maxResident {
		w.fail("the model has more than %d tensors or %d TiB", maxTensors, int64(maxResident)>>40)
		return &block{}
	}
	w.bytes[w.part] += n
	return w.a.alloc(n)
}

func (w *rank) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fault("config", format, args...)
	}
}

// param allocates a tensor of the model's dtype.
func (w *rank) param(dims ...int64) *block { return w.tensor(w.dtype, dims...) }

// norms allocates n vectors of a width.
func (w *rank) norms(n int, width int64) {
	for range n {
		w.param(width)
	}
}

// as counts the tensors that f allocates as part p.
func (w *rank) as(p part, f func()) {
	was := w.part
	w.part = p
	f()
	w.part = was
}

// scales allocates the scalars of an attention layer: 4 in vllm-0.7 and vllm-0.33, 7 between them.
func (w *rank) scales() {
	n := 7
	if w.rel == V07 || w.rel == V033 {
		n = 4
	}
	w.as(scalars, func() {
		for range n {
			w.tensor(4, 1)
		}
	})
}

// rotaryTable allocates the cos/sin table of a layer kind once. It is computed in float32, with
// temporaries that are freed.
func (w *rank) rotaryTable(k layerKind) {
	r := w.rope[k]
	if w.built[r] || r.dims == 0 {
		return
	}
	w.built[r] = true
	half := r.dims / 2
	inverse, t := w.a.alloc(half*4), w.a.alloc(r.positions*4)
	angles := w.a.alloc(r.positions * half * 4)
	cos, sin := w.a.alloc(r.positions*half*4), w.a.alloc(r.positions*half*4)
	w.as(tables, func() {
		if r.float32 {
			w.tensor(4, r.positions, r.dims)
			w.a.release(angles, cos, sin, inverse, t)
			return
		}
		table := w.a.alloc(r.positions * r.dims * 4)
		w.a.release(angles, cos, sin, inverse, t)
		w.tensor(w.dtype, r.positions, r.dims)
		w.a.release(table)
	})
}

// share divides by the tensor parallel size; check has ensured divisibility.
func (w *rank) share(n int64) int64 { return n / w.tp }

// kv returns the key/value heads per GPU, at least 1.
func (w *rank) kv(n int64) int64 { return max(1, n/w.tp) }

func (w *rank) vocabRows() int64 { return w.share(roundUp(w.vocab, 64)) }
