package main

import (
	"math"
	"slices"

	"vapp.dev/engine/backend"
)

// cost is what a model asks of a machine: bytes that a decode step reads and
// operations that a token takes.
type cost struct {
	once   float64 // bytes of weights that every step reads
	stacks []stack
	perSeq float64 // bytes of pages and states that a step touches for each sequence
	prompt float64 // operations of a prompt token
	decode float64 // operations of a generated token
}

// ceiling is what the machine does at most: bytes read a second, and floating-point
// operations a second by number format.
type ceiling struct {
	Read float64 `json:"read"`
	F32  float64 `json:"f32"`
	BF16 float64 `json:"bf16"`
	Int8 float64 `json:"int8"` // of vectors; 0: they have no such product
}

// matrix is the rate of the variant that runs: GPUs, tiles and AVX-512 BF16 multiply bf16, other
// vectors f32.
func (c ceiling) matrix(choices []backend.Choice) float64 {
	if slices.ContainsFunc(choices, func(o backend.Choice) bool {
		return o.Name == "architecture" || o.Name == "variant" && (o.Value == "amx" || o.Value == "avx512bf16")
	}) {
		return c.BF16
	}
	return c.F32
}

// stack is the weights of the experts of a layer.
type stack struct {
	bytes, experts, top float64
}

// costOf counts what a step multiplies by: two operations for each weight, those of
// the head on sampled rows only, and of a mixture only what a token is routed to. A
// sequence of tokens reads the pages of those; a window's only what it sees; a state is
// read and written.
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
			s := stack{bytes, float64(w.Experts), float64(top)}
			c.stacks = append(c.stacks, s)
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

// pageBytes is what a layer of a class touches of a sequence's memory in one step.
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

// step is the bytes that a decode step of n sequences reads, if their tokens go to
// experts evenly and each by itself.
func (c cost) step(n int) float64 {
	bytes := c.once + float64(n)*c.perSeq
	for _, s := range c.stacks {
		bytes += s.bytes * (1 - math.Pow(1-s.top/s.experts, float64(n)))
	}
	return bytes
}
