package picture_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"regexp"
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
	return plannedAt(t, name, 0)
}

// plannedAt returns the plan with that maxModelLen; 0: the profile's.
func plannedAt(t *testing.T, name string, tokens int) *plan.Plan {
	t.Helper()
	p, err := schema.Load("../../../profiles/llama-3.2-1b.cue")
	if err != nil {
		t.Fatal(err)
	}
	p.Name = name
	if tokens > 0 {
		p.MaxModelLen = schema.Count(tokens)
	}
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

// TestAxes: the marks below the curve are powers of two up to the longest length, the marks below the bar
// span the whole device, and a server that takes little of it is drawn enlarged too.
func TestAxes(t *testing.T) {
	p := planned(t, "llama")
	page := func() string {
		var b bytes.Buffer
		if err := picture.HTML(&b, p); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	axes := regexp.MustCompile(`<div class="axis"[^>]*>(.*)</div>`).FindAllStringSubmatch(page(), -1)
	if len(axes) != 2 {
		t.Fatalf("%d axes", len(axes))
	}
	var marks [2][]string
	for i, a := range axes {
		for _, m := range regexp.MustCompile(`>([^<]+)<`).FindAllStringSubmatch(a[1], -1) {
			marks[i] = append(marks[i], m[1])
		}
	}
	if got := strings.Join(marks[0], " "); got != "0 4 GiB 8 GiB 12 GiB 16 GiB 22.03 GiB" {
		t.Errorf("the bar's marks are %s", got)
	}
	if got := strings.Join(marks[1], " "); got != "256 512 1K 2K 4K 8K 16K 32K 64K 128K" {
		t.Errorf("the curve's marks are %s", got)
	}
	if strings.Contains(page(), "enlarged") {
		t.Error("the server takes most of the device and is drawn enlarged")
	}
	p.Facts.TotalBytes *= 4
	if got := page(); !strings.Contains(got, "GiB of the server, enlarged:") || !strings.Contains(got, "<title>free: ") {
		t.Error("the server takes little of the device and is not drawn enlarged")
	}
	odd := strings.Split(strings.TrimRight(picture.Terminal(plannedAt(t, "llama", 34_272), 100, false), "\n"), "\n")
	if got := strings.Join(strings.Fields(odd[len(odd)-1]), " "); got != "256 512 1K 2K 4K 8K 16K 34,272" {
		t.Errorf("up to 34,272 tokens the marks are %s", got)
	}
	for width, want := range map[int]string{40: "256 2K 16K 128K", 80: "256 512 1K 2K 4K 8K 16K 32K 64K 128K"} {
		lines := strings.Split(strings.TrimRight(picture.Terminal(p, width, false), "\n"), "\n")
		got := lines[len(lines)-1]
		if strings.Join(strings.Fields(got), " ") != want {
			t.Errorf("%d columns: %q, want %s", width, got, want)
		}
	}
}

// TestSections: the page ends with the given texts, escaped.
func TestSections(t *testing.T) {
	var b bytes.Buffer
	if err := picture.HTML(&b, planned(t, "llama"), picture.Section{Title: "Why <not>", Text: "a & b"}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "<h2>Why &lt;not&gt;</h2>\n<pre>a &amp; b</pre>") {
		t.Error("the section is missing")
	}
}
