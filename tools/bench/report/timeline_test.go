package report

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTimeline compares the page with its golden, and checks that each gap has the color of its
// length: 10 and 20 ms are one run, then 30, then 60. A gap narrower than half a pixel merges with
// the next one.
func TestTimeline(t *testing.T) {
	traces := []Trace{
		{Start: 1, TTFT: 0.1, ITL: []float64{0.010, 0.020, 0.030, 0.060}, Latency: 0.22, Input: 8, Output: 5},
		{Start: 1.05, TTFT: 0.05, ITL: []float64{0.00001, 0.026, 0.00001}, Latency: 0.07602, Input: 8, Output: 4},
		{Start: 1.1, Latency: 0.1, Failure: &Failure{Reason: "HTTP 503", Detail: "<full>"}},
		{Start: 1.2, TTFT: 0.3, Latency: 0.3, Input: 8, Output: 1},
	}
	r := Make(Setup{Date: "20260304-050607", Backend: "openai", Model: "a <b> model", NumPrompts: 4, Metrics: []string{TTFT}}, traces, 0.5, nil)
	got := r.Timeline(Thresholds{25, 50})
	samePage(t, "testdata/timeline.html", got)
	_, drawing, _ := strings.Cut(got, "<svg")
	var bars []string
	for _, g := range strings.Split(drawing, "<g>")[1:] {
		classes := ""
		for _, rect := range strings.Split(g, `<rect class="`)[1:] {
			classes += rect[:2]
		}
		bars = append(bars, classes)
	}
	if diff := cmp.Diff([]string{"t0t1t2t3", "t0t2t1", "tf", "t0"}, bars); diff != "" {
		t.Errorf("bars (-want +got):\n%s", diff)
	}
	if strings.Contains(drawing, "<full>") || strings.Contains(got, "a <b> model") {
		t.Error("text that is not escaped")
	}
}

// TestTimelineOfNothing checks runs without requests, and runs whose requests took no time.
func TestTimelineOfNothing(t *testing.T) {
	for _, traces := range [][]Trace{nil, {{Start: 3}}} {
		r := Make(Setup{}, traces, 0, nil)
		if got := r.Timeline(Thresholds{25, 50}); strings.Contains(got, "NaN") || strings.Contains(got, "Inf") {
			t.Errorf("%d requests: %s", len(traces), got)
		}
	}
}
