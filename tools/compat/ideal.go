package compat

import "vapp.dev/engine/checkpoint"

// Rebuild selects what the ideal allocator stores of K and V in Gemma 4's full layers. There K can
// be recomputed from V: both come from one projection, and K is scaled and a quarter of it rotated.
type Rebuild int

// The kinds of Rebuild.
const (
	KeepKV      Rebuild = iota // K and V
	KeepRotated                // V and the rotated quarter of K
	KeepV                      // V only
)

// Ideal is the allocator of memory-planning section 9: each layer kind has its own pool of the
// exact size, without padding, rounding or a null block. It does not model the memory for reusing
// the states or windows of a prefix.
type Ideal struct {
	Config         checkpoint.Config
	TensorParallel int // 0: 1
	Speculative    int // tokens of the model's own MTP head, whose layer has KV too
	ElementBytes   int // bytes of an element of K and V, 0: 2
	Rebuild        Rebuild
	// StateCopies is the number of copies of the recurrent state per request, 0: 1 + Speculative.
	// Engines that replay rejected drafts need 1.
	StateCopies int
}

// IdealSequences returns how many requests of a length fit into the KV bytes of one GPU.
func IdealSequences(c checkpoint.Config, tp, spec int, kvBytes int64, length int) (float64, error) {
	return Ideal{Config: c, TensorParallel: tp, Speculative: spec}.Sequences(kvBytes, length)
}

// Sequences returns how many requests of a length fit into the KV bytes of one GPU.
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
		if l.kind == sliding || l.kind == chunked {
			n = min(n, l.window)
		}
		need += float64(n) * float64(l.token)
	}
	return float64(kvBytes) / need, nil
}

// TokensLeft returns how many tokens of full attention fit after the states of a number of running
// requests; negative where the states alone do not fit.
func (i Ideal) TokensLeft(kvBytes int64, requests int) (int64, error) {
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

// FullTokenBytes returns the bytes of a token in the full layers of one GPU.
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

// storedElements returns how many elements of K and V a head of full attention stores.
func (s *shape) storedElements(r Rebuild, dim int64) int64 {
	switch r {
	case KeepRotated:
		return dim + s.rotatedDims
	case KeepV:
		return dim
	}
	return 2 * dim
}
