package picture_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"vapp.dev/appliance/plan"
	"vapp.dev/appliance/plan/picture"
	"vapp.dev/engine"
	"vapp.dev/engine/backend/cuda"
	"vapp.dev/engine/backend/devices"
	"vapp.dev/schema"
)

func planned(t *testing.T, name string) *plan.Plan {
	t.Helper()
	p, err := schema.Load("../../../profiles/llama-3.2-1b.cue")
	if err != nil {
		t.Fatal(err)
	}
	p.Name = name
	d, err := devices.Find("l4")
	if err != nil {
		t.Fatal(err)
	}
	m, err := engine.Inspect(engine.Source{Path: "absent", Name: "meta-llama/Llama-3.2-1B", Format: "auto"})
	if err != nil {
		t.Fatal(err)
	}
	made, err := plan.Make(plan.Inputs{Profile: p, Model: m, Opener: cuda.Opener{}, Facts: d.Facts("cuda")})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func TestSegments(t *testing.T) {
	p := planned(t, "llama")
	pic := picture.Of(p)
	var sum int64
	for _, s := range pic.Segments {
		sum += s.Bytes
	}
	if sum != pic.Total || pic.Total != p.Facts.TotalBytes {
		t.Errorf("the bar sums to %d of %d", sum, p.Facts.TotalBytes)
	}
	if last := pic.Segments[len(pic.Segments)-1]; last.Name != "free" || last.Bytes != p.Facts.TotalBytes-p.Ledger.Total() {
		t.Errorf("free is %+v", last)
	}
	for i, q := range pic.Points[1:] {
		if q.Sequences > pic.Points[i].Sequences || q.Tokens <= pic.Points[i].Tokens {
			t.Errorf("the curve rises: %v, %v", pic.Points[i], q)
		}
	}
	if last := pic.Points[len(pic.Points)-1]; last.Tokens != p.Options.MaxModelLen {
		t.Errorf("the curve ends at %v", last)
	}
}

// TestTerminal: no line is wider than the terminal, and there are colours only on request.
func TestTerminal(t *testing.T) {
	p := planned(t, "llama")
	for _, width := range []int{0, 40, 60, 80, 100, 300} {
		out := picture.Terminal(p, width, false)
		for _, line := range strings.Split(out, "\n") {
			if n := utf8.RuneCountInString(line); n > max(40, width) && !strings.Contains(line, "logarithmic") {
				t.Errorf("%d columns in a terminal of %d: %q", n, width, line)
			}
		}
		if strings.Contains(out, "\x1b") {
			t.Error("colours were not asked for")
		}
		if colour := picture.Terminal(p, width, true); !strings.Contains(colour, "\x1b[34m") || strings.Count(colour, "\x1b[0m") < 3 {
			t.Error("colours were asked for")
		}
	}
	if a, b := picture.Terminal(p, 80, false), picture.Terminal(p, 80, false); a != b {
		t.Error("two pictures of one plan differ")
	}
}

// TestHTML: the page is well formed, fetches nothing and escapes every text.
func TestHTML(t *testing.T) {
	p := planned(t, `<script>alert("x")</script>`)
	var b bytes.Buffer
	if err := picture.HTML(&b, p); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	for _, not := range []string{"<script", "http://", "https://", "src=", "@import", "url(", "ZgotmplZ"} {
		if strings.Contains(page, not) {
			t.Errorf("the page has %q", not)
		}
	}
	for _, want := range []string{"prefers-color-scheme", "<svg", "&lt;script&gt;", "NVIDIA L4", "linear_"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	d := xml.NewDecoder(strings.NewReader(page))
	d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
