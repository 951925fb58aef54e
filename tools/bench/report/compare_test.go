package report

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const resultA = `{"date":"20260102-030405","backend":"openai","model_id":"tiny","num_prompts":10,"request_rate":"inf","burstiness":1,
"max_concurrency":null,"duration":10,"completed":10,"failed":0,"total_input_tokens":100,"total_output_tokens":200,"request_throughput":1,
"request_goodput":null,"output_throughput":20.5,"total_token_throughput":30,"mean_ttft_ms":100,"median_ttft_ms":90,"p99_ttft_ms":200,"p5_ttft_ms":50,"std_ttft_ms":3,"mean_itl_ms":0}`

// TestCompare checks the order of rows, that both results have them, and the marks for better and
// worse.
func TestCompare(t *testing.T) {
	b := strings.NewReplacer(`"output_throughput":20.5`, `"output_throughput":41`, `"p99_ttft_ms":200`, `"p99_ttft_ms":250`, `"completed":10`, `"completed":8`,
		`"failed":0`, `"failed":2`, `"model_id":"tiny"`, `"model_id":"big"`, `"p5_ttft_ms"`, `"p7_ttft_ms"`).Replace(resultA)
	got, err := Compare(named(t, "a.json", resultA), named(t, "b.json", b))
	if err != nil {
		t.Fatal(err)
	}
	want := `=================== Comparison ===================
A: a.json (tiny, 20260102-030405, rate inf, concurrency -)
B: b.json (big, 20260102-030405, rate inf, concurrency -)
Not the same work: model is tiny in A and big in B.
                                                  A            B      B/A    change
Successful requests                              10            8    0.80x    -20.0%
Failed requests                                   0            2        -         -  worse
Benchmark duration (s)                           10           10    1.00x     +0.0%
Total generated tokens                          200          200    1.00x     +0.0%
Request throughput (req/s)                        1            1    1.00x     +0.0%
Output token throughput (tok/s)               20.50           41    2.00x   +100.0%  better
Total token throughput (tok/s)                   30           30    1.00x     +0.0%
Mean TTFT (ms)                                  100          100    1.00x     +0.0%
Median TTFT (ms)                                 90           90    1.00x     +0.0%
P99 TTFT (ms)                                   200          250    1.25x    +25.0%  worse
Mean ITL (ms)                                     0            0        -     +0.0%
==================================================
`
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func named(t *testing.T, name, text string) Named {
	t.Helper()
	r, err := ParseSaved([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return Named{name, r}
}

// TestCompareSweeps checks that runs of the same rate and concurrency are compared.
func TestCompareSweeps(t *testing.T) {
	at := func(n string) string {
		return strings.Replace(resultA, `"max_concurrency":null`, `"max_concurrency":`+n, 1)
	}
	a, b := named(t, "a", "["+at("1")+","+at("2")+"]"), named(t, "b", at("2")+"\n"+at("4")+"\n")
	got, err := Compare(a, b)
	if err != nil || strings.Count(got, " Comparison ") != 1 || !strings.Contains(got, "1 runs of one file have no counterpart") {
		t.Errorf("%v\n%s", err, got)
	}
	if _, err := Compare(named(t, "a", "["+at("1")+","+at("2")+"]"), named(t, "b", at("8"))); err == nil || !strings.Contains(err.Error(), "a and b have no run in common") {
		t.Error(err)
	}
}

// TestNoResult checks that invalid files are refused with position and remedy.
func TestNoResult(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  "1:1: no result in it",
		"\n\n {":                            "no result of a benchmark: unexpected EOF",
		"{\n \"a\": x}":                     "2:7: no result of a benchmark: invalid character 'x'",
		"7":                                 "1:1, result 1: no result of a benchmark: it is no object",
		"null":                              "it is no object",
		`{"elapsed_time": 3}`:               "it has no duration",
		resultA + "\n" + `{"duration": 3}`:  "4:1, result 2: no result of a benchmark: it has no completed",
		`[{"duration":1,"completed":"no"}]`: "it has no completed",
	} {
		_, err := ParseSaved([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasSuffix(err.Error(), remedy) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// FuzzResult checks that no file makes the parser or the comparison panic.
func FuzzResult(f *testing.F) {
	f.Add([]byte(resultA))
	f.Add([]byte("[" + resultA + "]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := ParseSaved(text)
		if err != nil {
			return
		}
		if len(r) == 0 {
			t.Fatal("no result and no error")
		}
		if _, err := Compare(Named{"a", r}, Named{"b", r}); err != nil {
			t.Fatal(err)
		}
	})
}

// TestSweep checks one line for each run, JSON that parses back, and a page whose charts have all
// points at finite coordinates.
func TestSweep(t *testing.T) {
	s := Sweep{goldens(t)["drawn.json"].result(), goldens(t)["plain.json"].result(), goldens(t)["nothing.json"].result()}
	for i := range s {
		s[i].MaxConcurrency, s[i].Model = 1<<i, "<tiny>"
	}
	lines := strings.Split(s.Table(), "\n")
	if got := strings.Join(strings.Fields(lines[2]), " "); len(lines) != 5 || !strings.HasPrefix(got, "2 3 0 1.20 4.00 157.60 500.00 990.00 500.00 ") {
		t.Errorf("%d lines, %s", len(lines), got)
	}
	text, err := s.JSON(false)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := ParseSaved(text); err != nil || len(r) != 3 || r[2].word("max_concurrency") != "4" {
		t.Errorf("%d results, %v", len(r), err)
	}
	page := s.HTML()
	if strings.Count(page, "<svg") != 4 || strings.Count(page, "<circle") != 6*len(s) || strings.Contains(page, "NaN") || strings.Contains(page, "Inf") || strings.Contains(page, "<tiny>") || strings.Contains(page, "%!") {
		t.Error(page)
	}
}

// TestStep checks that there are about five grid lines for any range.
func TestStep(t *testing.T) {
	for _, top := range []float64{1e-9, 0.3, 1, 7, 99, 100, 101, 12345, 1e12} {
		if n := math.Ceil(top / step(top)); n < 2 || n > 7 {
			t.Errorf("%v: %v lines of %v", top, n, step(top))
		}
	}
}

// TestOffline checks the printed rows and the saved keys of latency and throughput.
func TestOffline(t *testing.T) {
	l := Latency{[]float64{1, 2, 4, 3}, 4}
	want := "Avg latency: 2.5 seconds\n10% percentile latency: 1.3 seconds\n25% percentile latency: 1.75 seconds\n50% percentile latency: 2.5 seconds\n" +
		"75% percentile latency: 3.25 seconds\n90% percentile latency: 3.7 seconds\n99% percentile latency: 3.9699999999999998 seconds\n"
	if d := cmp.Diff(want, l.Text()); d != "" {
		t.Error(d)
	}
	text, err := l.JSON()
	var saved struct {
		Avg         float64 `json:"avg_latency"`
		Latencies   []float64
		Percentiles map[string]float64
	}
	if err != nil || json.Unmarshal(text, &saved) != nil || saved.Avg != 2.5 || saved.Latencies[2] != 4 || saved.Percentiles["75"] != 3.25 {
		t.Errorf("%s, %v", text, err)
	}
	x := Throughput{Seconds: 4, Asked: 10, Requests: 10, Input: 100, Output: 300}
	if got, want := x.Text(), "Throughput: 2.50 requests/s, 100.00 total tokens/s, 75.00 output tokens/s\nTotal num prompt tokens:  100\nTotal num output tokens:  300\n"; got != want {
		t.Errorf("%q", got)
	}
	if text, err = x.JSON(); err != nil || !strings.Contains(string(text), "\"tokens_per_second\": 100\n") {
		t.Errorf("%s, %v", text, err)
	}
	l.Asked, x.Asked = 30, 1000
	for got, want := range map[string]string{
		l.Text(): "Interrupted: 4 of 30 iterations were finished, and the figures are of those alone.\n",
		x.Text(): "Interrupted: 10 of 1000 requests were finished, and the figures are of those alone.\n",
	} {
		if !strings.HasSuffix(got, "\n"+want) {
			t.Errorf("%q, want %q at its end", got, want)
		}
	}
	for _, r := range []interface{ JSON() ([]byte, error) }{l, x} {
		if text, err = r.JSON(); err != nil || !strings.Contains(string(text), "\"partial\": true\n") {
			t.Errorf("%s, %v", text, err)
		}
	}
}
