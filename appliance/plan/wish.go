package plan

import (
	"errors"
	"fmt"
	"strings"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/sched"
	"vapp.dev/kernels"
	"vapp.dev/schema"
)

// minBlock is the block size that attention kernels are written for; page sizes
// are its multiples.
const minBlock = 16

// want is what a profile asks for, resolved as far as the model and the layout
// of the backend go, in the numbers that the search for a fit varies.
type want struct {
	in      Inputs
	layout  backend.Layout
	options engine.Options // all but MaxModelLen (0: auto) and KVBytes

	utilization float64 // 0 where kvCache is given
	kvCache     int64
	reserve     int64
}

// wishes checks a profile against model and backend.
func wishes(in Inputs) (want, error) {
	p := in.Profile
	if err := Refuse(p); err != nil {
		return want{}, err
	}
	if p.Backend != "auto" && p.Backend != in.Opener.Name() {
		return want{}, p.Reject("backend", "the profile asks for %s, this plan is for %s", p.Backend, in.Opener.Name())
	}
	if err := checkModel(in); err != nil {
		return want{}, err
	}
	policy, err := sched.ParsePolicy(p.Scheduler.Policy)
	if err != nil {
		return want{}, p.Reject("scheduler.policy", "%v", err)
	}
	w := want{
		in: in, utilization: p.Memory.Utilization, kvCache: int64(p.Memory.KVCache), reserve: int64(p.Memory.Reserve),
		options: engine.Options{
			MaxNumSeqs: p.Scheduler.MaxNumSeqs, MaxNumBatchedTokens: p.Scheduler.MaxNumBatchedTokens,
			MaxQueue: p.Serve.Limits.MaxQueue, BlockSize: p.Memory.BlockSize,
			PrefixCaching: p.Scheduler.PrefixCaching, ChunkedPrefill: p.Scheduler.ChunkedPrefill,
			Overlap: p.Scheduler.Overlap, Policy: policy, Backend: settings(p, in.Opener.Name()),
		},
	}
	if p.MaxModelLen != schema.Auto {
		w.options.MaxModelLen = int(p.MaxModelLen)
	}
	w.layout, err = in.Opener.Layout(in.Facts, w.options.Backend)
	if err != nil {
		if errors.Is(err, backend.ErrUnsupported) && p.Says("cpu") {
			return want{}, p.Reject("cpu", "%v", err)
		}
		return want{}, err
	}
	if w.options.KVFormat, err = w.kvFormat(); err != nil {
		return want{}, err
	}
	return w, w.check()
}

// settings are the profile's wishes about backend cpu; others have none.
func settings(p *schema.Profile, name string) backend.Settings {
	if name == "cuda" {
		return backend.Settings{}
	}
	s := backend.Settings{HTTPShare: p.CPU.HTTPShare}
	if p.CPU.Threads != schema.Auto {
		s.Threads = int(p.CPU.Threads)
	}
	if p.CPU.Variant != "auto" {
		s.Variant = p.CPU.Variant
	}
	return s
}

// checkModel compares the profile with what the model is.
func checkModel(in Inputs) error {
	p, m := in.Profile, in.Model
	if longest := m.Config.MaxPositionEmbeddings; p.MaxModelLen != schema.Auto && int64(p.MaxModelLen) > int64(longest) {
		return p.Reject("maxModelLen", "%d tokens, but %s was made for %d (max_position_embeddings); allowed: at most %d, or \"auto\"",
			p.MaxModelLen, m.Source.Name, longest, longest)
	}
	if asked, ok := dtypes[p.Model.Dtype]; ok && asked != m.Dtype {
		return p.Reject("model.dtype", "%s is planned only: the model is %v, and converting it at load is not done by this release; leave the field out",
			p.Model.Dtype, m.Dtype)
	}
	return nil
}

// dtypes are the words of model.dtype and memory.kvCacheDtype that are formats.
var dtypes = map[string]kernels.Format{"bfloat16": kernels.BF16, "float16": kernels.F16, "float32": kernels.F32}

// kvFormat is how K and V are stored. auto follows the model's activations, or
// takes the layout's preferred format where it cannot keep those.
func (w want) kvFormat() (kernels.Format, error) {
	word, kept := w.in.Profile.Memory.KVCacheDtype, w.layout.KVFormats()
	f, named := dtypes[word]
	if !named {
		f = w.in.Model.Dtype
	}
	for _, k := range kept {
		if k == f {
			return f, nil
		}
	}
	if named || len(kept) == 0 {
		return f, w.in.Profile.Reject("memory.kvCacheDtype", "backend %s cannot keep %s; allowed: auto, %s", w.in.Opener.Name(), word, words(kept))
	}
	return kept[0], nil
}

// words are the profile's names of formats.
func words(fs []kernels.Format) string {
	var out []string
	for _, f := range fs {
		out = append(out, word(f))
	}
	return strings.Join(out, ", ")
}

func word(f kernels.Format) string {
	for w, g := range dtypes {
		if g == f {
			return w
		}
	}
	return f.String()
}

// check refuses numbers that exclude each other. Search goes through it too.
func (w want) check() error {
	p, o := w.in.Profile, w.options
	switch {
	case o.BlockSize%minBlock != 0:
		return p.Reject("memory.blockSize", "%d tokens: attention works in blocks of %d; allowed: 16, 32, 64, 128, 256", o.BlockSize, minBlock)
	case o.MaxNumBatchedTokens < o.MaxNumSeqs:
		return p.Reject("scheduler.maxNumBatchedTokens", "%d tokens a step are fewer than maxNumSeqs %d, so that not every running sequence could get its token; raise it or lower maxNumSeqs",
			o.MaxNumBatchedTokens, o.MaxNumSeqs)
	case !o.ChunkedPrefill && o.MaxModelLen > o.MaxNumBatchedTokens:
		return p.Reject("scheduler.chunkedPrefill", "without it a prompt must fit one step: maxModelLen %d is above maxNumBatchedTokens %d; raise the latter or turn chunked prefill on",
			o.MaxModelLen, o.MaxNumBatchedTokens)
	case w.utilization > 0 && w.in.Facts.TotalBytes <= 0:
		return p.Reject("memory.utilization", "the memory of this machine is unknown to backend %s, so that a share of it says nothing; give memory.kvCache, such as \"4GiB\"", w.in.Opener.Name())
	}
	return nil
}

// modelLenChoice is the name of the choice that Diff shows as a capacity.
const modelLenChoice = "max model len"

// choices are the decisions that are the planner's own.
func (w want) choices(o engine.Options) []backend.Choice {
	p, m := w.in.Profile, w.in.Model
	why := "memory.kvCacheDtype"
	if _, named := dtypes[p.Memory.KVCacheDtype]; !named {
		why = "auto: as the model"
		if o.KVFormat != m.Dtype {
			why = fmt.Sprintf("auto: the model is %v, which backend %s does not keep", m.Dtype, w.in.Opener.Name())
		}
	}
	length := "maxModelLen"
	if w.options.MaxModelLen == 0 {
		length = "auto: the longest that fits"
		if o.MaxModelLen == m.Config.MaxPositionEmbeddings {
			length = "auto: all that the model can"
		}
	}
	return []backend.Choice{
		{Name: "kv cache dtype", Value: word(o.KVFormat), Why: why},
		{Name: modelLenChoice, Value: Group(int64(o.MaxModelLen)), Why: length},
	}
}

// warnings are what a reader should know before he starts this.
func (w want) warnings() []string {
	var out []string
	m, f := w.in.Model, w.in.Facts
	if err := m.Loadable(); err != nil {
		out = append(out, err.Error())
	}
	if f.TotalBytes <= 0 {
		out = append(out, "the machine's memory is unknown: whether the ledger fits was not checked")
	}
	if v := w.options.Backend.Variant; v == "" && !f.Measured && len(f.Variants) == 0 && w.in.Opener.Name() == "cpu" {
		out = append(out, "the instruction sets of the machine are unknown: kernels may differ there")
	}
	return out
}
