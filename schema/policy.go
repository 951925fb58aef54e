package schema

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"cuelang.org/go/cue"
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
	_, err := within(path, func() (*policy, error) {
		lang, err := freshLanguage()
		if err != nil {
			return nil, err
		}
		return readPolicy(lang, path)
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
