package figures

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
)

// ReadLlamaBench returns the rates in the output of llama-bench -o json, without the warm-up
// of 32 tokens.
func ReadLlamaBench(out []byte) (Values, error) {
	var tests []struct {
		Prompt int     `json:"n_prompt"`
		Gen    int     `json:"n_gen"`
		Rate   float64 `json:"avg_ts"`
	}
	if err := json.Unmarshal(out, &tests); err != nil {
		return nil, fmt.Errorf("llama-bench: %w", err)
	}
	v := Values{}
	for _, t := range tests {
		switch {
		case !(t.Rate > 0):
			return nil, fmt.Errorf("llama-bench printed a rate of %v for %d+%d", t.Rate, t.Prompt, t.Gen)
		case t.Prompt == 512 && t.Gen == 0:
			v[Prefill512] = t.Rate
		case t.Prompt == 2048 && t.Gen == 0:
			v[Prefill2048] = t.Rate
		case t.Prompt == 0 && t.Gen > 0:
			v[Decode] = t.Rate
		}
	}
	if len(v) == 0 {
		return nil, fmt.Errorf("llama-bench printed no rate")
	}
	return v, nil
}

// ReadBatchedBench returns the rate of 16 streams in the output of llama-batched-bench, which
// has JSON lines and others.
func ReadBatchedBench(out []byte) (Values, error) {
	v := Values{}
	for line := range bytes.Lines(out) {
		var t struct {
			Streams int     `json:"pl"`
			Rate    float64 `json:"speed"`
		}
		if json.Unmarshal(line, &t) == nil && t.Streams == 16 {
			v[Sixteen] = t.Rate
		}
	}
	return v, need("llama-batched-bench", v, Sixteen)
}

// engineReport is the part of the output of vapp bench engine --json that is used.
type engineReport struct {
	Limits struct{ Read, F32, BF16, Int8 float64 }
	Load   float64 `json:"load_seconds"`
	Matrix float64 `json:"matrix_rate"`
	Rows   []engineRow
	Memory struct {
		Arenas  int64 `json:"arenas_planned"`
		Taken   int64 `json:"arenas_taken"`
		Planned int64
		Peak    int64
		Items   []struct {
			Item  string
			Bytes float64
			Basis string
		}
	}
}

type engineRow struct {
	Work
	Prefill, Decode, Total []float64
	StepBytes              float64 `json:"step_bytes"`
	PromptOperations       float64 `json:"prompt_operations"`
	DecodeOperations       float64 `json:"decode_operations"`
	Steps                  []struct {
		Kind  string
		Steps float64
		Ops   []Op
	}
}

// ReadEngine returns the rates, limits, memory and times of ops in the output of vapp bench
// engine --json. rate is the machine's measured rate of int8 operations per second, if the
// side multiplies int8; a higher rate in the output takes precedence. 0: the side multiplies
// bf16, at the rate in the output.
func ReadEngine(out []byte, rate float64) (v Values, steps []Step, err error) {
	var r engineReport
	if err := json.Unmarshal(out, &r); err != nil {
		return nil, nil, fmt.Errorf("vapp bench engine: %w", err)
	}
	if rate == 0 {
		rate = max(r.Limits.BF16, r.Matrix)
	} else {
		rate = max(rate, r.Limits.Int8)
	}
	v = Values{Bandwidth: r.Limits.Read, RateF32: r.Limits.F32, RateBF16: r.Limits.BF16}
	if r.Load > 0 {
		v[Start] = r.Load
	}
	v[Arenas] = float64(r.Memory.Taken - r.Memory.Arenas)
	for _, x := range r.Rows {
		if len(x.Prefill) != 1 || len(x.Total) != 1 || x.StepBytes <= 0 || x.PromptOperations <= 0 {
			return nil, nil, fmt.Errorf("vapp bench engine: the row of %v is not of one run", x.Work)
		}
		x.rates(v, r.Limits.Read, rate)
		steps = append(steps, x.steps(r.Limits.Read, rate)...)
	}
	if len(r.Rows) == 0 || !(r.Limits.Read > 0) || !(rate > 0) {
		return nil, nil, fmt.Errorf("vapp bench engine: it measured nothing")
	}
	if _, whole := v[Sixteen]; whole { // the run whose memory is compared with the peer's
		r.memory(v)
	}
	return v, steps, nil
}

func (r engineReport) memory(v Values) {
	v[Peak], v[Planned] = float64(r.Memory.Peak), float64(r.Memory.Planned)
	for _, x := range r.Memory.Items {
		if x.Basis != "apart" && x.Basis != "host" {
			v[Item+x.Item] = x.Bytes
		}
	}
}

// rates adds the rates and limits of a row.
func (x engineRow) rates(v Values, read, rate float64) {
	prompt := x.PromptOperations / rate
	switch {
	case x.Streams == 16:
		tokens := float64(16 * x.Prompt)
		v[Sixteen] = x.Total[0]
		v[SixteenLimit] = (tokens + float64(16*x.Output)) / (tokens*prompt + float64(x.Output)*x.decodeLimit(read, rate))
		v[FirstLimit] = 1e3 * tokens * prompt
	case x.Prompt == 512:
		v[Prefill512], v[PromptOps], v[MatrixLimit] = x.Prefill[0], x.PromptOperations, 1/prompt
	case x.Prompt == 2048:
		v[Prefill2048], v[MatrixLimit] = x.Prefill[0], 1/prompt
	case x.Prompt == 1 && len(x.Decode) == 1:
		v[Decode], v[DecodeLimit] = x.Decode[0], read/x.StepBytes
	}
}

// decodeLimit returns the minimum seconds of a decode step.
func (x engineRow) decodeLimit(read, rate float64) float64 {
	return max(x.StepBytes/read, float64(x.Streams)*x.DecodeOperations/rate)
}

// steps returns the steps of a profiled row.
func (x engineRow) steps(read, rate float64) []Step {
	var out []Step
	for _, s := range x.Steps {
		limit := x.decodeLimit(read, rate)
		if s.Kind == "prefill" {
			limit = float64(x.Streams*x.Prompt) * x.PromptOperations / max(1, s.Steps) / rate
		}
		out = append(out, Step{Work: x.Work, Kind: s.Kind, Limit: 1e6 * limit, Ops: s.Ops})
	}
	return out
}

// ReadServe returns throughput and latencies in the file of vapp bench serve. A run with a
// failed request is an error.
func ReadServe(saved []byte) (Values, error) {
	var r struct {
		Completed, Failed int
		Total             float64 `json:"total_token_throughput"`
		TTFT              float64 `json:"p99_ttft_ms"`
		MedianTTFT        float64 `json:"median_ttft_ms"`
		ITL               float64 `json:"p99_itl_ms"`
		MedianITL         float64 `json:"median_itl_ms"`
	}
	if err := json.Unmarshal(saved, &r); err != nil {
		return nil, fmt.Errorf("vapp bench serve: %w", err)
	}
	if r.Failed > 0 || r.Completed == 0 {
		return nil, fmt.Errorf("vapp bench serve: %d requests completed, %d failed", r.Completed, r.Failed)
	}
	v := Values{Served: r.Total, TTFT: r.TTFT, MedianTTFT: r.MedianTTFT, ITL: r.ITL, MedianITL: r.MedianITL}
	return v, need("vapp bench serve", v, Served, TTFT, ITL)
}

// ReadLimits returns the rates in the output of tests/peer/limits. On a machine with AMX tiles
// the matrix rates are those of tiles.
func ReadLimits(out []byte) (Values, error) {
	var v Values
	if err := json.Unmarshal(out, &v); err != nil {
		return nil, fmt.Errorf("limits: %w", err)
	}
	v[RateBF16], v[RateInt8] = max(v[RateBF16], v[TilesBF16]), max(v[RateInt8], v[TilesInt8])
	for k, x := range v {
		if x == 0 {
			delete(v, k)
		}
	}
	return v, need("limits", v, Bandwidth)
}

// ReadTorch returns the rates in the output of tests/peer/torch_rates.py.
func ReadTorch(out []byte) (Values, error) {
	var v Values
	if err := json.Unmarshal(out, &v); err != nil {
		return nil, fmt.Errorf("PyTorch: %w", err)
	}
	return v, need("PyTorch", v, Prefill512, Decode)
}

var serverLine = regexp.MustCompile(`(?m)^\s*server\s+[\d.]+ s\s+([\d.]+) %`)

// serverParts matches the indented lines below serverLine.
var serverParts = regexp.MustCompile(`(?m)^\s{10}(\S.*?)\s+[\d.]+ s\s+([\d.]+) %`)

// ReadStreams returns the server's share of all CPU time in the log of TestStreamingCost.
func ReadStreams(out []byte) (Values, error) {
	m := serverLine.FindSubmatch(out)
	if m == nil {
		return nil, fmt.Errorf("TestStreamingCost printed no line of the server's share")
	}
	share, err := strconv.ParseFloat(string(m[1]), 64)
	v := Values{ServerShare: share}
	for _, m := range serverParts.FindAllSubmatch(out, -1) {
		if v[ServerPart+string(m[1])], err = strconv.ParseFloat(string(m[2]), 64); err != nil {
			return nil, err
		}
	}
	return v, err
}

// need returns an error if a tool did not print one of these figures.
func need(tool string, v Values, keys ...string) error {
	for _, k := range keys {
		if !(v[k] > 0) {
			return fmt.Errorf("%s printed no rate for %q", tool, k)
		}
	}
	return nil
}
