package main

import (
	"bytes"
	"html"
	"os"
	"regexp"
	"strings"
	"testing"
)

// svgText matches one text of docs/plan.svg.
var svgText = regexp.MustCompile(`<text x="[^"]*" y="(\d+)"[^>]*>([^<]*)</text>`)

// TestPlanPicture compares the ledger of docs/plan.svg with what the command prints. The bar and the
// curve above it are drawn on a terminal only: `scripts/plan-svg.sh --check` compares them too.
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
	_, drawn, found := strings.Cut(strings.Join(lines, "\n"), "\nvapp plan: gemma4-fp8\n")
	if !found || lines[0] != "$ vapp plan profiles/gemma4-fp8.cue --gpu a100-80g" {
		t.Fatalf("docs/plan.svg does not begin with the command and its plan: %q", lines)
	}
	t.Setenv("HF_HUB_CACHE", t.TempDir()) // cached weights would change the line that names the source
	root := newRoot()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetArgs([]string{"plan", "../../profiles/gemma4-fp8.cue", "--gpu", "a100-80g"})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	var printed []string
	for _, line := range strings.Split(out.String(), "\n") {
		if line = strings.Join(strings.Fields(line), " "); line != "" {
			printed = append(printed, line)
		}
	}
	want := strings.Join(printed[1:], "\n")
	if !strings.HasPrefix(want, drawn+"\n") {
		t.Errorf("docs/plan.svg is stale; scripts/plan-svg.sh bin/vapp writes it\ngot:\n%s\nwant:\n%s", drawn, want)
	}
}
