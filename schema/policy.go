package schema

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	cueerrors "cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/token"
)

// PolicyFile is the name of a policy: constraints in the form of a profile,
// which every profile in its folder and below must meet.
//
//	package profiles
//
//	memory: utilization?: <=0.92 @message("above 0.92 nothing is left for the driver")
//	serve: apiKeys: [...{file!: string} | {env!: string}]
//	require!: concurrency!: _
//
// A policy is held against the resolved profile: defaults filled in, sizes and
// lengths as numbers (20Gi, 128Ki), a key in clear text as "(hidden)". It
// constrains and never fills in: a field that it gives without "?" must be in
// the profile. Plain CUE reads it the same way: files of one package in a
// folder and in those above it are one value.
const PolicyFile = "policy.cue"

const (
	maxPolicies = 32  // that bind one profile
	maxParents  = 256 // folders that are looked into
)

// policy is one file of constraints.
type policy struct {
	src   origin
	value cue.Value
	rules []rule
}

// policyFiles are the names of the policies that bind the profile of that name,
// the nearest first, and all files that would be policies if they were there:
// in every folder from the profile's up to the module root, or, outside a
// module, to the top. Names are relative where the profile's is.
func policyFiles(src *origin) (there, all []string, err error) {
	stop := moduleRoot(filepath.Dir(src.file))
	name := filepath.Dir(src.name)
	for dir := filepath.Dir(src.file); len(all) < maxParents; dir, name = filepath.Dir(dir), filepath.Join(name, "..") {
		file := filepath.Join(name, PolicyFile)
		at := filepath.Join(dir, PolicyFile)
		st, err := os.Lstat(at)
		if err == nil && st.Mode()&fs.ModeSymlink != 0 {
			if st, err = os.Stat(at); errors.Is(err, fs.ErrNotExist) {
				return nil, nil, problem(Unreadable, file, "a link that leads nowhere, so that nothing is known of the policy of what is below")
			}
		}
		switch {
		case err == nil && !st.Mode().IsRegular():
			return nil, nil, problem(Unreadable, file, "not a regular file, so that nothing can be read as the policy of what is below")
		case err == nil:
			there = append(there, file)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, nil, problem(Unreadable, file, "%v", reason(err))
		}
		if err == nil || stop != "" {
			all = append(all, at)
		}
		if dir == stop || dir == filepath.Dir(dir) {
			break
		}
	}
	if len(there) > maxPolicies {
		return nil, nil, problem(TooLarge, src.name, "more than %d policies in the folders above", maxPolicies)
	}
	return there, all, nil
}

// LoadPolicy says what is wrong with a policy by itself: bad syntax, fields that
// no profile has, constraints that none can meet. The error is an *Error.
func LoadPolicy(path string) error {
	_, err := within(path, func() (*Profile, error) {
		lang, err := freshLanguage()
		if err == nil {
			_, err = readPolicy(lang, path)
		}
		return nil, err
	})
	return err
}

func readPolicy(lang *language, name string) (*policy, error) {
	data, err := readFile(name)
	if err != nil {
		return nil, err
	}
	src, inst, err := instance(name, data)
	if err != nil {
		return nil, err
	}
	p := &policy{src: src, value: lang.profile.Context().BuildInstance(inst)}
	p.src.said = map[string][]saying{}
	for _, f := range inst.Files {
		p.declarations("", f.Decls)
	}
	x := &explainer{lang: lang, src: p.src}
	list := x.typos()
	if err := p.value.Unify(lang.profile).Validate(); err != nil && len(list) == 0 {
		list = x.explain(err)
	}
	if len(list) == 0 {
		p.comparable(x, lang.root, p.value, "", &list)
	}
	if len(list) > 0 {
		return nil, newError(list)
	}
	return p, nil
}

// comparable tells the constraints on sizes and lengths that are written as
// text: the resolved profile has numbers there.
func (p *policy) comparable(x *explainer, f *field, v cue.Value, path string, list *[]Problem) {
	fields, err := v.Fields(cue.Optional(true))
	if err != nil {
		k := v.IncompleteKind()
		number := f.refers("#Size") || f.refers("#Tokens")
		if auto := v.Context().CompileString(`"auto"`).Unify(v).Err() == nil; number && k&cue.NumberKind == 0 && !auto {
			*list = append(*list, Problem{Kind: Invalid, Path: path, Pos: x.src.position(path),
				Message: "no value meets this: to a policy sizes and lengths are numbers", Allowed: "such as <=20Gi or <=128Ki"})
		}
		return
	}
	for fields.Next() {
		if fields.Selector().LabelType() != cue.StringLabel {
			continue
		}
		label := fields.Selector().Unquoted()
		if m := f.member(label); m != nil {
			p.comparable(x, m, fields.Value(), join(path, label), list)
		}
	}
}

// policies holds the resolved profile against every policy that binds it, and
// notes in the profile which they are.
func (x *explainer) policies(p *Profile) error {
	names, all, err := policyFiles(&x.src)
	if err != nil {
		return err
	}
	p.origin.policies = all
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
