package review

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

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
	broken := State{Profile: chat.Profile, Err: "profiles/big.cue:4:2: memory: does not fit: 3.1 GiB missing\nand more of it"}
	return Of("main", "HEAD", []File{
		{Path: "profiles/same.cue", Old: &chat, New: &chat},
		{Path: "profiles/longer.cue", Old: &chat, New: &longer},
		{Path: "profiles/named.cue", Old: &chat, New: &named},
		{Path: "profiles/new.cue", New: &chat},
		{Path: "profiles/gone.cue", Old: &chat},
		{Path: "profiles/big.cue", Old: &chat, New: &broken},
		{Path: "profiles/mended.cue", Old: &broken, New: &chat},
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
