package compat

import "vapp.dev/engine/checkpoint"

// Rebuild is what the ideal allocator stores of K and V in Gemma 4's full
// layers, where K is a function of V: both come from one projection, and K is
// scaled and a quarter of it rotated.
type Rebuild int

// What is stored.
const (
	KeepKV     Rebuild = iota // K and V
	KeepTurned                // V and the rotated quarter of K
	KeepV                     // V alone
)

// Ideal is the allocator of memory-planning section 9: each layer kind in a
// pool of its own, sized exactly, without padding, rounding or a null block.
// What it cannot do is reuse a prefix's states or windows without paying for
// them.
type Ideal struct {
	Config         checkpoint.Config
	TensorParallel int // 0: 1
	Speculative    int // tokens of the model's own MTP head; its layer has KV too
	ElementBytes   int // of K and V, 0: 2
	Rebuild        Rebuild
	// StateCopies of the recurrent state a request, 0: 1 + Speculative; 1 where
	// rejected drafts are replayed.
	StateCopies int
}

// IdealSequences is how many requests of a length fit into the KV bytes of one
// GPU.
func IdealSequences(c checkpoint.Config, tp, spec int, kvBytes int64, length int) (float64, error) {
	return Ideal{Config: c, TensorParallel: tp, Speculative: spec}.Sequences(kvBytes, length)
}

// Sequences is how many requests of a length fit into the KV bytes of one GPU.
func (i Ideal) Sequences(kvBytes int64, length int) (float64, error) {
	layers, err := i.layers()
	if err != nil {
		return 0, err
	}
	if length < 1 || length > maxLength || kvBytes < 0 {
		return 0, fault("maxModelLen", "%d tokens in %d bytes", length, kvBytes)
	}
	var need float64
	for _, l := range layers {
		need += float64(i.state(l))
		n := int64(length)
		if l.kind == sliding {
			n = min(n, l.window)
		}
		need += float64(n) * float64(l.token)
	}
	return float64(kvBytes) / need, nil
}

// Beside is how many tokens are left for full attention beside the states of a
// number of running requests, negative when the states alone do not fit.
func (i Ideal) Beside(kvBytes int64, requests int) (int64, error) {
	layers, err := i.layers()
	if err != nil {
		return 0, err
	}
	var token, state int64
	for _, l := range layers {
		state += i.state(l)
		if l.kind == full {
			token += l.token
		}
	}
	if requests < 0 || requests > maxBatch || token == 0 || state > maxPage {
		return 0, fault("scheduler.maxNumSeqs", "%d requests of %d B of states", requests, state)
	}
	return (kvBytes - int64(requests)*state) / token, nil
}

// FullTokenBytes is what a token takes in the full layers of one GPU.
func (i Ideal) FullTokenBytes() (int64, error) {
	layers, err := i.layers()
	var n int64
	for _, l := range layers {
		if l.kind == full {
			n += l.token
		}
	}
	return n, err
}

func (i Ideal) state(l kvLayer) int64 {
	copies := 1 + l.speculated
	if i.StateCopies > 0 {
		copies = int64(i.StateCopies)
	}
	return l.conv + copies*l.ssm
}

func (i Ideal) layers() ([]kvLayer, error) {
	s, err := readShape(i.Config)
	if err != nil {
		return nil, err
	}
	elem := int64(2)
	if i.ElementBytes > 0 {
		elem = int64(i.ElementBytes)
	}
	if i.TensorParallel < 0 || i.TensorParallel > maxRanks || i.Speculative < 0 || i.Speculative > 256 || elem > 4 || i.StateCopies < 0 || i.StateCopies > 257 {
		return nil, fault("parallel.tensor", "tensor parallel %d, speculative %d, %d B elements, %d state copies: out of bounds", i.TensorParallel, i.Speculative, elem, i.StateCopies)
	}
	in := &run{shape: s, dtype: 2, elem: elem, r: Request{TensorParallel: max(1, i.TensorParallel), PipelineParallel: 1}}
	if i.Speculative > 0 {
		in.r.Speculative = Speculative{Method: "mtp", Tokens: i.Speculative}
	}
	if err := in.checkRanks(); err != nil {
		return nil, err
	}
	if i.Rebuild != KeepKV && !s.kFromV {
		return nil, fault("memory.kvRebuild", "K is no function of V in this model")
	}
	return in.kvLayers(i.Rebuild), nil
}

// stored is how many numbers of K and V a head of full attention stores.
func (s *shape) stored(r Rebuild, dim int64) int64 {
	switch r {
	case KeepTurned:
		return dim + s.turnedDims
	case KeepV:
		return dim
	}
	return 2 * dim
}
