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

// Class is the reload class of a field: how a change is applied to a running server.
type Class string

// The classes: Live, Drain and Restart from the schema's @reload attributes, Structural for fields
// without one. A change of class Structural needs a new engine, one of class Restart a new process.
const (
	Live       Class = "live"
	Drain      Class = "drain"
	Structural Class = "structural"
	Restart    Class = "restart"
)

// severity orders classes, Restart last.
func (c Class) severity() int { return slices.Index([]Class{"", Live, Drain, Structural, Restart}, c) }

// Change is one field that differs between two profiles. Old and New are the resolved
// values as JSON, "" if absent; keys are hidden.
type Change struct {
	Path     string `json:"path"`
	Old, New string
	Class    Class `json:"class"`
}

// String returns one line: path: old → new (class).
func (c Change) String() string {
	return fmt.Sprintf("%s: %s → %s (%s)", c.Path, cmp.Or(c.Old, "absent"), cmp.Or(c.New, "absent"), c.Class)
}

// Changes lists the differences between two profiles by path.
type Changes []Change

// Class returns the most severe class of the changes, "" without changes.
func (cs Changes) Class() Class {
	var worst Class
	for _, c := range cs {
		if c.Class.severity() > worst.severity() {
			worst = c.Class
		}
	}
	return worst
}

// String returns one line per change.
func (cs Changes) String() string {
	lines := make([]string, len(cs))
	for i, c := range cs {
		lines[i] = c.String()
	}
	return strings.Join(lines, "\n")
}

// Diff compares two resolved profiles field by field; a list is one field. The notation of
// a value ("1K" or 1024) and its position make no difference.
func Diff(old, new *Profile) Changes {
	var cs Changes
	compare(&cs, fieldsOfProfile(), tree(old), tree(new))
	return cs
}

// fieldsOfProfile returns the tree of the schema's fields; it is read-only.
var fieldsOfProfile = sync.OnceValue(func() *field {
	lang, err := readLanguage(cuecontext.New())
	if err != nil {
		panic("schema: " + err.Error()) // the embedded files are invalid; no input causes this
	}
	return lang.root
})

// tree returns the profile as JSON values, with keys that compare in clear text.
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

// compare appends the changes of f. It descends if both sides are structs, or one is a
// struct and the other is absent.
func compare(cs *Changes, f *field, old, new any) {
	a, isStruct := old.(map[string]any)
	b, alsoStruct := new.(map[string]any)
	if !f.leaf() && (isStruct || old == nil) && (alsoStruct || new == nil) && (isStruct || alsoStruct) {
		for _, label := range labelsOf(a, b) {
			if m := f.member(label); m != nil {
				at := *m
				at.path = join(f.path, label)
				if (old == nil || new == nil) && f.class.severity() > at.class.severity() {
					at.class = f.class // adding or removing the struct is a change of its own class
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

// labelsOf returns the labels of both, sorted.
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

// valueText returns v as JSON; a Key is hidden.
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
