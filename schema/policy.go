package schema

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"cuelang.org/go/cue"
)

// PolicyFile is the file name of a policy: constraints in the form of a profile, which
// every profile in its folder and in the folders below it must meet.
//
//	package profiles
//
//	memory: utilization?: <=0.92 @message("above 0.92 nothing is left for the driver")
//	serve: apiKeys: [...{file!: string} | {env!: string}]
//	require!: concurrency!: _
//
// A policy is applied to the resolved profile: defaults are filled in, sizes and lengths
// are numbers (20Gi, 128Ki), and a key in clear text is "(hidden)". A policy never sets a
// value: a field that it has without "?" must be in the profile. Plain CUE tools apply it
// too, because they unify the files of one package in a folder and the folders above it.
const PolicyFile = "policy.cue"

const (
	maxPolicies = 32  // that apply to one profile
	maxParents  = 256 // folders that are searched
)

// policy is one file of constraints.
type policy struct {
	src   origin
	value cue.Value
	rules []rule
}

// policyFiles returns the policies that apply to a profile, the nearest first (there), and
// in a module also all paths where a policy would apply (all). It searches every folder
// from the profile's up to the module root, or, outside a module, to the root of the file
// system. The paths in there are relative if the profile's is.
func policyFiles(src *origin) (there, all []string, err error) {
	stop := moduleRoot(filepath.Dir(src.file))
	name := src.folder
	for dir := filepath.Dir(src.file); len(all) < maxParents; dir, name = filepath.Dir(dir), filepath.Join(name, "..") {
		file := filepath.Join(name, PolicyFile)
		at := filepath.Join(dir, PolicyFile)
		st, err := os.Lstat(at)
		if err == nil && st.Mode()&fs.ModeSymlink != 0 {
			if st, err = os.Stat(at); errors.Is(err, fs.ErrNotExist) {
				return nil, nil, problem(Unreadable, file, "a link whose target does not exist, so that the policy of the folders below is unknown")
			}
		}
		switch {
		case err == nil && !st.Mode().IsRegular():
			return nil, nil, problem(Unreadable, file, "not a regular file, so that the policy of the folders below cannot be read")
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

// LoadPolicy checks a policy without a profile: its syntax, fields that are not in the
// schema, and constraints that no value meets. The error is an *Error.
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

// readPolicy reads and checks a policy.
func readPolicy(lang *language, name string) (*policy, error) {
	data, err := readFile(name)
	if err != nil {
		return nil, err
	}
	src, inst, err := instance(document{name: name, data: data})
	if err != nil {
		return nil, err
	}
	p := &policy{src: src, value: lang.profile.Context().BuildInstance(inst)}
	p.src.assigned = map[string][]assignment{}
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

// comparable appends problems for constraints on sizes and lengths that are written as
// text, because the resolved profile has numbers there.
func (p *policy) comparable(x *explainer, f *field, v cue.Value, path string, list *[]Problem) {
	fields, err := v.Fields(cue.Optional(true))
	if err != nil {
		k := v.IncompleteKind()
		number := f.refers("#Size") || f.refers("#Tokens")
		if auto := v.Context().CompileString(`"auto"`).Unify(v).Err() == nil; number && k&cue.NumberKind == 0 && !auto {
			*list = append(*list, Problem{Kind: Invalid, Path: path, Pos: x.src.position(path),
				Message: "no value meets this: in a policy, sizes and lengths are numbers", Allowed: "such as <=20Gi or <=128Ki"})
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
