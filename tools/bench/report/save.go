package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"path"
	"strings"
)

// object is a JSON object with ordered keys.
type object []struct {
	key   string
	value any
}

// add sets a key; an existing key keeps its position.
func (o *object) add(key string, value any) {
	for i := range *o {
		if (*o)[i].key == key {
			(*o)[i].value = value
			return
		}
	}
	*o = append(*o, struct {
		key   string
		value any
	}{key, value})
}

// MarshalJSON writes the keys in their order.
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, f := range o {
		if i > 0 {
			b.WriteString(", ")
		}
		key, err := json.Marshal(f.key)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(f.value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.key, err)
		}
		b.Write(key)
		b.WriteString(": ")
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// JSON returns the saved result: one object on one line. With detailed it includes the traces of
// each request.
func (r *Result) JSON(detailed bool) ([]byte, error) {
	o := r.setup()
	r.figures(&o)
	for _, s := range sections {
		if !r.shows(s.metric) {
			continue
		}
		by, m := r.By[s.metric], s.metric
		o.add("mean_"+m+"_ms", by.Mean)
		o.add("median_"+m+"_ms", by.Median)
		o.add("std_"+m+"_ms", by.Std)
		for i, p := range r.Percentiles {
			o.add("p"+word(p)+"_"+m+"_ms", by.Percentiles[i])
		}
	}
	if s := r.Speculation; s.hasDrafts() {
		s.figures(&o)
	}
	if r.Partial {
		o.add("partial", true)
	}
	if detailed {
		r.details(&o)
	}
	return o.MarshalJSON()
}

func (r *Result) setup() object {
	var o object
	o.add("date", r.Date)
	o.add("endpoint_type", r.Backend)
	o.add("backend", r.Backend)
	o.add("label", null(r.Label))
	o.add("model_id", r.Model)
	o.add("tokenizer_id", r.Tokenizer)
	o.add("num_prompts", r.NumPrompts)
	for _, kv := range r.Metadata {
		o.add(kv[0], kv[1])
	}
	o.add("request_rate", rate(r.Rate))
	o.add("burstiness", r.Burstiness)
	if r.MaxConcurrency > 0 {
		o.add("max_concurrency", r.MaxConcurrency)
	} else {
		o.add("max_concurrency", nil)
	}
	if r.RampUp != "" {
		o.add("ramp_up_strategy", r.RampUp)
		o.add("ramp_up_start_rps", r.RampStart)
		o.add("ramp_up_end_rps", r.RampEnd)
	}
	return o
}

func (r *Result) figures(o *object) {
	o.add("duration", r.Duration)
	o.add("completed", r.Completed)
	o.add("failed", r.Failed)
	o.add("total_input_tokens", r.Input)
	if !r.Pooling {
		o.add("total_output_tokens", r.Output)
	}
	o.add("request_throughput", r.RequestThroughput())
	if !r.Pooling {
		if r.Goodput != nil {
			o.add("request_goodput", r.GoodRequests())
		} else {
			o.add("request_goodput", nil)
		}
		o.add("output_throughput", r.OutputThroughput())
	}
	o.add("total_token_throughput", r.TotalThroughput())
	if !r.Pooling {
		o.add("max_output_tokens_per_s", r.PeakOutput)
		o.add("max_concurrent_requests", int(r.PeakConcurrent))
		o.add("rtfx", 0.0)
	}
}

func (s *Speculation) figures(o *object) {
	o.add("spec_decode_acceptance_rate", s.AcceptanceRate())
	o.add("spec_decode_acceptance_length", s.AcceptanceLength())
	o.add("spec_decode_num_drafts", int(s.Drafts))
	o.add("spec_decode_draft_tokens", int(s.DraftTokens))
	o.add("spec_decode_accepted_tokens", int(s.Accepted))
	rates := make([]float64, len(s.Positions))
	for i := range rates {
		rates[i] = s.At(i)
	}
	o.add("spec_decode_per_position_acceptance_rates", rates)
}

// details adds lists with one entry for each request, including failed ones.
func (r *Result) details(o *object) {
	n := len(r.Traces)
	in, out := make([]int, n), make([]int, n)
	starts, ttfts, itls := make([]float64, n), make([]float64, n), make([][]float64, n)
	texts, errors := make([]string, n), make([]string, n)
	for i, t := range r.Traces {
		in[i], out[i], starts[i], ttfts[i], itls[i], texts[i] = t.Input, t.Output, t.Start, t.TTFT, t.ITL, t.Text
		if t.ITL == nil {
			itls[i] = []float64{}
		}
		if t.Failure != nil {
			errors[i] = t.Failure.Error()
		}
	}
	o.add("input_lens", in)
	if !r.Pooling {
		o.add("output_lens", out)
	}
	o.add("start_times", starts)
	o.add("ttfts", ttfts)
	if !r.Pooling {
		o.add("itls", itls)
		o.add("generated_texts", texts)
	}
	o.add("errors", errors)
}

// FileName returns the default name of the result's file.
func (r *Result) FileName() string {
	label := r.Label
	if label == "" {
		label = r.Backend
	}
	bound := ""
	if r.MaxConcurrency > 0 {
		bound = fmt.Sprintf("-concurrency%d", r.MaxConcurrency)
	}
	rate := pythonFloat(r.Rate) + "qps"
	if r.RampUp != "" {
		rate = fmt.Sprintf("ramp-up-%s-%sqps-%sqps", r.RampUp, word(r.RampStart), word(r.RampEnd))
	}
	name := fmt.Sprintf("%s-%s%s-%s-%s.json", label, rate, bound, path.Base(r.Model), r.Date)
	return strings.NewReplacer("/", "_", "\\", "_", "\x00", "_").Replace(name)
}

// pythonFloat formats a number as Python prints a float: 10.0, 0.5, inf.
func pythonFloat(x float64) string {
	if math.IsInf(x, 1) {
		return "inf"
	}
	s := word(x)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// RateText formats a rate for the lines above the table.
func RateText(x float64) string { return pythonFloat(x) }

func rate(x float64) any {
	if math.IsInf(x, 1) {
		return "inf"
	}
	return x
}

func null(s string) any {
	if s == "" {
		return nil
	}
	return s
}
