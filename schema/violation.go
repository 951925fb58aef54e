package schema

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	cueerrors "cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/token"
)

// policies checks the resolved profile against the policies in these files. The error lists
// the violations.
func (x *explainer) policies(p *Profile, names []string) error {
	if len(names) == 0 {
		return nil
	}
	text, err := json.Marshal(p)
	if err != nil {
		return problem(Invalid, x.src.name, "%v", err)
	}
	data := x.lang.profile.Context().CompileBytes(text)
	var list []Problem
	for _, name := range names {
		q, err := readPolicy(x.lang, name)
		if own := (*Error)(nil); errors.As(err, &own) {
			list = append(list, own.List...)
			continue
		}
		list = append(list, x.violations(q, data)...)
	}
	if len(list) > 0 {
		return newError(list)
	}
	return nil
}

// violations returns the violations of a policy by the profile data, one problem per field.
func (x *explainer) violations(q *policy, data cue.Value) []Problem {
	both := q.value.Unify(data)
	var list []Problem
	reported := map[string]bool{}
	if err := both.Validate(cue.Concrete(true), cue.Final()); err != nil {
		groups := x.group(cueerrors.Errors(err))
		for _, g := range groups {
			if !g.consequence(groups, x) && !q.met(g, data) {
				reported[g.path] = true
				list = append(list, x.violation(q, g, data))
			}
		}
	}
	for _, path := range x.absent(q, both, data, "") {
		if !reported[path] {
			list = append(list, x.violation(q, &group{path: path}, data))
		}
	}
	return list
}

// absent returns the paths of the fields that the policy requires and the profile lacks.
func (x *explainer) absent(q *policy, both, data cue.Value, path string) []string {
	fields, err := both.Fields()
	if err != nil {
		return nil
	}
	var list []string
	for fields.Next() {
		if fields.Selector().LabelType() != cue.StringLabel {
			continue
		}
		at := join(path, fields.Selector().Unquoted())
		switch in := data.LookupPath(cue.MakePath(fields.Selector())); {
		case in.Exists():
			list = append(list, x.absent(q, fields.Value(), in, at)...)
		case len(q.src.assigned[at]) > 0 || q.src.own(fields.Value().Pos()):
			list = append(list, at)
		}
	}
	return list
}

// violation returns the problem of one field, with the positions of the field and of the
// policy's rule.
func (x *explainer) violation(q *policy, g *group, data cue.Value) Problem {
	p := Problem{Kind: Policy, Path: g.path, Pos: x.src.position(g.path)}
	if s := x.src.assigned[g.path]; len(s) > 0 {
		p.Pos = x.src.place(s[0].value.Pos())
	}
	r := q.rule(g)
	at := Position{File: shown(q.src.name)}
	if r.at.IsValid() {
		at = q.src.place(r.at)
	}
	value := x.valueAt(g, data)
	p.Message = fmt.Sprintf("%s: policy %v ", cmp.Or(value, "not set"), at)
	switch text := oneLine(source(r.value)); {
	case value == "" && (text == "_" || !short(text) || r.value == nil):
		p.Message += "wants it"
	case value == "":
		p.Message += "wants " + text
	case r.value == nil || !short(text):
		p.Message += "does not allow this"
	default:
		p.Message += "allows " + text
	}
	if r.message != "" {
		p.Message += " (" + r.message + ")"
	}
	return p
}

// valueAt returns the field's value in the resolved profile as text, "" if it has none.
func (x *explainer) valueAt(g *group, data cue.Value) string {
	at := lookup(data, g.path)
	text, err := at.MarshalJSON()
	switch {
	case !at.Exists() || err != nil:
		return ""
	case x.secret(g.path) && string(text) != "[]":
		return hidden
	case !short(string(text)):
		return "this value"
	case len(x.src.assigned[g.path]) > 0 || strings.HasSuffix(g.path, "]"):
		return string(text)
	}
	return string(text) + " (default)"
}

// secret reports whether the field, or a field that contains it, must not be printed.
func (x *explainer) secret(path string) bool {
	f := x.lang.root
	for _, label := range labels(path) {
		if f = f.member(label); f == nil {
			return false
		}
		if f.secret {
			return true
		}
	}
	return false
}

// rule returns the rule that the group violates: the innermost rule around a position in
// CUE's errors, else the rule of the field or of the nearest field that contains it.
func (q *policy) rule(g *group) rule {
	var best rule
	for _, e := range g.errs {
		for _, at := range append([]token.Pos{e.Position()}, e.InputPositions()...) {
			for _, r := range q.rules {
				if r.contains(at) && (best.value == nil || r.value.Pos().Offset() >= best.value.Pos().Offset()) {
					best = r
				}
			}
		}
	}
	for path := g.path; best.value == nil && path != ""; path = path[:max(0, strings.LastIndexAny(path, ".["))] {
		if i := slices.IndexFunc(q.rules, func(r rule) bool { return r.path == path }); i >= 0 {
			best = q.rules[i]
		}
	}
	return best
}
