package plan

import (
	"errors"
	"math"

	"vapp.dev/engine"
)

// Start holds figures for the profile of a model that has none yet.
type Start struct {
	MaxModelLen int   // tokens; 0: auto
	KVCache     int64 // bytes; 0: utilization shares out the memory
	Whole       bool  // KVCache is what maxNumSeqs sequences of MaxModelLen need
	Memory      int64 // bytes that KVCache was derived from; 0: unknown
	Percent     int   // of Memory that the server may take
	Weights     int64 // elements of the model
	GPU         bool
}

const (
	startGPULen   = 32 << 10 // tokens: a GPU's KV cache then has space for several sequences
	startCPULen   = 8 << 10
	startShortest = 512
	startUsual    = 4 << 10
	startUnknown  = 1 << 30 // bytes of KV cache on a machine whose memory is unknown
	startRound    = 64 << 20
)

// StartSeqs is maxNumSeqs of a made profile on a CPU, which gains little from more sequences.
const StartSeqs = 8

// NewStart returns figures for in's model on its machine. It takes what the profile says already:
// a length other than auto, the KV cache and the sequences. On a CPU the server leaves a quarter
// of the memory that is available now to other programs, or a tenth if the model needs more. It
// fails only if the profile is invalid.
func NewStart(in Inputs) (Start, error) {
	p := *in.Profile
	if p.Memory.KVCache == 0 && in.Facts.TotalBytes <= 0 {
		p.Memory.Utilization, p.Memory.KVCache = 0, startUnknown
	}
	in.Profile = &p
	w, err := resolve(in)
	if err != nil {
		return Start{}, err
	}
	s := Start{MaxModelLen: w.options.MaxModelLen, Weights: modelFacts(in.Model).Weights, GPU: w.onGPU()}
	if s.GPU || w.kvCache > 0 || in.Profile.Says("memory.utilization") {
		if s.MaxModelLen, err = w.startLen(s.MaxModelLen); err != nil {
			return Start{}, err
		}
		if in.Profile.Memory.KVCache == startUnknown && in.Facts.TotalBytes <= 0 {
			s.KVCache = startUnknown
		}
		return s, nil
	}
	return w.startCPU(s)
}

// startCap returns the longest sequence of a made profile: the model's own maximum, or a length
// that leaves memory for several.
func (w resolved) startCap() int {
	most := startCPULen
	if w.onGPU() {
		most = startGPULen
	}
	if !w.options.ChunkedPrefill {
		most = min(most, w.options.MaxNumBatchedTokens)
	}
	return min(w.in.Model.Config.MaxPositionEmbeddings, most)
}

// startLen returns the length for a KV cache whose size is given: said if the profile says one,
// else startCap, or 0 if that does not fit.
func (w resolved) startLen(said int) (int, error) {
	if said > 0 {
		return said, nil
	}
	tokens := w.startCap()
	_, err := w.solveLen(tokens)
	var short *shortError
	if errors.As(err, &short) {
		return 0, nil
	}
	return tokens, err
}

// startCPU sets the length and the KV cache for a machine whose memory other programs use too.
func (w resolved) startCPU(s Start) (Start, error) {
	s.Memory = w.in.Facts.FreeBytes
	if s.Memory <= 0 {
		s.Memory = w.in.Facts.TotalBytes
	}
	lengths := []int{s.MaxModelLen}
	if s.MaxModelLen == 0 {
		lengths = nil
		for n := w.startCap(); n > 0; n /= 2 {
			lengths = append(lengths, n)
			if n <= startShortest {
				break
			}
		}
	}
	for _, percent := range []int{75, 90} {
		w.utilization = 1
		w.in.Facts.TotalBytes = s.Memory / 100 * int64(percent)
		for _, tokens := range lengths {
			if percent < 90 && tokens < startUsual && tokens < lengths[0] {
				break // rather more memory than a shorter length
			}
			kv, whole, err := w.startKV(tokens)
			var short *shortError
			if errors.As(err, &short) {
				continue
			} else if err != nil {
				return Start{}, err
			}
			s.MaxModelLen, s.KVCache, s.Whole, s.Percent = tokens, kv, whole, percent
			return s, nil
		}
	}
	return s, nil // utilization; the plan says what is missing
}

// startKV returns the bytes of KV cache for sequences of that length: what maxNumSeqs of them
// need, or the largest round size within the budget. The error is a *shortError if the budget
// holds none.
func (w resolved) startKV(tokens int) (kv int64, whole bool, err error) {
	sol, err := w.solveLen(tokens)
	if err != nil {
		return 0, false, err
	}
	one, most := w.startSlabs(sol.account, tokens)
	if full := roundUp(most, 1<<20); full <= sol.options.KVBytes {
		return full, true, nil
	}
	kv = sol.options.KVBytes / startRound * startRound
	if kv < one {
		kv = roundUp(one, 1<<20)
	}
	return kv, false, nil
}

// startSlabs returns the bytes of one and of maxNumSeqs sequences, each with the further block that
// the scheduler asks for.
func (w resolved) startSlabs(a *engine.Account, tokens int) (one, most int64) {
	one = int64(a.Pool.SequenceSlabs(tokens)) * a.KV.SlabBytes
	each := int64(a.Pool.SequenceSlabs(tokens+w.options.BlockSize)) * a.KV.SlabBytes
	if each > math.MaxInt64/4/int64(w.options.MaxNumSeqs) {
		return one, math.MaxInt64 / 4
	}
	return one, each * int64(w.options.MaxNumSeqs)
}

func roundUp(n, unit int64) int64 { return (n + unit - 1) / unit * unit }
