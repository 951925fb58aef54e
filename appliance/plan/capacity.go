package plan

import (
	"vapp.dev/engine"
)

// Capacity is what the KV arena carries.
type Capacity struct {
	Tokens        int64   `json:"kv_tokens"`       // all pages full
	BytesPerToken int64   `json:"bytes_per_token"` // of the first class, rounding included
	SlabBytes     int64   `json:"slab_bytes"`
	Slabs         int     `json:"slabs"`
	Classes       []Class `json:"classes"`
	Lengths       []Fit   `json:"lengths"` // the last is maxModelLen
	// Concurrency is how often the tokens hold maxModelLen: what vLLM logs as
	// "Maximum concurrency".
	Concurrency float64 `json:"concurrency"`
}

// Class is a class of KV page.
type Class struct {
	Name      string `json:"name"`
	Kind      string `json:"kind"`
	Format    string `json:"format"`
	BlockSize int    `json:"block_size"` // tokens
	PageBytes int64  `json:"page_bytes"`
	Pages     int    `json:"pages"` // if it had all slabs
}

// Fit is how many sequences of a length the arena holds at steady state.
type Fit struct {
	Tokens    int `json:"tokens"`
	Sequences int `json:"sequences"`
	Running   int `json:"running"` // those that maxNumSeqs lets run at once
}

func capacityOf(o engine.Options, a *engine.Account) Capacity {
	slabs := a.KV.Slabs(o.KVBytes)
	c := Capacity{Tokens: a.KV.Tokens(slabs), SlabBytes: a.KV.SlabBytes, Slabs: slabs}
	for i, s := range a.KV.Specs {
		k := a.Reservation.Classes[i]
		c.Classes = append(c.Classes, Class{
			Name: s.Name, Kind: s.Kind.String(), Format: k.Format.String(), BlockSize: s.BlockSize,
			PageBytes: s.PageBytes, Pages: a.KV.Pages(i, slabs),
		})
	}
	if c.Tokens > 0 {
		c.BytesPerToken = (o.KVBytes + c.Tokens - 1) / c.Tokens
	}
	for _, n := range lengths(o.MaxModelLen) {
		fit := a.KV.Sequences(slabs, n)
		c.Lengths = append(c.Lengths, Fit{n, fit, min(fit, o.MaxNumSeqs)})
	}
	c.Concurrency = float64(c.Tokens) / float64(o.MaxModelLen)
	return c
}

// lengths are those worth a column, below the longest and with it.
func lengths(longest int) []int {
	steps := []int{1 << 10, 4 << 10, 8 << 10, 32 << 10, 128 << 10, 512 << 10}
	if longest <= steps[0] {
		steps = []int{64, 256}
	}
	var out []int
	for _, n := range steps {
		if n < longest {
			out = append(out, n)
		}
	}
	return append(out, longest)
}
