package schema

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"cuelang.org/go/cue/build"
)

// Reading is what one reading of a profile gives, also of one that is refused.
type Reading struct {
	Profile *Profile // nil where Err is not
	Err     error    // as Load's
	Access  *Access  // nil where serve.apiKeys and serve.tls cannot be evaluated

	// Files are those whose content decides, absolute: the profile, its policies (in a
	// module those that are not there yet too) and the packages that it imports.
	Files []string
	// Folders are those in which a new *.cue file is part of the profile, absolute.
	Folders []string
}

// Read is Load with what can be known of a profile that Load refuses.
func Read(path string) *Reading {
	file, err := profileFile(path)
	if err == nil && filepath.Base(file) == PolicyFile {
		err = problem(Invalid, file, "a policy, not a profile; name a profile below it")
	}
	var data []byte
	if err == nil {
		data, err = readFile(file)
	}
	r := &Reading{Err: err}
	if err == nil {
		r = readText(file, data)
	}
	if at, err := filepath.Abs(path); err == nil && file != path {
		r.Folders = append(r.Folders, at)
	}
	if at, err := filepath.Abs(file); err == nil && file != "" && !slices.Contains(r.Files, at) {
		r.Files = append(r.Files, at)
	}
	return r
}

// readText is Parse with the rest of a Reading.
func readText(name string, data []byte) *Reading {
	r, err := within(name, func() (*Reading, error) { return evaluated(name, data), nil })
	if err != nil {
		r = &Reading{Err: err}
	}
	return r
}

// evaluated reads what a profile says, and what it says of keys and its certificate where
// the rest is refused.
func evaluated(name string, data []byte) *Reading {
	r := &Reading{}
	x, v, err := evaluate(name, data)
	if err == nil {
		r.Profile, err = x.resolve(name, data, v)
	}
	names, all, refused := policyFiles(&x.src)
	if r.Profile != nil && refused == nil {
		r.Profile.origin.policies = all
		err = x.policies(r.Profile, names)
	} else if err == nil {
		err = refused
	}
	r.Files = append(append([]string{x.src.file}, all...), x.src.imported...)
	r.Folders = x.src.packages
	switch {
	case err == nil:
		r.Access = accessOf(r.Profile)
	case r.Profile != nil:
		r.Access = accessOf(r.Profile).without(err)
	case x.lang != nil:
		r.Access = x.access(v, len(names) == 0 && refused == nil)
	}
	if r.Err = err; err != nil {
		r.Profile = nil
	}
	return r
}

// note keeps which files the instance consists of, beside the profile and the schema.
func (o *origin) note(inst *build.Instance) {
	if moduleRoot(filepath.Dir(o.file)) != "" {
		o.imported = append(o.imported, filepath.Join(o.root, "cue.mod", "module.cue"))
	}
	seen := map[string]bool{}
	var walk func(list []*build.Instance)
	walk = func(list []*build.Instance) {
		for _, i := range list {
			if i.Dir == "" || i.ImportPath == ImportPath || seen[i.Dir] || !strings.HasPrefix(i.Dir, o.root) {
				continue
			}
			seen[i.Dir] = true
			o.packages = append(o.packages, i.Dir)
			for _, f := range i.BuildFiles {
				if filepath.IsAbs(f.Filename) {
					o.imported = append(o.imported, f.Filename)
				}
			}
			walk(i.Imports)
		}
	}
	walk(inst.Imports)
}

// Passing says whether the error may go away without a change of any file: something could
// not be read.
func Passing(err error) bool {
	var e *Error
	return errors.As(err, &e) && slices.ContainsFunc(e.List, func(p Problem) bool { return p.Kind == Unreadable || p.Kind == Import })
}
