package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"
)

// Limits of the reader.
const (
	maxBytes = 1 << 20         // of one file
	maxTime  = 5 * time.Second // of the evaluation; see Parse
	tick     = maxTime / 50    // see within
)

// Load reads the profile in a .cue file, or the only one in a folder, and checks it
// against the schema and the policies above it (see PolicyFile). It writes nothing and
// reads only files: `import "vapp.dev/schema"` resolves to the definitions in this
// binary, even if the folder has a copy. The error is an *Error that lists all problems.
func Load(path string) (*Profile, error) {
	r := Read(path)
	return r.Profile, r.Err
}

// readFile reads at most one byte more than maxBytes of a regular file, which is then refused as
// TooLarge.
func readFile(name string) ([]byte, error) {
	if st, err := os.Stat(name); err == nil && !st.Mode().IsRegular() { // reading may never end
		return nil, problem(Unreadable, name, "is not a regular file")
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, problem(Unreadable, name, "%v", reason(err))
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return nil, problem(Unreadable, name, "%v", reason(err))
	}
	return data, nil
}

// profileFile returns path itself, or the only profile in the folder path.
func profileFile(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", problem(Unreadable, path, "%v", reason(err))
	}
	if !info.IsDir() {
		return path, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return "", problem(Unreadable, path, "%v", reason(err))
	}
	var names []string
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".cue") && !strings.HasPrefix(e.Name(), ".") && e.Name() != PolicyFile {
			names = append(names, e.Name())
		}
	}
	switch len(names) {
	case 1:
		return filepath.Join(path, names[0]), nil
	case 0:
		return "", problem(Unreadable, path, "no profile (*.cue) in this folder%s", holdsModel(path, entries))
	}
	return "", problem(Unreadable, path, "%d profiles in this folder, name one: %s", len(names), strings.Join(names, ", "))
}

// reason removes the path from an error of os, because a Problem already has it.
func reason(err error) error {
	if p, ok := err.(*os.PathError); ok {
		return p.Err
	}
	return err
}

// Parse is Load for a profile in memory. name is its file; imports are resolved from
// the folder of name, which need not exist.
//
// A CUE evaluation cannot be interrupted. Files whose evaluation could explode are
// refused before it (see guard.go and complexity.go). An evaluation that still takes
// longer than five seconds is refused as TooLarge; its goroutine ends with it.
func Parse(name string, data []byte) (*Profile, error) {
	r := document{name: name, data: data}.read()
	return r.Profile, r.Err
}

// within runs an evaluation and fails after maxTime, counted in ticks that this process saw. A
// process that is stopped, or gets no processor, sees few, so the profile is not refused for it.
func within[T any](name string, evaluate func() (T, error)) (T, error) {
	clock := time.NewTicker(tick)
	defer clock.Stop()
	return withinTicks(name, evaluate, clock.C, int(maxTime/tick))
}

// withinTicks is within with a clock, which most ticks end.
func withinTicks[T any](name string, evaluate func() (T, error), clock <-chan time.Time, most int) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		var r result
		defer func() {
			if cause := recover(); cause != nil { // a bug of CUE on unusual input
				r = result{err: problem(Invalid, name, "CUE cannot evaluate this: %s", oneLine(fmt.Sprint(cause)))}
			}
			done <- r
		}()
		r.value, r.err = evaluate()
	}()
	for range most {
		select {
		case r := <-done:
			return r.value, r.err
		case <-clock:
		}
	}
	var none T
	return none, problem(TooLarge, name, "takes longer than %v to evaluate; use fewer comprehensions, references and imports", maxTime)
}

// resolve converts the evaluated value into a Profile.
func (x *explainer) resolve(doc document, v cue.Value) (*Profile, error) {
	if list := x.check(v); len(list) > 0 {
		if list[0].Path == "" {
			if p, ok := commas(doc.data, shown(doc.name)); ok {
				return nil, newError([]Problem{p})
			}
		}
		return nil, newError((&search{doc: doc, text: bytes.Clone(doc.data)}).run(x, list))
	}
	text, err := v.MarshalJSON()
	if err != nil {
		return nil, newError(x.explain(err))
	}
	p := &Profile{origin: x.src}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(p); err != nil {
		return nil, problem(Invalid, doc.name, "%v", err)
	}
	return p, nil
}

// evaluate builds the instance and unifies it with #Profile. With an error, only the
// origin of the explainer is set.
func evaluate(doc document) (*explainer, cue.Value, error) {
	src, inst, err := instance(doc)
	if err != nil {
		return &explainer{src: src}, cue.Value{}, err
	}
	if len(doc.set) > 0 {
		if _, err := src.override(inst, doc.set); err != nil {
			return &explainer{src: src}, cue.Value{}, err
		}
	}
	ctx := cuecontext.New()
	v := ctx.BuildInstance(inst) // before the schema, so that an imported schema is built once
	lang, err := languageOf(ctx, inst)
	if err != nil {
		return &explainer{src: src}, v, problem(Unreadable, doc.name, "embedded schema: %v", err)
	}
	src.read(inst)
	return &explainer{lang: lang, src: src}, v.Unify(lang.profile), nil
}

// check returns the problems that CUE and quantities find in the value.
func (x *explainer) check(v cue.Value) []Problem {
	var list []Problem
	if err := v.Validate(cue.Concrete(true), cue.Final()); err != nil {
		list = x.explain(err)
	}
	return append(list, x.quantities(x.lang.root, v)...)
}
