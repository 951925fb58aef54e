package compat

import (
	"math"
	"slices"
	"strings"

	"vapp.dev/engine/checkpoint"
)

// Inputs are what a report is made of.
type Inputs struct {
	Release Release
	Config  checkpoint.Config
	Device  Device
	Request Request
}

// run is inputs that were checked, with what follows from them at once.
type run struct {
	rel    Release
	shape  *shape
	d      Device
	r      Request
	dtype  int64
	elem   int64 // bytes of a K or V element
	length int64 // max_model_len
	auto   bool
	mode   string // of CUDA graphs
	warned []string
}

// start checks the inputs.
func start(i Inputs) (*run, error) {
	if !slices.Contains(Releases(), i.Release) {
		_, err := ParseRelease(string(i.Release))
		return nil, err
	}
	in := &run{rel: i.Release, d: i.Device, r: i.Request}
	if err := in.r.check(i.Device); err != nil {
		return nil, err
	}
	var err error
	if in.shape, err = readShape(i.Config); err != nil {
		return nil, err
	}
	if first := since[in.shape.family]; !in.rel.atLeast(first) {
		return nil, fault("compat", "%v does not know %s; %v is the first here that does", in.rel, i.Config.Architecture, first)
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
	in.r.batch(in.rel, in.d, in.length, chunked)
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

// setDtype resolves "auto" as the release does for the device.
func (in *run) setDtype() error {
	d := strings.TrimPrefix(in.r.Dtype, "torch.")
	bf16 := in.d.capability() >= 80
	if d == "" || d == "auto" {
		d = in.shape.modelDtype
		if d == "float32" || d == "" || d == "bfloat16" && !bf16 {
			d = "float16"
			if in.rel != V07 && bf16 {
				d = "bfloat16"
			}
		}
	}
	switch map[string]string{"half": "float16", "float": "float32"}[d] {
	case "float16", "float32":
		d = map[string]string{"half": "float16", "float": "float32"}[d]
	}
	switch d {
	case "float16", "bfloat16":
		in.dtype = 2
	case "float32":
		in.dtype = 4
	default:
		return fault("model.dtype", "is %q, allowed are auto, bfloat16, float16, float32", clip(d))
	}
	if d == "bfloat16" && !bf16 {
		return fault("model.dtype", "bfloat16 needs compute capability 8.0, %s has %d.%d; take float16", clip(in.d.Name), in.d.Major, in.d.Minor)
	}
	if d == "float32" && in.shape.quant.scheme != plain {
		return fault("model.dtype", "float32 is not allowed beside %s", in.shape.quant.method)
	}
	in.r.Dtype = d
	return nil
}

func (in *run) setQuantization() error {
	q, have := strings.ToLower(in.r.Quantization), in.shape.quant
	c := in.d.capability()
	switch {
	case q == "" || q == "none" || q == "auto" || q == have.method:
		in.r.Quantization = ""
	case q == "fp8" && have.scheme == plain:
		if in.shape.family == gptOSS {
			return fault("quantization", "fp8 online of gpt-oss: its release has none")
		}
		if in.dtype == 4 {
			return fault("quantization", "fp8 needs bfloat16 or float16")
		}
		in.r.Quantization = "fp8"
	case have.method != "":
		return fault("quantization", "is %q, the checkpoint has %s", clip(q), have.method)
	default:
		return fault("quantization", "is %q: known here are fp8, and what a checkpoint names", clip(q))
	}
	if (in.r.Quantization == "fp8" || have.scheme != plain) && c < 80 {
		return fault("quantization", "%s needs compute capability 8.0, %s has %d.%d", cmpOr(have.method, "fp8"), clip(in.d.Name), in.d.Major, in.d.Minor)
	}
	return nil
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func (in *run) setKVDtype() error {
	in.elem = in.dtype
	d := in.r.KVCacheDtype
	switch d {
	case "", "auto", in.r.Dtype:
		return nil
	case "fp8", "fp8_e4m3", "fp8_e5m2":
	default:
		return fault("memory.kvCacheDtype", "is %q, allowed are auto, fp8, fp8_e4m3, fp8_e5m2", clip(d))
	}
	need, c := 89, in.d.capability()
	if in.rel == V07 {
		need = 80
	}
	if c < need {
		return fault("memory.kvCacheDtype", "%s needs compute capability %d.%d in %v, %s has %d.%d", d, need/10, need%10, in.rel, clip(in.d.Name), in.d.Major, in.d.Minor)
	}
	if in.shape.family == gptOSS && in.d.Major != 9 && in.d.Major != 10 {
		return fault("memory.kvCacheDtype", "%s with gpt-oss's attention sinks is in %v for compute capability 9 and 10 alone, %s has %d.%d", d, in.rel, clip(in.d.Name), in.d.Major, in.d.Minor)
	}
	if d == "fp8_e5m2" && in.shape.quant.scheme != plain && in.shape.quant.scheme != mxfp4 {
		return fault("memory.kvCacheDtype", "fp8_e5m2 is not supported with fp8 checkpoints")
	}
	in.elem = 1
	return nil
}

// nativeFp8 tells fp8 weights that meet fp8 activations.
func (in *run) nativeFp8() bool {
	q := in.shape.quant.scheme
	return in.d.capability() >= 89 && (in.r.Quantization == "fp8" || q == fp8Blocks || q == fp8Tensor || q == fp8Channel)
}

func (in *run) drafts() bool { return in.r.Speculative.Method == "mtp" }

// budget is total x utilization as the release rounds it.
func (in *run) budget() int64 {
	b := float64(in.d.TotalBytes) * in.r.Utilization
	if in.rel.atLeast(V017) {
		return int64(math.Ceil(b))
	}
	return int64(b)
}
