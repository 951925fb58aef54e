package compat

import (
	"math"
	"slices"

	"vapp.dev/engine/checkpoint"
)

// Inputs are the inputs of a report.
type Inputs struct {
	Release Release
	Config  checkpoint.Config
	Device  Device
	Request Request
}

// run is checked inputs with values derived from them.
type run struct {
	rel    Release
	shape  *shape
	d      Device
	r      Request
	dtype  int64
	elem   int64 // bytes per element of K or V
	length int64 // max_model_len
	// modelLength is the longest length of the model.
	modelLength int64
	auto        bool
	mode        string // cudagraph_mode
	warned      []string
}

// start checks the inputs.
func start(i Inputs) (*run, error) {
	if !slices.Contains(Releases(), i.Release) {
		_, err := ParseRelease(string(i.Release))
		return nil, err
	}
	in := &run{rel: i.Release, d: i.Device, r: i.Request}
	if err := in.r.check(in.rel, i.Device); err != nil {
		return nil, err
	}
	var err error
	if in.shape, err = readShape(i.Config); err != nil {
		return nil, err
	}
	first := since[in.shape.family]
	if in.shape.family == designed {
		first = in.shape.design.since
	}
	if !in.rel.atLeast(first) {
		return nil, fault("compat", "%v does not know %s; %v is the first here that does", in.rel, i.Config.Architecture, first)
	}
	if in.shape.image && !in.r.TextOnly {
		return nil, fault("config.vision_config", "is an image tower whose memory is not known here; plan text alone: --set multimodal.limits.image=0")
	}
	if in.r.BlockSize == 0 {
		in.r.BlockSize = in.defaultBlock()
	}
	if err := in.checkDevice(); err != nil {
		return nil, err
	}
	for _, f := range []func() error{in.setLength, in.setDtype, in.setQuantization, in.setKVDtype, in.checkRanks, in.checkSpeculation, in.checkCache} {
		if err := f(); err != nil {
			return nil, err
		}
	}
	in.mode, err = in.graphMode()
	return in, err
}

func (in *run) setLength() error {
	s := in.shape
	in.length = s.maxPositions
	for _, r := range s.rope {
		if s.family == gptOSS {
			in.length = max(in.length, r.positions)
		}
	}
	in.modelLength = in.length
	switch {
	case in.r.MaxModelLen == -1:
		if !in.rel.atLeast(V017) {
			return fault("maxModelLen", "%v has no automatic length", in.rel)
		}
		in.auto = true
	case int64(in.r.MaxModelLen) > in.length:
		return fault("maxModelLen", "is %d, the model has %d positions", in.r.MaxModelLen, in.length)
	case in.r.MaxModelLen > 0:
		in.length = int64(in.r.MaxModelLen)
	}
	chunked := in.r.ChunkedPrefill == "on" || in.r.ChunkedPrefill == "" && (in.rel != V07 || in.length > 32768)
	for _, o := range []struct{ field, v string }{{"scheduler.chunkedPrefill", in.r.ChunkedPrefill}, {"scheduler.prefixCaching", in.r.PrefixCaching}} {
		if !slices.Contains([]string{"", "on", "off"}, o.v) {
			return fault(o.field, "is %q, allowed are on and off", clip(o.v))
		}
	}
	in.r.batch(in.rel, in.d, in.length, in.largestItem(), chunked)
	if in.r.MaxNumBatchedTokens > maxBatch<<4 {
		return fault("scheduler.chunkedPrefill", "is off, and a step of %d tokens is absurd", in.r.MaxNumBatchedTokens)
	}
	if !chunked && int64(in.r.MaxNumBatchedTokens) < in.length {
		return fault("scheduler.maxNumBatchedTokens", "is %d, below maxModelLen %d, and prefills are not chunked", in.r.MaxNumBatchedTokens, in.length)
	}
	if in.r.MaxNumBatchedTokens < in.r.MaxNumSeqs {
		return fault("scheduler.maxNumBatchedTokens", "is %d, below maxNumSeqs %d", in.r.MaxNumBatchedTokens, in.r.MaxNumSeqs)
	}
	return nil
}

// nativeFp8 reports whether fp8 weights are multiplied with fp8 activations.
func (in *run) nativeFp8() bool {
	q := in.shape.quant.scheme
	return in.d.capability() >= 89 && (in.r.Quantization == "fp8" || q == fp8Blocks || q == fp8Tensor || q == fp8Channel)
}

func (in *run) drafts() bool { return in.r.Speculative.Method == "mtp" }

// budget returns total x utilization, rounded as the release does.
func (in *run) budget() int64 {
	b := float64(in.d.TotalBytes) * in.r.Utilization
	if in.rel.atLeast(V017) {
		return int64(math.Ceil(b))
	}
	return int64(b)
}
