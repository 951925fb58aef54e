package figures

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
)

// ReadLlamaBench takes the rates out of what llama-bench prints with -o json. The run
// of 32 tokens that warms up is left out.
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

// ReadBatchedBench takes the rate of 16 streams out of what llama-batched-bench prints
// as JSON lines among others.
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

// engineReport is what is used of vapp bench engine --json.
type engineReport struct {
	Limits struct{ Read, F32, BF16, Int8 float64 }
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

// ReadEngine takes rates, limits and memory out of what vapp bench engine --json
// prints, and where steps spend their time. rate is the operations a second that the
// machine was seen to do of int8, if those are multiplied; what vapp measured counts where it
// is more. 0: bf16 is, or what it stands for, at the rate that vapp measured.
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
	if _, whole := v[Sixteen]; whole { // the memory that the peer's is compared with
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

// rates adds what a row measured, and its limits.
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

// decodeLimit is the seconds that a decode step takes at least.
func (x engineRow) decodeLimit(read, rate float64) float64 {
	return max(x.StepBytes/read, float64(x.Streams)*x.DecodeOperations/rate)
}

// steps are those of a row that was profiled.
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

// ReadServe takes throughput and latencies out of what vapp bench serve saves. A run
// in which a request failed counts for nothing.
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

// ReadLimits takes the rates that tests/peer/limits prints. A machine with tiles
// multiplies with them.
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

// ReadTorch takes the rates that tests/peer/torch_rates.py prints.
func ReadTorch(out []byte) (Values, error) {
	var v Values
	if err := json.Unmarshal(out, &v); err != nil {
		return nil, fmt.Errorf("PyTorch: %w", err)
	}
	return v, need("PyTorch", v, Prefill512, Decode)
}

var serverLine = regexp.MustCompile(`(?m)^\s*server\s+[\d.]+ s\s+([\d.]+) %`)

// serverParts are the lines below it, set in further.
var serverParts = regexp.MustCompile(`(?m)^\s{10}(\S.*?)\s+[\d.]+ s\s+([\d.]+) %`)

// ReadStreams takes the server's share of all CPU time out of the log of
// TestStreamingCost.
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

// need says which figure a tool did not print.
func need(tool string, v Values, keys ...string) error {
	for _, k := range keys {
		if !(v[k] > 0) {
			return fmt.Errorf("%s printed no rate for %q", tool, k)
		}
	}
	return nil
}
