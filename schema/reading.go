package schema

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"cuelang.org/go/cue/build"
)

// Reading is the result of reading a profile, including one that is refused.
type Reading struct {
	Profile *Profile // nil if Err is not nil
	Err     error    // the error of Load
	Access  *Access  // nil if serve.apiKeys and serve.tls cannot be evaluated

	// Files lists the absolute paths of all files that determine the result: the profile,
	// its policies (in a module also the paths of policies that do not exist yet) and the
	// imported packages.
	Files []string
	// Folders lists the absolute paths of folders in which a new *.cue file would become part
	// of the profile.
	Folders []string
}

// Input names a profile to read.
type Input struct {
	Path string // a file or a folder, as for Load; with Text what messages call the profile
	// Text is a profile that is in no file; nil: it is read from Path. Imports, policies and
	// relative paths are those of a file in the working directory.
	Text []byte
	Set  []Override
	// Draft reads a profile whose figures are not known yet: policies do not apply to it.
	Draft bool
}

// Read is Load, and also returns the files and the Access of a profile that Load refuses.
func Read(path string) *Reading { return Input{Path: path}.Read() }

// Read reads the profile as the function Read does, with the input's overrides.
func (in Input) Read() *Reading {
	if in.Text != nil {
		return document{name: in.Path, data: in.Text, memory: true, set: in.Set, draft: in.Draft}.read()
	}
	path := in.Path
	file, err := profileFile(path)
	if err == nil && filepath.Base(file) == PolicyFile {
		err = problem(Invalid, file, "a policy, not a profile; name a profile below it")
	}
	var data []byte
	if err == nil {
		data, err = readFile(file)
	}
	if err == nil {
		err = otherKind(file, data)
	}
	r := &Reading{Err: err}
	if err == nil {
		r = document{name: file, data: data, set: in.Set, draft: in.Draft}.read()
	}
	if at, err := filepath.Abs(path); err == nil && file != path {
		r.Folders = append(r.Folders, at)
	}
	if at, err := filepath.Abs(file); err == nil && file != "" && !slices.Contains(r.Files, at) {
		r.Files = append(r.Files, at)
	}
	return r
}

// read evaluates the document within the time limit.
func (doc document) read() *Reading {
	r, err := within(doc.name, func() (*Reading, error) { return evaluated(doc), nil })
	if err != nil {
		r = &Reading{Err: err}
	}
	r.Err = placed(r.Err, doc.set)
	return r
}

// evaluated reads a profile; if it is refused, at least its keys and its certificate.
func evaluated(doc document) *Reading {
	r := &Reading{}
	x, v, err := evaluate(doc)
	if err == nil {
		r.Profile, err = x.resolve(doc, v)
	}
	var names, all []string
	var refused error
	if !doc.draft {
		names, all, refused = policyFiles(&x.src)
	}
	if r.Profile != nil && refused == nil {
		r.Profile.origin.policies = all
		err = x.policies(r.Profile, names)
	} else if err == nil {
		err = refused
	}
	r.Files = append(append(x.src.files(), all...), x.src.imported...)
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

// note records the files of the instance other than the profile and the schema.
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

// Passing reports whether the error may disappear without a change of any file, because a
// file could not be read.
func Passing(err error) bool {
	var e *Error
	return errors.As(err, &e) && slices.ContainsFunc(e.List, func(p Problem) bool { return p.Kind == Unreadable || p.Kind == Import })
}
