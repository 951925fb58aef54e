package plan

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// paths returns the JSON fields of a type: "capacity.classes[].page_bytes".
func paths(t reflect.Type, at string, seen []reflect.Type) []string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Slice, reflect.Array:
		return paths(t.Elem(), at+"[]", seen)
	case reflect.Struct:
	default:
		return []string{at}
	}
	if slices.Contains(seen, t) {
		return []string{at} // parts have the type of their parent
	}
	var out []string
	if at != "" {
		out = append(out, strings.TrimRight(at, "[]"))
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "-" {
			continue
		}
		if f.Anonymous && name == "" {
			inner := f.Type
			list := paths(inner, at, append(seen, t))
			out = append(out, list[min(1, len(at)):]...)
			continue
		}
		if name == "" {
			name = f.Name
		}
		if at != "" {
			name = at + "." + name
		}
		out = append(out, paths(f.Type, name, append(seen, t))...)
	}
	return out
}

// TestDocumented: docs/plan-json.md has a row for every field of what plan and fit
// print with --json, and no row of another.
func TestDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/plan-json.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]any{"## The plan": document{}, "## A plan that is refused": refusal{}, "## --why-not": Answer{}, "## --explain": Explanation{}, "## vapp fit": matrix{},
		"## Several profiles": jointDocument{}, "## Several profiles that are refused": jointRefusal{}}
	for head, v := range sections {
		_, text, ok := strings.Cut(string(page), head+"\n")
		if !ok {
			t.Errorf("no section %q", head)
			continue
		}
		text, _, _ = strings.Cut(text, "\n## ")
		var rows []string
		for _, line := range strings.Split(text, "\n") {
			if field, _, ok := strings.Cut(strings.TrimPrefix(line, "| `"), "` |"); ok && strings.HasPrefix(line, "| `") {
				rows = append(rows, field)
			}
		}
		want := paths(reflect.TypeOf(v), "", nil)
		for i, p := range want {
			want[i] = strings.TrimRight(p, "[]")
		}
		for _, p := range want {
			if !slices.Contains(rows, p) {
				t.Errorf("%s: `%s` is not documented", head, p)
			}
		}
		for _, r := range rows {
			if !slices.Contains(want, r) {
				t.Errorf("%s: `%s` is documented and does not exist", head, r)
			}
		}
	}
}
