package review

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"vapp.dev/appliance/plan"
	"vapp.dev/internal/goldentest"
	"vapp.dev/schema"
)

func profileOf(t testing.TB, lines string) *schema.Profile {
	t.Helper()
	text := "import \"vapp.dev/schema\"\n\nschema.#Profile & {\n\tname: \"chat\"\n\tmodel: source: \"org/model\"\n" + lines + "}\n"
	p, err := schema.Parse(filepath.Join(t.TempDir(), "chat.cue"), []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// figures returns the figures of a plan with this many KV tokens of 32 KiB.
func figures(tokens int64, longest, seqs int) *Figures {
	f := &Figures{
		Model: "org/model", Machine: "cuda · NVIDIA L4 · 22.5 GiB", KVTokens: tokens, MaxModelLen: longest, MaxNumSeqs: seqs,
		Ledger:    []Line{{"weights", 2_471_645_184, plan.Exact}, {"kv", tokens << 15, plan.Exact}, {"reserve", 256 << 20, plan.Held}},
		Decisions: []Decision{{"kv cache dtype", "bfloat16"}},
	}
	for _, n := range []int{1024, 8192, longest} {
		f.Lengths = append(f.Lengths, Fit{n, int(tokens) / n})
	}
	for _, l := range f.Ledger {
		f.Total += l.Bytes
	}
	return f
}

// everything returns a review with one profile of each status.
func everything(t testing.TB) *Review {
	chat := State{Profile: profileOf(t, ""), Figures: figures(262_144, 32_768, 256)}
	longer := State{
		Profile: profileOf(t, "\tmaxModelLen: \"64K\"\n\tscheduler: maxNumSeqs: 64\n\tserve: apiKeys: [\"sk-secret\"]\n"),
		Figures: figures(131_072, 65_536, 64),
	}
	longer.Figures.Decisions[0].Value = "fp8"
	named := State{Profile: profileOf(t, "\tserve: servedModelName: [\"a|b`c\"]\n"), Figures: chat.Figures}
	split := State{Profile: profileOf(t, "\tparallel: tensor: 2\n\tserve: metricsCompat: true\n"), Figures: chat.Figures}
	broken := State{Profile: chat.Profile, Err: "profiles/big.cue:4:2: memory: does not fit: 3.1 GiB missing\nand more of it"}
	return Of("main", "HEAD", []File{
		{Path: "profiles/same.cue", Old: &chat, New: &chat},
		{Path: "profiles/longer.cue", Old: &chat, New: &longer, Transition: &plan.Transition{
			Way: plan.Rebuild, Mode: schema.Report, KeepsWeights: true, PrefixCache: "starts empty",
			Why:       "rebuild, after the running requests: the weights are the same (2.30 GiB, kept); <both> KV caches do not fit at once",
			Gap:       plan.Gap{Drain: schema.Duration(30 * time.Second), Load: schema.Duration(4 * time.Second), Basis: "last load"},
			Footprint: plan.Footprint{Old: 12 << 30, New: 8 << 30, Shared: 2 << 30, Peak: 18 << 30, Limit: 16 << 30, Rule: "all memory"},
			Host:      &plan.Footprint{Old: 1 << 30, New: 1 << 30, Peak: 2 << 30},
		}},
		{Path: "profiles/named.cue", Old: &chat, New: &named, Transition: &plan.Transition{Why: "nothing is structural: not shown"}},
		{Path: "profiles/new.cue", New: &chat},
		{Path: "profiles/gone.cue", Old: &chat},
		{Path: "profiles/big.cue", Old: &chat, New: &broken},
		{Path: "profiles/mended.cue", Old: &broken, New: &chat},
		{Path: "profiles/split.cue", Old: &chat, New: &split, Refused: "parallel.tensor: the model has 2 ranks"},
	})
}

func TestGolden(t *testing.T) {
	r := everything(t)
	for name, print := range map[string]func(io.Writer) error{"review.txt": r.Text, "review.md": r.Markdown, "review.json": r.JSON} {
		var got bytes.Buffer
		if err := print(&got); err != nil {
			t.Fatal(err)
		}
		text := numbered(got.String())
		goldentest.Compare(t, filepath.Join("testdata", name), text)
		if strings.Contains(text, "sk-secret") {
			t.Errorf("%s shows a key", name)
		}
	}
}

// TestHTML: the page has the way, the gap and the memory of both engines as bars whose parts are the whole of them, and
// escapes foreign texts.
func TestHTML(t *testing.T) {
	r := everything(t)
	var got bytes.Buffer
	if err := r.HTML(&got); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"<title>vapp diff: main → HEAD</title>", "reload.structural is &#34;report&#34;", "&lt;both&gt; KV caches do not fit at once",
		"at most 30s until the running requests have ended, then about 4 s of load", "A running server cannot make it: parallel.tensor",
		`<rect x="888.9" y="0" width="111.1" height="20" class="over"><title>missing: 2.00 GiB</title></rect>`, "a|b`c",
		"restart: the server must be started again",
	} {
		if !strings.Contains(got.String(), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if n := strings.Count(got.String(), "<svg"); n != 2 || strings.Contains(got.String(), "sk-secret") || strings.Contains(got.String(), "not shown") {
		t.Errorf("%d bars:\n%s", n, got.String())
	}
	for _, c := range []plan.Footprint{
		{Old: 12, New: 8, Shared: 2, Peak: 18, Limit: 16}, {Old: 5, New: 5, Peak: 10, Limit: 20}, {Old: 5, New: 5, Peak: 10}, {New: 5, Peak: 7, Limit: 20},
	} {
		sum := 0.0
		for _, p := range barOf("memory", &c).Parts {
			var w float64
			fmt.Sscan(p.W, &w)
			sum += w
		}
		if sum < 999.5 || sum > 1000.5 {
			t.Errorf("%+v: the parts of the bar are %.1f of 1000 wide", c, sum)
		}
	}
}

// numbered replaces hashes of profiles by numbers in order of appearance: the hashes change with
// every new field of the schema.
func numbered(text string) string {
	names := map[string]string{}
	return regexp.MustCompile(`"[0-9a-f]{64}"`).ReplaceAllStringFunc(text, func(hash string) string {
		if names[hash] == "" {
			names[hash] = fmt.Sprintf("%q", fmt.Sprintf("hash %d", len(names)+1))
		}
		return names[hash]
	})
}

// TestVerdict checks what counts as worse and better: no figure is listed whose two values print alike, and no
// change of memory or of the KV cache below 0.1 %; the tables have such changes, exactly.
func TestVerdict(t *testing.T) {
	base := figures(262_144, 32_768, 256)
	change := func(edit func(*Figures)) *Figures {
		f := figures(262_144, 32_768, 256)
		edit(f)
		return f
	}
	for name, c := range map[string]struct {
		new           *Figures
		worse, better string
	}{
		"equal":                {change(func(*Figures) {}), "", ""},
		"64 KiB more":          {change(func(f *Figures) { f.Total += 64 << 10 }), "", ""},
		"64 KiB less":          {change(func(f *Figures) { f.Total -= 64 << 10 }), "", ""},
		"a page fewer":         {change(func(f *Figures) { f.KVTokens -= 16 }), "", ""},
		"1 % more memory":      {change(func(f *Figures) { f.Total += f.Total / 100 }), "memory 10.55 GiB → 10.66 GiB (+1 %)", ""},
		"0.2 % more memory":    {change(func(f *Figures) { f.Total += f.Total / 500 }), "memory 10.55 GiB → 10.57 GiB (+0.2 %)", ""},
		"0.2 % less KV":        {change(func(f *Figures) { f.KVTokens -= 524 }), "KV cache 262,144 → 261,620 tokens (−0.2 %)", ""},
		"one sequence fewer":   {change(func(f *Figures) { f.Lengths[0].Sequences-- }), "256 → 255 sequences of 1,024 tokens (−0.39 %)", ""},
		"a block shorter":      {change(func(f *Figures) { f.MaxModelLen -= 16 }), "longest sequence 32,768 → 32,752 tokens (−0.049 %)", ""},
		"more run at once":     {change(func(f *Figures) { f.MaxNumSeqs = 257 }), "", "at most 256 → 257 run at once (+0.39 %)"},
		"a token of a million": {change(func(f *Figures) { f.MaxModelLen = 32_769 }), "", "longest sequence 32,768 → 32,769 tokens (+0.0031 %)"},
	} {
		worse, better := verdict(base, c.new)
		if got := strings.Join(worse, "; "); got != c.worse {
			t.Errorf("%s: worse %q, want %q", name, got, c.worse)
		}
		if got := strings.Join(better, "; "); got != c.better {
			t.Errorf("%s: better %q, want %q", name, got, c.better)
		}
	}
}

// TestSizes: two sizes that differ never print alike.
func TestSizes(t *testing.T) {
	for _, c := range []struct {
		a, b int64
		want string
	}{
		{1 << 30, 2 << 30, "1.00 GiB 2.00 GiB"},
		{1 << 30, 1<<30 + 4<<20, "1,024.0 MiB 1,028.0 MiB"},
		{1 << 30, 1<<30 - 1<<20, "1.00 GiB 1023.0 MiB"},
		{5 << 20, 5<<20 + 20<<10, "5,120.0 KiB 5,140.0 KiB"},
		{5 << 20, 5<<20 + 16, "5,242,880 B 5,242,896 B"},
		{2<<30 - 1, 2 << 30, "2,147,483,647 B 2,147,483,648 B"},
	} {
		a, b := sizes(c.a, c.b)
		if got := a + " " + b; got != c.want {
			t.Errorf("sizes(%d, %d) = %s, want %s", c.a, c.b, got, c.want)
		}
	}
}

// TestNoise: a change of a few bytes is in the tables of every form, and in no sentence.
func TestNoise(t *testing.T) {
	old := &State{Profile: profileOf(t, ""), Figures: figures(262_144, 32_768, 256)}
	moved := figures(262_144, 32_768, 256)
	moved.Ledger[0].Bytes += 64 << 10
	moved.Total += 64 << 10
	r := Of("main", "HEAD", []File{{Path: "p.cue", Old: old, New: &State{Profile: profileOf(t, "\tserve: port: 9000\n"), Figures: moved}}})
	var text, markdown, js bytes.Buffer
	if err := errors.Join(r.Text(&text), r.Markdown(&markdown), r.JSON(&js)); err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string]string{"text": text.String(), "markdown": markdown.String(), "json": js.String()} {
		if strings.Contains(got, "10.55 GiB → 10.55 GiB") || strings.Contains(got, "0 %") || strings.Contains(strings.ToLower(got), "gets worse") {
			t.Errorf("%s has a change that prints alike:\n%s", name, got)
		}
	}
	if !strings.Contains(text.String(), "+64.0 KiB") || !strings.Contains(markdown.String(), "+64.0 KiB") || !strings.Contains(js.String(), `"worse": []`) {
		t.Errorf("the exact change is missing:\n%s\n%s", text.String(), markdown.String())
	}
}

// TestExitCode checks the code 0 for equal sides, 1 for changes, 2 only where the new side fails.
func TestExitCode(t *testing.T) {
	good := &State{Profile: profileOf(t, ""), Figures: figures(8192, 8192, 1)}
	other := &State{Profile: profileOf(t, "\tlog: level: \"debug\"\n"), Figures: figures(8192, 8192, 1)}
	moved := &State{Profile: good.Profile, Figures: figures(16384, 8192, 1)}
	bad := &State{Err: "no"}
	for name, c := range map[string]struct {
		old, new *State
		code     int
		class    schema.Class
	}{
		"same":             {good, good, 0, ""},
		"live":             {good, other, 1, schema.Live},
		"files of a model": {good, moved, 1, schema.Structural},
		"added":            {nil, good, 1, ""},
		"removed":          {good, nil, 1, ""},
		"old fails":        {bad, good, 1, schema.Structural},
		"old fails, gone":  {bad, nil, 1, ""},
		"new fails":        {good, bad, 2, ""},
		"both fail":        {bad, bad, 2, ""},
		"new one fails":    {nil, bad, 2, ""},
	} {
		r := Of("a", "b", []File{{Path: "p.cue", Old: c.old, New: c.new}})
		if r.ExitCode() != c.code || r.Class() != c.class {
			t.Errorf("%s: code %d, class %q; want %d, %q", name, r.ExitCode(), r.Class(), c.code, c.class)
		}
	}
}

// TestMarkdownIsBounded checks the length of the comment, because GitHub refuses longer ones.
func TestMarkdownIsBounded(t *testing.T) {
	good := &State{Profile: profileOf(t, ""), Figures: figures(8192, 8192, 1)}
	var files []File
	for i := range 500 {
		files = append(files, File{Path: fmt.Sprintf("p%03d.cue", i), New: good})
	}
	files = append(files, File{Path: "q.cue", New: &State{Err: strings.Repeat("x", 200_000)}})
	var b bytes.Buffer
	if err := Of("a", "b", files).Markdown(&b); err != nil {
		t.Fatal(err)
	}
	if b.Len() > 65_536 || !strings.Contains(b.String(), "left out") || !strings.Contains(b.String(), "`q.cue` cannot be planned") {
		t.Errorf("%d bytes", b.Len())
	}
}

// FuzzMarkdown checks that no file name or error text breaks the structure of the comment: every
// section is closed, every row has its cells, and no HTML of the texts remains.
func FuzzMarkdown(f *testing.F) {
	f.Add("p.cue", "no")
	f.Add("</code></summary></details>|`", "```\n</details>\n|a|b|")
	f.Add("a\nb", "``````")
	f.Fuzz(func(t *testing.T, path, text string) {
		fig := figures(8192, 8192, 1)
		r := Of("a`", path, []File{{Path: path, Old: &State{Figures: fig}, New: &State{Err: "x" + text}}})
		var b, j bytes.Buffer
		if err := r.Markdown(&b); err != nil {
			t.Fatal(err)
		}
		inFence := ""
		opened, closed := 0, 0
		for line := range strings.Lines(b.String()) {
			line = strings.TrimRight(line, "\n")
			switch {
			case inFence != "" && line == inFence:
				inFence = ""
			case inFence != "":
				if !strings.HasPrefix(line, "    ") {
					t.Fatalf("out of its block: %q", line)
				}
			case strings.HasPrefix(line, "```"):
				inFence = strings.TrimSuffix(line, "text")
			case line == "<details>":
				opened++
			case line == "</details>":
				closed++
			case strings.HasPrefix(line, "| ") && strings.Count(strings.ReplaceAll(line, `\|`, ""), "|") > 8:
				t.Fatalf("a row of too many cells: %q", line)
			}
		}
		if opened != 1 || closed != 1 || inFence != "" {
			t.Fatalf("%d sections opened, %d closed:\n%s", opened, closed, b.String())
		}
		if err := r.JSON(&j); err != nil || !json.Valid(j.Bytes()) {
			t.Fatalf("JSON: %v", err)
		}
	})
}
