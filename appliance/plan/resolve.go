package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/sched"
	"vapp.dev/kernels"
	"vapp.dev/schema"
)

// minBlock is the block size of the attention kernels; page sizes are multiples of it.
const minBlock = 16

// resolved is a profile resolved against the model and the backend's layout. The search for a
// fit varies its numbers.
type resolved struct {
	in      Inputs // Facts are those of a rank's part of the machine
	host    backend.Facts
	layout  backend.Layout
	options engine.Options // without KVBytes; MaxModelLen 0 means auto

	utilization float64 // 0 if kvCache is given
	kvCache     int64
	reserve     int64
	graphsOff   bool  // no graphs are captured, whatever the profile says
	within      int64 // the total that fits, beside other models; 0: the budget alone
	goal        goal  // must fit in addition to one sequence of the model length
	accounts    accounts
	stages      []*engine.Model // of distinct pipeline stages; one without a pipeline
	stageOf     []int           // by stage: the one of stages that it is equal to
	fp8Inputs   string          // what cuda.activations "auto" decided, and why; "": the checkpoint leaves no choice, or the profile sets it
	ownLinear   string          // why cuda.linear "auto" leaves all products to own kernels; "": it does not, or no product is the library's
}

// onGPU reports whether the arenas are in a device's own memory, separate from the host's.
func (w resolved) onGPU() bool { return w.in.Opener.Name() == "cuda" }

// resolve resolves a profile against its model and backend.
func resolve(in Inputs) (resolved, error) {
	p := in.Profile
	if err := checkLimits(p); err != nil {
		return resolved{}, err
	}
	if p.Backend != "auto" && p.Backend != in.Opener.Name() {
		return resolved{}, p.Reject("backend", "the profile asks for %s, this plan is for %s", p.Backend, in.Opener.Name())
	}
	if err := errors.Join(checkModel(in), checkRanks(in)); err != nil {
		return resolved{}, err
	}
	host := in.Facts
	in.Facts = share(host, hostRanks(in), 0)
	policy, err := sched.ParsePolicy(p.Scheduler.Policy)
	if err != nil {
		return resolved{}, p.Reject("scheduler.policy", "%v", err)
	}
	grams, err := lookup(p)
	if err != nil {
		return resolved{}, err
	}
	w := resolved{
		in: in, utilization: p.Memory.Utilization, kvCache: int64(p.Memory.KVCache), reserve: roundUp(int64(p.Memory.Reserve), int64(hostRanks(in))) / int64(hostRanks(in)),
		host: host, accounts: accounts{},
		options: engine.Options{
			MaxNumSeqs: p.Scheduler.MaxNumSeqs, MaxNumBatchedTokens: p.Scheduler.MaxNumBatchedTokens,
			MaxQueue: p.Serve.Limits.MaxQueue, BlockSize: p.Memory.BlockSize, SwapBytes: int64(p.Memory.SwapSpace),
			PrefixCaching: p.Scheduler.PrefixCaching, ChunkedPrefill: p.Scheduler.ChunkedPrefill,
			Overlap: p.Scheduler.Overlap && drafts(p) == 0, Drafts: drafts(p), Lookup: grams, Policy: policy, ITLTarget: p.Scheduler.ITLTarget.Time(), Backend: settings(in), EveryRow: everyRow(in.Model), Reduce: Reduce(p), Items: items(p, in.Model),
		},
	}
	if p.MaxModelLen != schema.Auto {
		w.options.MaxModelLen = int(p.MaxModelLen)
	}
	return w.withLayout()
}

// withLayout returns w with the backend's layout, after checking the fields that depend on it.
func (w resolved) withLayout() (resolved, error) {
	in := w.in
	var err error
	if w.onGPU() {
		if w.options.Backend.Graphs, err = w.graphs(); err != nil {
			return resolved{}, err
		}
	}
	w.chooseActivations()
	w.chooseLinear()
	if w.layout, err = in.Opener.Layout(in.Facts, w.options.Backend); err != nil {
		return resolved{}, w.locateLayoutError(err)
	}
	if w.options.KVFormat, err = w.kvFormat(); err != nil {
		return resolved{}, err
	}
	if err := errors.Join(w.checkBuild(), w.checkActivations(), w.checkLinear(), w.checkFavor(), w.check()); err != nil {
		return resolved{}, err
	}
	return w.withStages()
}

// locateLayoutError gives a layout's refusal of its settings the position of the profile field
// that it refuses.
func (w resolved) locateLayoutError(err error) error {
	p, without := w.in.Profile, w.options.Backend
	if !errors.Is(err, backend.ErrUnsupported) {
		return err
	}
	if asked := activations(p); asked != "" && without.Activations == asked {
		without.Activations = ""
		if _, other := w.in.Opener.Layout(w.in.Facts, without); other == nil {
			return p.Reject("cuda.activations", "%v; leave the field out", err)
		}
	}
	if asked := linear(p); asked != "" && without.Linear == asked {
		without.Linear = ""
		if _, other := w.in.Opener.Layout(w.in.Facts, without); other == nil {
			return p.Reject("cuda.linear", "%v; leave the field out", err)
		}
	}
	if p.Says("cpu") {
		return p.Reject("cpu", "%v", err)
	}
	return err
}

// settings returns the profile's settings of the backend. Backend ref uses those of cpu too.
func settings(in Inputs) backend.Settings {
	p, name := in.Profile, in.Opener.Name()
	if name == "cuda" {
		return backend.Settings{Activations: activations(p), Linear: linear(p)}
	}
	s := backend.Settings{HTTPShare: p.CPU.HTTPShare}
	if name == "ref" {
		s.Activations = activations(p)
	}
	if p.CPU.Threads != schema.Auto {
		s.Threads = int(p.CPU.Threads)
	}
	if p.CPU.Variant != "auto" {
		s.Variant = p.CPU.Variant
	}
	if p.CPU.Favor != "auto" && name == "cpu" {
		s.Favor = p.CPU.Favor
	}
	if p.CPU.Activations != "auto" {
		s.Activations = p.CPU.Activations
	}
	if name == "cpu" {
		s.Cache = cacheOf(p, in.Model.Source.Path)
		if p.CPU.NUMA == "off" {
			s.NUMA = backend.NUMAOff
		}
	}
	return s
}

// checkModel checks the profile against the model's limits.
func checkModel(in Inputs) error {
	p, m := in.Profile, in.Model
	if longest := m.Config.MaxPositionEmbeddings; p.MaxModelLen != schema.Auto && int64(p.MaxModelLen) > int64(longest) {
		return p.Reject("maxModelLen", "%d tokens, but %s was made for %d (max_position_embeddings); allowed: at most %d, or \"auto\"",
			p.MaxModelLen, m.Source.Name, longest, longest)
	}
	return nil
}

// dtypes are the names of formats in model.dtype and memory.kvCacheDtype. If a format has
// several names, plans print the first.
var dtypes = []struct {
	word   string
	format kernels.Format
}{
	{"bfloat16", kernels.BF16}, {"float16", kernels.F16}, {"float32", kernels.F32},
	{"fp8", kernels.F8E4M3}, {"fp8_e4m3", kernels.F8E4M3}, {"fp8_e5m2", kernels.F8E5M2},
}

func dtypeOf(word string) (kernels.Format, bool) {
	for _, d := range dtypes {
		if d.word == word {
			return d.format, true
		}
	}
	return kernels.Invalid, false
}

// kvFormat returns the format of K and V. auto follows the dtype of the model's activations, or
// takes the layout's preferred format if the layout does not support that.
func (w resolved) kvFormat() (kernels.Format, error) {
	p, kept := w.in.Profile, w.layout.KVFormats()
	f, named := dtypeOf(p.Memory.KVCacheDtype)
	if !named {
		f = w.in.Model.Dtype
		if asked, ok := dtypeOf(p.Model.Dtype); ok {
			f = asked
		}
	}
	if slices.Contains(kept, f) {
		return f, nil
	}
	if named || len(kept) == 0 {
		return f, p.Reject("memory.kvCacheDtype", "backend %s cannot keep %s; allowed: auto, %s", w.in.Opener.Name(), p.Memory.KVCacheDtype, words(kept))
	}
	return kept[0], nil
}

// words returns the profile's names of formats.
func words(fs []kernels.Format) string {
	var out []string
	for _, f := range fs {
		out = append(out, word(f))
	}
	return strings.Join(out, ", ")
}

func word(f kernels.Format) string {
	for _, d := range dtypes {
		if d.format == f {
			return d.word
		}
	}
	return f.String()
}

// check refuses numbers that contradict each other. The search for a fit calls it too.
func (w resolved) check() error {
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

// choices returns the planner's own decisions.
func (w resolved) choices(o engine.Options) []backend.Choice {
	p, m := w.in.Profile, w.in.Model
	why := "memory.kvCacheDtype"
	if _, named := dtypeOf(p.Memory.KVCacheDtype); !named {
		why = "auto: as the model"
		if o.KVFormat == dtypeFormat(p.Model.Dtype) {
			why = "auto: as model.dtype"
		} else if o.KVFormat != m.Dtype {
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
	out := []backend.Choice{
		{Name: "kv cache dtype", Value: word(o.KVFormat), Why: why},
		{Name: modelLenChoice, Value: Group(int64(o.MaxModelLen)), Why: length},
	}
	if w.ownLinear != "" {
		out = append(out, backend.Choice{Name: "linear", Value: "own", Why: "auto: " + w.ownLinear})
	}
	out = append(out, editChoices(m, o)...)
	if m.Pooling != nil {
		out = append(out, poolingChoice(m.Pooling))
	}
	if o.Reduce != kernels.Invalid {
		why := "parallel.reduce"
		if p.Parallel.Reduce == "auto" {
			why = "auto"
		}
		out = append(out, backend.Choice{Name: "sums of ranks", Value: o.Reduce.String(), Why: why})
	}
	if o.ITLTarget > 0 {
		out = append(out, backend.Choice{Name: "itl target", Value: o.ITLTarget.String(), Why: "beside streams that decode prompts are cut to keep to it, to 16 tokens a step at least"})
	}
	if s := p.Speculative; s != nil {
		value, by := numberOf(s.NumTokens, "token")+" a step", s.Method+": the model's own head"
		if g := o.Lookup; g.Max > 0 {
			by = fmt.Sprintf("%s: what follows where the last %d to %d tokens first occur", s.Method, g.Min, g.Max)
			if g.Min == g.Max {
				by = fmt.Sprintf("%s: what follows where the last %d tokens first occur", s.Method, g.Max)
			}
		}
		if s.Method == "draft_model" {
			by = s.Method + ": " + s.Model + ", in the same step"
		}
		out = append(out, backend.Choice{Name: "proposals", Value: value, Why: by})
		if p.Scheduler.Overlap {
			out = append(out, backend.Choice{Name: "overlap", Value: "off", Why: "a step's proposals need the tokens of the one before"})
		}
	}
	return out
}

// warnings returns what a user should know before starting the plan.
func (w resolved) warnings() []string {
	var out []string
	m, f := w.in.Model, w.in.Facts
	if err := m.Loadable(); err != nil {
		out = append(out, err.Error())
	}
	for _, e := range m.Config.Edited {
		if e.Near != "" {
			out = append(out, fmt.Sprintf("%s: the config has no field %s, so that it is added; was %s meant?", overridesField, e.Field, e.Near))
		}
	}
	if w.in.Profile.Cudagraph != nil && w.in.Profile.Cudagraph.Mode != "none" && !w.onGPU() {
		out = append(out, "cudagraph: backend "+w.in.Opener.Name()+" captures no graphs, so that the plan has none")
	}
	if f.Measured && f.HugeBytes == 0 && w.in.Opener.Name() == "cpu" {
		out = append(out, "huge pages are off on this machine, so that decoding reads weights at a tenth to a quarter less than the memory's rate; as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled")
	}
	if w.ownLinear != "" && f.NoCUBLASLt != "" {
		out = append(out, "cuda.linear: own kernels multiply: "+f.NoCUBLASLt)
	}
	if f.TotalBytes <= 0 {
		out = append(out, "the machine's memory is unknown: whether the ledger fits was not checked")
	}
	if s := w.options.Backend; s.Favor != "" && len(w.favored()) == 0 {
		out = append(out, fmt.Sprintf("cpu.favor: for this model's weights the machine has one kernel a format, so that %q changes nothing", s.Favor))
	}
	if v := w.options.Backend.Variant; v == "" && !f.Measured && len(f.Variants) == 0 && w.in.Opener.Name() == "cpu" {
		out = append(out, "the instruction sets of the machine are unknown: kernels may differ there")
	}
	return out
}

// converts reports whether quantization at load changes at least one weight.
func converts(m *engine.Model) bool {
	return slices.ContainsFunc(m.Family.Weights(), func(s backend.WeightSpec) bool { return s.Target != kernels.Invalid })
}
