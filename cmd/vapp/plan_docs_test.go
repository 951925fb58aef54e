package main

import (
	"bytes"
	"html"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestGuidePlan compares the two blocks of the planning guide, the plan of the default model and what
// -v adds, with what the command prints; a line "…" stands for any lines.
func TestGuidePlan(t *testing.T) {
	if _, err := os.Stat("../../models/SmolLM2-135M-Instruct.Q4_1.gguf"); err != nil {
		t.Skip("not run: the default model is absent; `make model` fetches it")
	}
	guide, err := os.ReadFile("../../docs/guide/planning.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(guide), "`vapp plan profiles/smollm2.cue --gpu cpu-2c-8g`:")
	if !found {
		t.Fatal("docs/guide/planning.md lacks the command")
	}
	for _, args := range [][]string{{"--gpu", "cpu-2c-8g"}, {"--gpu", "cpu-2c-8g", "-v"}} {
		_, after, opened := strings.Cut(rest, "\n```\n")
		block, after, closed := strings.Cut(after, "\n```\n")
		if !opened || !closed {
			t.Fatal("docs/guide/planning.md lacks a block after the command")
		}
		quoted(t, block, planLines(t, "../../profiles/smollm2.cue", args...))
		rest = after
	}
}

// quoted checks that the lines of a block are among the printed ones, in their order and without gaps,
// except where the block has a line "…".
func quoted(t *testing.T, block string, printed []string) {
	t.Helper()
	rest := "\n" + strings.Join(printed, "\n") + "\n"
	for _, part := range strings.Split("\n"+squeezed(block)+"\n", "\n…\n") {
		part = "\n" + strings.Trim(part, "\n") + "\n"
		_, after, found := strings.Cut(rest, part)
		if !found && part != "\n\n" {
			t.Fatalf("docs/guide/planning.md has lines that the command does not print here\ngot:%swant one of:%s", part, rest)
		}
		if found {
			rest = "\n" + after
		}
	}
}

// planLines returns what `vapp plan` prints for arguments, squeezed and without empty lines.
func planLines(t *testing.T, profile string, args ...string) []string {
	t.Helper()
	t.Setenv("HF_HUB_CACHE", t.TempDir()) // cached weights would change the line that names the source
	root := newRoot()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetArgs(append([]string{"plan", profile}, args...))
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	return strings.Split(squeezed(out.String()), "\n")
}

// squeezed returns the lines of a text with single spaces, without empty lines.
func squeezed(text string) string {
	var out []string
	for _, line := range strings.Split(text, "\n") {
		if line = strings.Join(strings.Fields(line), " "); line != "" {
			out = append(out, line)
		}
	}
	return strings.Join(out, "\n")
}

// svgText matches one text of docs/plan.svg.
var svgText = regexp.MustCompile(`<text x="[^"]*" y="(\d+)"[^>]*>([^<]*)</text>`)

// TestPlanPicture compares the text of docs/plan.svg with what the command prints. The bar and the
// curve are drawn on a terminal only, in place of the line of the memory: `scripts/plan-svg.sh --check`
// compares them too.
func TestPlanPicture(t *testing.T) {
	svg, err := os.ReadFile("../../docs/plan.svg")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	row := ""
	for _, m := range svgText.FindAllStringSubmatch(string(svg), -1) {
		text := strings.Join(strings.Fields(html.UnescapeString(m[2])), " ")
		if m[1] == row {
			lines[len(lines)-1] += " " + text
		} else {
			lines = append(lines, text)
		}
		row = m[1]
	}
	if lines[0] != "$ vapp plan profiles/gemma4-fp8.cue --gpu a100-80g" {
		t.Fatalf("docs/plan.svg does not begin with the command: %q", lines)
	}
	from := slices.IndexFunc(lines, func(s string) bool { return strings.HasPrefix(s, "█") })
	to := slices.IndexFunc(lines, func(s string) bool { return strings.HasPrefix(s, "model ") })
	if from < 0 || to < from {
		t.Fatalf("docs/plan.svg has no bar above the model: %q", lines)
	}
	drawn := strings.Join(slices.Concat(lines[1:from], lines[to:]), "\n")
	printed := planLines(t, "../../profiles/gemma4-fp8.cue", "--gpu", "a100-80g")
	want := strings.Join(slices.DeleteFunc(printed, func(s string) bool { return strings.HasPrefix(s, "memory weights ") }), "\n")
	if !strings.HasPrefix(want, drawn+"\n") {
		t.Errorf("docs/plan.svg is stale; scripts/plan-svg.sh bin/vapp writes it\ngot:\n%s\nwant:\n%s", drawn, want)
	}
}
