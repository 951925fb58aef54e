package schema

import (
	"slices"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/build"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/parser"
)

// language is the loaded schema.
type language struct {
	profile cue.Value   // #Profile
	size    cue.Value   // #Size
	tokens  cue.Value   // #Tokens
	key     cue.Value   // #Key
	defs    definitions // the syntax of each definition
	root    *field      // the tree below #Profile
}

// languageOf returns the schema that the instance imports, which is the embedded one from
// the overlay; without an import it reads the embedded schema.
func languageOf(ctx *cue.Context, inst *build.Instance) (*language, error) {
	for _, i := range inst.Imports {
		if i.ImportPath == ImportPath {
			return newLanguage(ctx, i)
		}
	}
	return readLanguage(ctx)
}

// freshLanguage returns the schema in a context of its own.
func freshLanguage() (*language, error) {
	lang, err := readLanguage(cuecontext.New())
	if err != nil {
		return nil, problem(Unreadable, "", "embedded schema: %v", err)
	}
	return lang, nil
}

// readLanguage reads the embedded schema.
func readLanguage(ctx *cue.Context) (*language, error) {
	inst := build.NewContext().NewInstance("", nil)
	inst.ImportPath, inst.PkgName = ImportPath, "schema"
	for _, name := range cueNames() {
		text, err := cueFiles.ReadFile(name)
		if err != nil {
			return nil, err
		}
		f, err := parser.ParseFile(name, text)
		if err != nil {
			return nil, err
		}
		if err := inst.AddSyntax(f); err != nil {
			return nil, err
		}
	}
	if err := inst.Complete(); err != nil {
		return nil, err
	}
	return newLanguage(ctx, inst)
}

// newLanguage builds the schema from its instance.
func newLanguage(ctx *cue.Context, inst *build.Instance) (*language, error) {
	v := ctx.BuildInstance(inst)
	if err := v.Err(); err != nil {
		return nil, err
	}
	at := func(def string) cue.Value { return v.LookupPath(cue.ParsePath(def)) }
	l := &language{profile: at("#Profile"), size: at("#Size"), tokens: at("#Tokens"), key: at("#Key"), defs: definitions{}}
	l.readFields(inst.Files)
	return l, nil
}

// readFields sets defs and root.
func (l *language) readFields(files []*ast.File) {
	for _, f := range files {
		for _, d := range f.Decls {
			if d, ok := d.(*ast.Field); ok {
				if name, _, err := ast.LabelName(d.Label); err == nil {
					l.defs[name] = d
				}
			}
		}
	}
	l.root = &field{class: Structural}
	if d := l.defs["#Profile"]; d != nil {
		l.defs.fill(l.root, d.Value)
	}
}

// cueNames returns the names of the embedded files, sorted.
func cueNames() []string {
	entries, _ := cueFiles.ReadDir(".") // the root of an embed.FS always reads
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	slices.Sort(names)
	return names
}
