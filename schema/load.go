package schema

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/build"
	"cuelang.org/go/cue/cuecontext"
)

// What the reader takes before it gives up.
const (
	maxBytes = 1 << 20         // of one file
	maxTime  = 5 * time.Second // of the evaluation; see Parse
)

// Load reads the profile in a .cue file, or the single one in a folder. Nothing
// is written and nothing but files is read: `import "vapp.dev/schema"` resolves
// to the definitions in this binary, also where the folder has a copy. The
// error is an *Error with everything that is wrong.
func Load(path string) (*Profile, error) {
	file, err := profileFile(path)
	if err != nil {
		return nil, err
	}
	f, oserr := os.Open(file)
	if oserr != nil {
		return nil, problem(Unreadable, file, "%v", reason(oserr))
	}
	defer f.Close()
	data, oserr := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if oserr != nil {
		return nil, problem(Unreadable, file, "%v", reason(oserr))
	}
	return Parse(file, data)
}

// profileFile is path itself, or the one .cue file in the folder path.
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
		if strings.HasSuffix(e.Name(), ".cue") && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	switch len(names) {
	case 1:
		return filepath.Join(path, names[0]), nil
	case 0:
		return "", problem(Unreadable, path, "no profile (*.cue) in this folder")
	}
	return "", problem(Unreadable, path, "%d profiles in this folder, name one: %s", len(names), strings.Join(names, ", "))
}

// reason drops the path that os puts into its errors; a Problem has it already.
func reason(err error) error {
	if p, ok := err.(*os.PathError); ok {
		return p.Err
	}
	return err
}

// Parse is Load for bytes at hand; name is where they are from, and imports are
// resolved from its folder, which need not exist.
//
// CUE cannot be interrupted. What could make an evaluation explode is refused
// beforehand (see guard.go); one that still takes longer than five seconds is
// refused as TooLarge, and its goroutine ends when the evaluation does.
func Parse(name string, data []byte) (*Profile, error) {
	src, inst, err := instance(name, data)
	if err != nil {
		return nil, err
	}
	type result struct {
		p   *Profile
		err error
	}
	done := make(chan result, 1)
	go func() {
		p, err := evaluate(src, inst)
		done <- result{p, err}
	}()
	timer := time.NewTimer(maxTime)
	defer timer.Stop()
	select {
	case r := <-done:
		return r.p, r.err
	case <-timer.C:
		return nil, problem(TooLarge, name, "takes longer than %v to evaluate", maxTime)
	}
}

// evaluate builds the instance, unifies it with #Profile and decodes it.
func evaluate(src origin, inst *build.Instance) (*Profile, error) {
	ctx := cuecontext.New()
	v := ctx.BuildInstance(inst) // before the schema: an instance that it imports is built once
	lang, err := languageOf(ctx, inst)
	if err != nil {
		return nil, problem(Unreadable, src.name, "embedded schema: %v", err)
	}
	v = v.Unify(lang.profile)
	src.read(inst)
	x := &explainer{lang: lang, src: src}
	if err := v.Validate(cue.Concrete(true), cue.Final()); err != nil {
		return nil, x.explain(err)
	}
	if err := x.quantities(lang.root, v); err != nil {
		return nil, err
	}
	text, err := v.MarshalJSON()
	if err != nil {
		return nil, x.explain(err)
	}
	p := &Profile{origin: src}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(p); err != nil {
		return nil, problem(Invalid, src.name, "%v", err)
	}
	return p, nil
}
