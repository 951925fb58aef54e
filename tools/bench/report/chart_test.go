package report

import (
	"encoding/xml"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"

	"vapp.dev/internal/goldentest"
)

// swept returns a sweep with points close to each other.
func swept() Sweep {
	var s Sweep
	for i, seconds := range []float64{1, 1.01, 1.02, 2, 4} {
		trace := Trace{Input: 8, Output: 3, TTFT: seconds / 4, ITL: []float64{seconds / 8, seconds / 2}, Latency: seconds}
		setup := Setup{
			Date: "20260304-050607", Backend: "openai", Model: "a <b> model", NumPrompts: 2, MaxConcurrency: 1 << i,
			Metrics: []string{TTFT}, Percentiles: []float64{99},
		}
		s = append(s, Make(setup, []Trace{trace, trace}, 0.4+0.1*seconds/float64(i+1), nil))
	}
	return s
}

// samePage compares a page with its golden file. Look at a page that -update wrote in a browser.
func samePage(t *testing.T, path, got string) {
	t.Helper()
	goldentest.Compare(t, path, got)
}

// TestSweepPage compares the page of a sweep with its golden, and checks that its drawings are
// valid XML with all text inside the view.
func TestSweepPage(t *testing.T) {
	got := swept().HTML()
	samePage(t, "testdata/sweep.html", got)
	rest, names := got, 0
	for range 4 {
		_, after, found := strings.Cut(rest, "<svg")
		drawing, tail, ended := strings.Cut(after, "</svg>")
		if !found || !ended {
			t.Fatal("there are fewer than four drawings")
		}
		names += drawn(t, "<svg"+drawing+"</svg>")
		rest = tail
	}
	if names != 4 { // one of the five points overlaps another point's name
		t.Errorf("%d points have names, not 4", names)
	}
}

// drawn parses a drawing and checks that every coordinate is inside its view. It returns the number
// of named points.
func drawn(t *testing.T, svg string) (names int) {
	t.Helper()
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
		e, _ := token.(xml.StartElement)
		for _, a := range e.Attr {
			most := map[string]float64{"x": chartWide, "cx": plotRight, "y": chartHigh, "cy": plotBottom}[a.Name.Local]
			if most == 0 {
				if a.Name.Local == "class" && a.Value == "near" {
					names++
				}
				continue
			}
			if v, err := strconv.ParseFloat(a.Value, 64); err != nil || v < 0 || v > most {
				t.Errorf("%s: %s is %s, at most %v: %v", e.Name.Local, a.Name.Local, a.Value, most, err)
			}
		}
	}
}
