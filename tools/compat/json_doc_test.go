package compat

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDocumented checks that section --compat of docs/plan-json.md has exactly one row for each
// JSON field of a Report.
func TestDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/plan-json.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(page), "## --compat\n")
	if !ok {
		t.Fatal("docs/plan-json.md has no section --compat")
	}
	text, _, _ = strings.Cut(text, "\n## ")
	var got []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(text, -1) {
		got = append(got, m[1])
	}
	want := []string{"compat", "compat.release", "compat.lines"}
	line := reflect.TypeFor[Line]()
	for i := range line.NumField() {
		name, _, _ := strings.Cut(line.Field(i).Tag.Get("json"), ",")
		want = append(want, "compat.lines[]."+name)
	}
	if n := reflect.TypeFor[Report]().NumField(); n != 2 {
		t.Errorf("a Report has %d fields, want 2: add the new ones to this test", n)
	}
	if !slices.Equal(got, want) {
		t.Errorf("documented fields\n got %q\nwant %q", got, want)
	}
}
