package schema

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

	"cuelang.org/go/cue/cuecontext"
)

// Class is what it takes to apply a change to a running server.
type Class string

// The classes, from the schema's @reload attributes; Structural where a field
// has none.
const (
	Live       Class = "live"
	Drain      Class = "drain"
	Structural Class = "structural"
)

// weight orders classes, the worst last.
func (c Class) weight() int { return slices.Index([]Class{"", Live, Drain, Structural}, c) }

// Change is one field that differs between two profiles. Old and New are the
// resolved values as JSON, "" where absent; keys are hidden.
type Change struct {
	Path     string `json:"path"`
	Old, New string
	Class    Class `json:"class"`
}

// String is one line: path: old → new (class).
func (c Change) String() string {
	return fmt.Sprintf("%s: %s → %s (%s)", c.Path, cmp.Or(c.Old, "absent"), cmp.Or(c.New, "absent"), c.Class)
}

// Changes are the differences between two profiles, by path.
type Changes []Change

// Class is the worst of the changes, "" where there is none.
func (cs Changes) Class() Class {
	var worst Class
	for _, c := range cs {
		if c.Class.weight() > worst.weight() {
			worst = c.Class
		}
	}
	return worst
}

// String is one line for each change.
func (cs Changes) String() string {
	lines := make([]string, len(cs))
	for i, c := range cs {
		lines[i] = c.String()
	}
	return strings.Join(lines, "\n")
}

// Diff compares two resolved profiles field by field; a list is one field.
// How a value was written does not count, nor where.
func Diff(old, new *Profile) Changes {
	var cs Changes
	compare(&cs, fieldsOfProfile(), tree(old), tree(new))
	return cs
}

// fieldsOfProfile is the tree of fields with their classes; it is read only.
var fieldsOfProfile = sync.OnceValue(func() *field {
	lang, err := readLanguage(cuecontext.New())
	if err != nil {
		panic("schema: " + err.Error()) // the embedded files are broken; no input does this
	}
	return lang.root
})

// tree is the profile as JSON values, keys in clear.
func tree(p *Profile) any {
	text, err := json.Marshal(p)
	var v map[string]any
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	if err != nil {
		panic("schema: " + err.Error()) // a Profile is plain data
	}
	keys := make([]any, len(p.Serve.APIKeys))
	for i, k := range p.Serve.APIKeys {
		keys[i] = k
	}
	v["serve"].(map[string]any)["apiKeys"] = keys
	return v
}

// compare descends where both sides are structs with fields of their own, or one is and
// the other absent.
func compare(cs *Changes, f *field, old, new any) {
	a, isStruct := old.(map[string]any)
	b, alsoStruct := new.(map[string]any)
	if !f.leaf() && (isStruct || old == nil) && (alsoStruct || new == nil) && (isStruct || alsoStruct) {
		for _, label := range labelsOf(a, b) {
			if m := f.member(label); m != nil {
				at := *m
				at.path = join(f.path, label)
				if (old == nil || new == nil) && f.class.weight() > at.class.weight() {
					at.class = f.class // that there is such a struct at all
				}
				compare(cs, &at, a[label], b[label])
			}
		}
		return
	}
	if !reflect.DeepEqual(old, new) {
		*cs = append(*cs, Change{Path: f.path, Old: valueText(old), New: valueText(new), Class: f.class})
	}
}

// labelsOf are the labels of both, sorted.
func labelsOf(a, b map[string]any) []string {
	var list []string
	for k := range a {
		list = append(list, k)
	}
	for k := range b {
		list = append(list, k)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// valueText is v as JSON; a Key marshals hidden.
func valueText(v any) string {
	if v == nil {
		return ""
	}
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(text)
}
