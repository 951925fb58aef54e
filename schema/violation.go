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

// policies returns what in the resolved profile the policies of these names forbid.
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
		list = append(list, x.breaches(q, data)...)
	}
	if len(list) > 0 {
		return newError(list)
	}
	return nil
}

// breaches are what the profile does against the policy, one problem a field.
func (x *explainer) breaches(q *policy, data cue.Value) []Problem {
	both := q.value.Unify(data)
	var list []Problem
	told := map[string]bool{}
	if err := both.Validate(cue.Concrete(true), cue.Final()); err != nil {
		groups := x.group(cueerrors.Errors(err))
		for _, g := range groups {
			if !g.consequence(groups, x) && !q.met(g, data) {
				told[g.path] = true
				list = append(list, x.breach(q, g, data))
			}
		}
	}
	for _, path := range x.absent(q, both, data, "") {
		if !told[path] {
			list = append(list, x.breach(q, &group{path: path}, data))
		}
	}
	return list
}

// absent are the fields that the policy gives and the profile lacks.
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
		case len(q.src.said[at]) > 0 || q.src.own(fields.Value().Pos()):
			list = append(list, at)
		}
	}
	return list
}

// breach names both places: where the profile says the field, and the rule.
func (x *explainer) breach(q *policy, g *group, data cue.Value) Problem {
	p := Problem{Kind: Policy, Path: g.path, Pos: x.src.position(g.path)}
	if s := x.src.said[g.path]; len(s) > 0 {
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

// valueAt is what the resolved profile has for the field, "" where nothing.
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
	case len(x.src.said[g.path]) > 0 || strings.HasSuffix(g.path, "]"):
		return string(text)
	}
	return string(text) + " (default)"
}

// secret says whether the field or one around it is never printed.
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

// rule finds what the group breaks: the innermost rule around a place that CUE
// names, else the one for the field or for the nearest field around it.
func (q *policy) rule(g *group) rule {
	var best rule
	for _, e := range g.errs {
		for _, at := range append([]token.Pos{e.Position()}, e.InputPositions()...) {
			for _, r := range q.rules {
				if r.holds(at) && (best.value == nil || r.value.Pos().Offset() >= best.value.Pos().Offset()) {
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
