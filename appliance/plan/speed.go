package plan

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/speed"
	"vapp.dev/schema"
)

// Speed is the predicted speed of a plan. Times are seconds.
type Speed struct {
	// Basis is "measured" for rates that vapp doctor --measure found on this machine, "table" for
	// those of the table of processors, "predicted" for a GPU: its published rates, nothing was measured.
	Basis   string        `json:"basis"`
	Rates   string        `json:"rates"`         // whose rates
	Why     string        `json:"why,omitempty"` // why the table was used
	Threads int           `json:"threads"`
	Band    float64       `json:"band"` // relative error to expect, on both sides
	Loads   []LoadSpeed   `json:"loads"`
	TooLong []string      `json:"too_long,omitempty"` // loads that are longer than maxModelLen
	Kernels []KernelSpeed `json:"kernels"`
	Steps   []StepSpeed   `json:"steps,omitempty"` // on a GPU
}

// StepSpeed is a predicted step on a GPU.
type StepSpeed struct {
	Name     string             `json:"name"`
	Launches int                `json:"launches"`
	Seconds  float64            `json:"seconds"`
	Fixed    float64            `json:"launch_seconds"` // of Seconds: gaps between launches, and their ramps
	Share    float64            `json:"share_of_limit"` // of what memory or the matrix units of the GPU allow
	Bytes    float64            `json:"bytes"`          // weights, keys and values
	Flops    float64            `json:"operations"`
	Kernels  []speed.KernelTime `json:"kernels"` // the longest first
}

// LoadSpeed is the predicted course of a load.
type LoadSpeed struct {
	Name    string  `json:"name"`
	Streams int     `json:"streams"`
	Prompt  int     `json:"prompt_tokens"`
	Output  int     `json:"output_tokens"`
	First   float64 `json:"first_token_seconds"`       // of the last stream
	Seconds float64 `json:"seconds"`                   // until the last token
	Prefill float64 `json:"prefill_tokens_per_second"` // until First
	Decode  float64 `json:"decode_tokens_per_second"`  // after First; 0: no tokens come after it
	Total   float64 `json:"tokens_per_second"`         // prompt and output
	Running int     `json:"running"`                   // sequences that run at once
}

// KernelSpeed is the rate of a kernel that multiplies weights.
type KernelSpeed struct {
	Kernel  string  `json:"kernel"`
	Basis   string  `json:"basis"` // measured, similar, estimated
	Decode  float64 `json:"decode_bytes_per_second"`
	Prefill float64 `json:"prefill_operations_per_second"` // 512 rows
}

// Bands of predictions: the largest errors in docs/speed.md, where the machine is as it was measured, and
// for the table what processors of a row differ by. GPUs have the table's: docs/gpu-speed.md compares the model with
// measurements of other engines.
const (
	measuredBand = 0.25
	tableBand    = 0.50
)

// speedLoads are the loads that are predicted. vapp bench engine measures the same by --work.
var speedLoads = []struct {
	name string
	engine.Load
}{
	{"decode", engine.Load{Streams: 1, Prompt: 32, Output: 64}},
	{"prefill 512", engine.Load{Streams: 1, Prompt: 512, Output: 1}},
	{"prefill 2,048", engine.Load{Streams: 1, Prompt: 2048, Output: 1}},
	{"16 streams", engine.Load{Streams: 16, Prompt: 128, Output: 64}},
	{"64 streams", engine.Load{Streams: 64, Prompt: 64, Output: 16}},
}

// rates are the rates that a plan predicts with.
type rates struct {
	*speed.Rates
	basis, from, why string
	band             float64
	scaled           bool // from another number of threads than was measured
}

// predicted is the basis of a GPU's speed.
const predicted = "predicted"

// words returns how a prediction was made.
func (r rates) words() string {
	switch r.basis {
	case "measured":
		return "measured on " + r.from
	case predicted:
		return "predicted, not measured: published rates of " + r.from
	}
	return "estimated from a table: " + r.from
}

// SpeedError reports a plan whose speed cannot be predicted.
type SpeedError struct {
	Profile string
	Why     error
}

func (e *SpeedError) Error() string {
	return fmt.Sprintf("%s: speed is not predicted: %v", e.Profile, e.Why)
}

// Unwrap returns Why.
func (e *SpeedError) Unwrap() error { return e.Why }

// ratesOf returns the rates of the plan's machine: measured ones, or those of the table.
func (p *Plan) ratesOf() (rates, error) {
	if p.Ranks > 1 {
		return rates{}, errors.New("the model is split over several devices")
	}
	variant, threads := "", 0
	for _, c := range p.Choices {
		switch c.Name {
		case "variant":
			variant = c.Value
		case "threads":
			fmt.Sscan(c.Value, &threads)
		}
	}
	var why []string
	if cores := p.Facts.Cores; cores > 0 && threads > cores {
		why = append(why, fmt.Sprintf("%d threads share %s: predicted with %d", threads, numberOf(cores, "core"), cores))
		threads = cores
	}
	if r := p.rates; r != nil && p.Backend == "cpu" && p.Facts.Measured {
		out := rates{Rates: r.With(threads), basis: "measured", from: fmt.Sprintf("%s, %s", p.Facts.Device, numberOf(r.Threads, "thread")), band: measuredBand}
		if threads != r.Threads {
			why = append(why, fmt.Sprintf("measured with %d threads, predicted with %d: scaled", r.Threads, threads))
			out.band, out.scaled = tableBand, true
		}
		out.why = strings.Join(why, "; ")
		return out, nil
	}
	f := p.Facts
	f.Backend = p.Backend
	r, row, err := speed.Estimate(f, variant, threads)
	if err != nil {
		return rates{}, err
	}
	if r.GPU != nil {
		return rates{Rates: r, basis: predicted, from: row, why: "the times are the device's; no report of gpu-check has figures of these kernels", band: tableBand}, nil
	}
	if p.Facts.Measured {
		why = append(why, p.noRates)
	} else {
		why = append(why, "the plan is for another machine")
	}
	return rates{Rates: r, basis: "table", from: row, why: strings.Join(why, "; "), band: tableBand}, nil
}

// predictor returns the predictor of the plan and the rates that it uses.
func (p *Plan) predictor() (*engine.Predictor, rates, error) {
	r, err := p.ratesOf()
	if err != nil {
		return nil, r, &SpeedError{p.Profile, err}
	}
	with := *r.Rates
	with.Estimates, r.Rates = p.estimates(), &with
	pr, err := engine.NewPredictor(p.Options, p.Account, r.Rates)
	if err != nil {
		return nil, r, &SpeedError{p.Profile, err}
	}
	if name, ok := unmeasured(pr.Bases()); ok && r.basis == "measured" && !r.scaled {
		r.why, r.band = strings.TrimPrefix(fmt.Sprintf("%s; %s was not measured, its rate is %s", r.why, name, pr.Bases()[name]), "; "), tableBand
	}
	return pr, r, nil
}

// WithSpeed returns the plan with its predicted speed. The error is a *SpeedError where there are no
// rates.
func (p *Plan) WithSpeed() (*Plan, error) {
	pr, r, err := p.predictor()
	if err != nil {
		return nil, err
	}
	s := &Speed{Basis: r.basis, Rates: r.from, Why: r.why, Threads: r.Threads, Band: r.band, Loads: []LoadSpeed{}, Kernels: []KernelSpeed{}}
	for _, l := range speedLoads {
		if l.Prompt+l.Output > p.Options.MaxModelLen {
			s.TooLong = append(s.TooLong, l.name)
			continue
		}
		f, err := pr.Load(l.Load)
		if err != nil {
			return nil, &SpeedError{p.Profile, err}
		}
		s.Loads = append(s.Loads, LoadSpeed{
			Name: l.name, Streams: l.Streams, Prompt: l.Prompt, Output: l.Output, First: f.First, Seconds: f.Last,
			Prefill: f.Prefill(), Decode: f.Decode(), Total: f.Total(), Running: min(l.Streams, p.Options.MaxNumSeqs, p.admitted(l.Prompt+l.Output)),
		})
	}
	bases := pr.Bases()
	for _, name := range slices.Sorted(maps.Keys(bases)) {
		k := r.Kernel(name, p.bytesPerWeight(name))
		basis := string(k.Basis)
		if r.basis != "measured" || r.scaled {
			basis = string(speed.Estimated)
		}
		s.Kernels = append(s.Kernels, KernelSpeed{name, basis, k.Decode, k.Prefill})
	}
	if s.Steps, err = p.steps(pr); err != nil {
		return nil, &SpeedError{p.Profile, err}
	}
	out := *p
	out.Speed = s
	return &out, nil
}

// steps predicts single steps of a GPU: decoding at positions of 1,024, and a prompt of 2,048 tokens.
func (p *Plan) steps(pr *engine.Predictor) ([]StepSpeed, error) {
	var out []StepSpeed
	add := func(name string, rows []speed.Row) error {
		t, ok, err := pr.OnGPU(rows)
		if !ok || err != nil {
			return err
		}
		out = append(out, StepSpeed{name, t.Launches, t.Seconds, t.Fixed, t.Limit / t.Seconds, t.Bytes, t.Flops, t.Kernels})
		return nil
	}
	for _, n := range []int{1, 16, 64, 256} {
		if from := min(1023, p.Options.MaxModelLen-1); n <= p.Options.MaxNumSeqs {
			if err := add(fmt.Sprintf("decode %d", n), slices.Repeat([]speed.Row{{From: from, Count: 1, Draw: true}}, n)); err != nil {
				return nil, err
			}
		}
	}
	if n := min(2048, p.Options.MaxNumBatchedTokens, p.Options.MaxModelLen); n > 0 {
		return out, add("prefill "+Group(int64(n)), []speed.Row{{Count: n, Draw: true}})
	}
	return out, nil
}

// estimates returns the rates that the layout estimates of its kernels, by kernel: those that the plan prints.
func (p *Plan) estimates() map[string]backend.KernelRate {
	out := map[string]backend.KernelRate{}
	for _, f := range p.Favored {
		for _, k := range f.Kernels {
			if k.Rate.Basis == "estimated" {
				out[k.Kernel] = k.Rate
			}
		}
	}
	return out
}

// admitted returns how many sequences of that many tokens the KV cache holds at once.
func (p *Plan) admitted(tokens int) int {
	return maxAdmitted(p.Account.Pool, p.Capacity.Slabs, tokens, p.Options.MaxModelLen)
}

// unmeasured returns the first kernel by name whose rate was not measured; ok is false if all were.
func unmeasured(bases map[string]speed.Basis) (name string, ok bool) {
	for _, name := range slices.Sorted(maps.Keys(bases)) {
		if bases[name] != speed.Measured {
			return name, true
		}
	}
	return "", false
}

// bytesPerWeight returns what a weight takes that a kernel reads.
func (p *Plan) bytesPerWeight(kernel string) float64 {
	r := p.Account.Reservation
	for i, w := range r.Weights {
		if r.Packed[i].Kernel == kernel && w.Use&backend.Multiply != 0 {
			return float64(r.Packed[i].Bytes) / float64(w.Elems())
		}
	}
	return 1
}

// String returns the predicted speed as text.
func (s *Speed) String() string {
	t := &text{width: TextWidth}
	s.write(t)
	return strings.TrimPrefix(t.b.String(), "\n")
}

// write prints the predicted speed.
func (s *Speed) write(t *text) {
	t.line("")
	t.line("predicted speed, tokens a second ± %.0f %%", 100*s.Band)
	t.wide(13, "rates", rates{basis: s.Basis, from: s.Rates}.words())
	if s.Why != "" {
		t.wide(13, "", s.Why)
	}
	for _, l := range s.Loads {
		switch {
		case l.Streams > 1:
			line := fmt.Sprintf("%s together with %d + %d tokens each; decode %s; the last first token after %s", speedOf(l.Total), l.Prompt, l.Output, speedOf(l.Decode), timeOf(l.First))
			if l.Running < l.Streams {
				line += fmt.Sprintf("; %d run at once (maxNumSeqs, memory.kvCache)", l.Running)
			}
			t.wide(13, l.Name, line)
		case l.Output > 1:
			t.wide(13, l.Name, fmt.Sprintf("%s after %d tokens; %s a token", speedOf(l.Decode), l.Prompt, timeOf(1/l.Decode)))
		default:
			t.wide(13, l.Name, fmt.Sprintf("%s; first token after %s", speedOf(l.Prefill), timeOf(l.First)))
		}
	}
	for _, name := range s.TooLong {
		t.wide(13, name, "longer than maxModelLen")
	}
	for _, st := range s.Steps {
		k := st.Kernels[0]
		t.wide(13, st.Name, fmt.Sprintf("%s, %.0f %% of the limit; %s launches take %.0f %%; %s takes %.0f %%, bound by %s",
			timeOf(st.Seconds), 100*st.Share, Group(int64(st.Launches)), 100*st.Fixed/st.Seconds, k.Kernel, 100*k.Seconds/st.Seconds, k.Bound))
	}
	for _, k := range s.Kernels {
		t.wide(13, "kernel", fmt.Sprintf("%s: one row %.1f GB/s, 512 rows %.0f GOP/s (%s)", k.Kernel, k.Decode/1e9, k.Prefill/1e9, k.Basis))
	}
}

// speedOf prints tokens a second.
func speedOf(x float64) string {
	if x < 100 {
		return fmt.Sprintf("%.1f", x)
	}
	return Group(int64(x + 0.5))
}

// timeOf prints seconds.
func timeOf(s float64) string {
	if s < 1 {
		return fmt.Sprintf("%.3g ms", 1e3*s)
	}
	return fmt.Sprintf("%.3g s", s)
}

// LatencyError reports a plan that is predicted to be slower than a contract of the profile allows.
type LatencyError struct {
	Pos   schema.Position
	Path  string // require.itl
	Want  schema.Latency
	Have  float64 // seconds
	Basis string  // how the prediction was made
	Band  float64
	// Fewer is a smaller number of sequences that meets the bound; 0: none was found.
	Fewer int

	plan *Plan
}

// JSON writes the verdict and the plan's ledger as indented JSON.
func (e *LatencyError) JSON(w io.Writer) error {
	v := e.plan.Verdict()
	v.Fits, v.Rule, v.Note = false, "contract-missed", fmt.Sprintf("%s requires %v, predicted is %s", e.Path, e.Want, timeOf(e.Have))
	return writeIndented(w, refusal{Version: Version, Profile: e.plan.Profile, Verdict: v, Error: e.Error(), Ledger: e.plan.Ledger, Changes: []Change{}})
}

// Error returns one line.
func (e *LatencyError) Error() string {
	remedy := "take a smaller model, a format with fewer bytes, or a faster machine; or raise the bound"
	if e.Fewer > 0 {
		remedy = fmt.Sprintf("%s of that length would meet it; or raise the bound", numberOf(e.Fewer, "sequence"))
	}
	return fmt.Sprintf("%v: %s: requires %v, predicted is %s ± %.0f %% (%s); %s", e.Pos, e.Path, e.Want, timeOf(e.Have), 100*e.Band, e.Basis, remedy)
}

// checkLatencies checks require.itl and require.ttft against the predicted speed. The error is a
// *LatencyError for a bound that is not met.
func (w resolved) checkLatencies(p *Plan) error {
	q := w.in.Profile.Require
	if q == nil || q.ITL == nil && q.TTFT == nil {
		return nil
	}
	pr, r, err := p.predictor()
	if err != nil {
		path := "require.itl"
		if q.ITL == nil {
			path = "require.ttft"
		}
		remedy := "leave it out"
		if none := (*speed.NoRowError)(nil); errors.As(err, &none) && p.Backend != "cpu" {
			remedy += ", or plan for a CPU"
		}
		return w.in.Profile.Reject(path, "%v; %s", err, remedy)
	}
	check := func(path string, l *schema.Latency, predict func(streams int) (float64, error)) error {
		if l == nil {
			return nil
		}
		if l.Tokens >= p.Options.MaxModelLen {
			return w.in.Profile.Reject(path, "%v: sequences have less than %d tokens (maxModelLen)", *l, p.Options.MaxModelLen)
		}
		if l.Sequences > p.Options.MaxNumSeqs {
			return w.in.Profile.Reject(path, "%v: at most %d sequences run at once (scheduler.maxNumSeqs)", *l, p.Options.MaxNumSeqs)
		}
		if n := p.admitted(l.Tokens + 1); l.Sequences > n {
			return w.in.Profile.Reject(path, "%v: the KV cache holds %s of that length; raise memory.kvCache, or require fewer or shorter ones", *l, numberOf(n, "sequence"))
		}
		have, err := predict(l.Sequences)
		if err != nil {
			return w.in.Profile.Reject(path, "%v", err)
		}
		if have < l.Below.Time().Seconds() {
			return nil
		}
		e := &LatencyError{Pos: w.in.Profile.Pos(path), Path: path, Want: *l, Have: have, Basis: r.words(), Band: r.band, plan: p}
		for n := l.Sequences / 2; n > 0; n /= 2 {
			if t, err := predict(n); err == nil && t < l.Below.Time().Seconds() {
				e.Fewer = n
				break
			}
		}
		return e
	}
	itl := func(n int) (float64, error) { return pr.DecodeStep(n, q.ITL.Tokens), nil }
	ttft := func(n int) (float64, error) {
		f, err := pr.Load(engine.Load{Streams: n, Prompt: q.TTFT.Tokens, Output: 1})
		return f.First, err
	}
	return cmp.Or(check("require.itl", q.ITL, itl), check("require.ttft", q.TTFT, ttft))
}
