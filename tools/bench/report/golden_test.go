package report

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// golden is a file written by testdata/record.py: traces and the figures that numpy computes from
// them.
type golden struct {
	Setup struct {
		Date, Backend, Label, Model, Tokenizer string
		Metadata                               [][2]string
		Rate                                   any
		Burstiness                             float64
		MaxConcurrency                         int   `json:"max_concurrency"`
		RampUp                                 []any `json:"ramp_up"`
		Goodput                                Goodput
		Metrics                                []string
		Percentiles                            []float64
	}
	Seconds     float64
	Traces      []Trace
	Speculation *struct {
		Drafts      float64
		DraftTokens float64 `json:"draft_tokens"`
		Accepted    float64
		Positions   []float64
	}
	JSON  json.RawMessage
	Table string
}

func (g *golden) result() Result {
	s := Setup{
		Date: g.Setup.Date, Backend: g.Setup.Backend, Label: g.Setup.Label, Model: g.Setup.Model, Tokenizer: g.Setup.Tokenizer,
		NumPrompts: len(g.Traces), Metadata: g.Setup.Metadata, Rate: math.Inf(1), Burstiness: g.Setup.Burstiness,
		MaxConcurrency: g.Setup.MaxConcurrency, Goodput: g.Setup.Goodput, Metrics: g.Setup.Metrics, Percentiles: g.Setup.Percentiles,
	}
	if x, ok := g.Setup.Rate.(float64); ok {
		s.Rate = x
	}
	if r := g.Setup.RampUp; r != nil {
		s.RampUp, s.RampStart, s.RampEnd = r[0].(string), r[1].(float64), r[2].(float64)
	}
	var spec *Speculation
	if p := g.Speculation; p != nil {
		spec = &Speculation{p.Drafts, p.DraftTokens, p.Accepted, p.Positions}
	}
	return Make(s, g.Traces, g.Seconds, spec)
}

func goldens(t testing.TB) map[string]*golden {
	t.Helper()
	files, err := filepath.Glob("testdata/*.json*")
	if err != nil || len(files) < 9 {
		t.Fatalf("%d goldens, %v", len(files), err)
	}
	out := map[string]*golden{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(f, ".gz") {
			z, err := gzip.NewReader(bytes.NewReader(text))
			if err != nil {
				t.Fatalf("%s: %v", f, err)
			}
			if text, err = io.ReadAll(z); err != nil {
				t.Fatalf("%s: %v", f, err)
			}
		}
		g := &golden{}
		if err := json.Unmarshal(text, g); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		out[strings.TrimSuffix(filepath.Base(f), ".gz")] = g
	}
	return out
}

// TestGoldens compares the table byte for byte, and the saved figures key by key within rounding,
// with those that numpy computes from the same traces.
func TestGoldens(t *testing.T) {
	for name, g := range goldens(t) {
		r := g.result()
		if d := cmp.Diff(g.Table, r.Table()); d != "" {
			t.Errorf("%s: table:\n%s", name, d)
		}
		text, err := r.JSON(false)
		if err != nil {
			t.Fatal(err)
		}
		want, got := pairs(t, g.JSON), pairs(t, text)
		if len(want) != len(got) {
			t.Fatalf("%s: %d keys, want %d: %s", name, len(got), len(want), text)
		}
		for i := range want {
			if want[i].key != got[i].key || !same(want[i].value, got[i].value) {
				t.Errorf("%s: %s is %v, want %s %v", name, got[i].key, got[i].value, want[i].key, want[i].value)
			}
		}
	}
}

// pairs returns the keys of a JSON object in their order.
func pairs(t *testing.T, text []byte) object {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	if _, err := d.Token(); err != nil {
		t.Fatal(err)
	}
	var out object
	for d.More() {
		key, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		var v any
		if err := d.Decode(&v); err != nil {
			t.Fatal(err)
		}
		out.add(key.(string), v)
	}
	return out
}

func same(a, b any) bool {
	switch x := a.(type) {
	case float64:
		y, ok := b.(float64)
		return ok && math.Abs(x-y) <= 1e-9*max(1, math.Abs(x))
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for i := range x {
			if !same(x[i], y[i]) {
				return false
			}
		}
		return true
	}
	return a == b
}

// TestFailures checks the reasons, the most frequent first, with the first detail of each.
func TestFailures(t *testing.T) {
	r := goldens(t)["failures.json"].result()
	want := "Failed requests by reason:\n      2  HTTP 503: overloaded\n      1  closed early\n"
	if got := r.Failures(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if r = goldens(t)["plain.json"].result(); r.Failures() != "" {
		t.Errorf("%q of a run without failures", r.Failures())
	}
}

// TestDetails checks that the details have one entry for each request, including failed ones.
func TestDetails(t *testing.T) {
	r := goldens(t)["failures.json"].result()
	r.Traces[1].Text = "one\n\"two\""
	text, err := r.JSON(true)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		InputLens  []int       `json:"input_lens"`
		OutputLens []int       `json:"output_lens"`
		Starts     []float64   `json:"start_times"`
		TTFTs      []float64   `json:"ttfts"`
		ITLs       [][]float64 `json:"itls"`
		Texts      []string    `json:"generated_texts"`
		Errors     []string    `json:"errors"`
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]int{0, 3, 0, 0, 2}, got.OutputLens); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"HTTP 503: overloaded", "", "closed early", "HTTP 503: still overloaded", ""}, got.Errors); d != "" {
		t.Error(d)
	}
	for _, n := range []int{len(got.InputLens), len(got.Starts), len(got.TTFTs), len(got.ITLs), len(got.Texts)} {
		if n != 5 {
			t.Errorf("a list of %d, want 5", n)
		}
	}
	if got.Texts[1] != r.Traces[1].Text || len(got.ITLs[1]) != 2 {
		t.Errorf("request 1: %q, gaps %v", got.Texts[1], got.ITLs[1])
	}
}

// TestFileName checks the parts of the name: label or backend, rate, concurrency, the last part of
// the model's name and the date.
func TestFileName(t *testing.T) {
	r := Result{Setup: Setup{Date: "20260102-030405", Backend: "openai", Model: "org/tiny", Rate: math.Inf(1)}}
	if got := r.FileName(); got != "openai-infqps-tiny-20260102-030405.json" {
		t.Error(got)
	}
	r.Label, r.Rate, r.MaxConcurrency = "a/b", 10, 32
	if got := r.FileName(); got != "a_b-10.0qps-concurrency32-tiny-20260102-030405.json" {
		t.Error(got)
	}
	r.Rate, r.RampUp, r.RampStart, r.RampEnd = math.Inf(1), "linear", 1, 20.5
	if got := r.FileName(); got != "a_b-ramp-up-linear-1qps-20.5qps-concurrency32-tiny-20260102-030405.json" {
		t.Error(got)
	}
}

// TestMetadataOfFigures checks that a user's key that equals the key of a figure does not replace
// the figure.
func TestMetadataOfFigures(t *testing.T) {
	r := goldens(t)["plain.json"].result()
	r.Metadata = [][2]string{{"duration", "long"}, {"date", "today"}, {"run", "1"}, {"run", "2"}}
	text, err := r.JSON(false)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if got["duration"] != r.Duration || got["date"] != "today" || got["run"] != "2" {
		t.Error(got)
	}
	for _, key := range []string{"duration", "date", "run"} {
		if n := bytes.Count(text, []byte(`"`+key+`": `)); n != 1 {
			t.Errorf("%s is there %d times", key, n)
		}
	}
}
