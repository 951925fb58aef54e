package enginebench

import (
	"math"
	"slices"

	"vapp.dev/engine/backend"
)

// cost is the work of a model: bytes that a decode step reads and operations per token.
type cost struct {
	once    float64 // weight bytes that every step reads
	experts []expertWeights
	perSeq  float64 // KV and state bytes that a step touches for each sequence
	prompt  float64 // floating-point operations of a prompt token
	decode  float64 // floating-point operations of a generated token
}

// Limits are the measured maxima of the machine: bytes read per second, and floating-point
// operations per second by number format.
type Limits struct {
	Read float64 `json:"read"`
	F32  float64 `json:"f32"`
	BF16 float64 `json:"bf16"`
	Int8 float64 `json:"int8"` // vector instructions; 0: the CPU has no int8 product
	// Of a GPU, without vapp's kernels: bytes that the driver's copies read and write, and bf16
	// operations of cuBLASLt, or why there are none.
	Copy      float64 `json:"copy,omitempty"`
	Library   float64 `json:"library,omitempty"`
	NoLibrary string  `json:"no_library,omitempty"`
}

// matrix returns the multiply rate of the variant that runs: bf16 on GPUs, AMX and AVX-512
// BF16, f32 otherwise.
func (c Limits) matrix(choices []backend.Choice) float64 {
	if slices.ContainsFunc(choices, func(o backend.Choice) bool {
		return o.Name == "architecture" || o.Name == "variant" && (o.Value == "amx" || o.Value == "avx512bf16")
	}) {
		return c.BF16
	}
	return c.F32
}

// expertWeights are the stacked weights of a layer's experts: bytes of all, how many there are
// and how many a token is routed to.
type expertWeights struct {
	bytes, experts, top float64
}

// costOf computes the cost of a model for sequences of the given length in tokens. A token
// takes two operations per weight: of experts only those it is routed to, of the head only
// where a token is sampled. A step reads the KV of each sequence (with a window, only the
// window) and reads and writes its state.
func costOf(r backend.Reservation, tokens int) cost {
	var c cost
	routed := map[backend.WeightID]int{}
	for _, o := range r.Programs[0].Ops {
		if e, ok := o.(backend.Experts); ok {
			routed[e.GateUp], routed[e.Down] = e.Top, e.Top
		}
	}
	for i, w := range r.Weights {
		if w.Use&backend.Multiply == 0 {
			continue
		}
		bytes, ops := float64(r.Packed[i].Bytes), 2*float64(w.Elems())
		if top := routed[backend.WeightID(i)]; top > 0 {
			s := expertWeights{bytes, float64(w.Experts), float64(top)}
			c.experts = append(c.experts, s)
			ops *= s.top / s.experts
		} else {
			c.once += bytes
		}
		c.decode += ops
		if w.Use&backend.Lookup == 0 && w.Group != "head" {
			c.prompt += ops
		}
	}
	for _, k := range r.Classes {
		c.perSeq += float64(k.Layers) * pageBytes(k, tokens)
	}
	return c
}

// pageBytes returns the KV or state bytes of one sequence that a layer of class k touches in a
// step.
func pageBytes(k backend.KVClass, tokens int) float64 {
	if k.State != nil {
		return 2 * float64(k.State.ConvBytes()+k.State.MatrixBytes())
	}
	if k.Window > 0 {
		tokens = min(tokens, k.Window)
	}
	key := k.KeyDim
	if key == 0 {
		key = k.HeadDim
	}
	return float64(tokens) * float64(k.Format.Bytes(int64(k.KVHeads*(key+k.HeadDim))))
}

// step returns the bytes that a decode step of n sequences reads, if the router chooses
// experts uniformly and independently for each token.
func (c cost) step(n int) float64 {
	bytes := c.once + float64(n)*c.perSeq
	for _, s := range c.experts {
		bytes += s.bytes * (1 - math.Pow(1-s.top/s.experts, float64(n)))
	}
	return bytes
}
