package schema

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/build"
	"cuelang.org/go/cue/load"
	"cuelang.org/go/cue/parser"
	"cuelang.org/go/mod/modconfig"
	"cuelang.org/go/mod/modfile"
	"cuelang.org/go/mod/module"
)

// bareModule is the module file for a folder without one.
const bareModule = "module: \"profile.local\"\nlanguage: version: \"v0.16.0\"\n"

// maxImports bounds the imports that otherImports tries.
const maxImports = 64

// document is the text of a profile or a policy.
type document struct {
	name   string // its file, or with memory what messages call it
	data   []byte
	memory bool // in no file: imports and policies are those of the working directory
	set    []Override
	draft  bool // without policies
}

// memoryFile is the file in the working directory that a profile in memory would be.
const memoryFile = "profile-in-memory.cue"

// instance parses the profile and everything that it imports. The schema is an in-memory
// overlay over the folder.
func instance(doc document) (origin, *build.Instance, error) {
	name, data := doc.name, doc.data
	src := origin{name: name, memory: doc.memory, folder: filepath.Dir(name), set: doc.set}
	at := name
	if doc.memory {
		at, src.folder = memoryFile, "."
	}
	file, err := filepath.Abs(at)
	if err != nil {
		return src, nil, problem(Unreadable, name, "%v", err)
	}
	dir := filepath.Dir(file)
	src.file, src.root = file, moduleRoot(dir)
	over := map[string]load.Source{file: load.FromBytes(data)}
	if src.root == "" {
		src.root = dir
		over[filepath.Join(dir, "cue.mod", "module.cue")] = load.FromString(bareModule)
	}
	if src.schema, err = overlaySchema(over, src.root); err != nil {
		return src, nil, problem(Unreadable, name, "embedded schema: %v", err)
	}
	if err := withinLimits(name, data); err != nil {
		return src, nil, err
	}
	// The loader parses only the imports first, and its syntax errors are less precise.
	parsed, err := parser.ParseFile(file, data)
	if err != nil {
		return src, nil, advise(explainLoad(err, &src), data, shown(src.name))
	}
	if list := decimalSuffixes(parsed, &src); len(list) > 0 {
		return src, nil, newError(list)
	}
	cfg := &load.Config{
		Dir: dir, ModuleRoot: src.root, Overlay: over, Registry: noRegistry{},
		AcceptLegacyModules: true, ParseFile: parseFile,
	}
	list := load.Instances([]string{"./" + filepath.Base(file)}, cfg)
	if len(list) != 1 {
		return src, nil, problem(Unreadable, name, "not a CUE file")
	}
	src.note(list[0])
	if list[0].Err == nil {
		return src, list[0], guard(list[0], &src)
	}
	e := explainLoad(list[0].Err, &src)
	if e.Kind() == Import {
		e = newError(append(e.List, otherImports(data, cfg, &src)...))
	}
	return src, nil, e
}

// otherImports returns the problems of all imports of the file. It loads each import alone,
// because CUE reports only the first one that fails.
func otherImports(data []byte, cfg *load.Config, src *origin) []Problem {
	f, err := parser.ParseFile(src.file, data, parser.ImportsOnly)
	if err != nil {
		return nil
	}
	var list []Problem
	tried := 0
	for spec := range f.ImportSpecs() {
		if tried++; tried > maxImports {
			break
		}
		cfg.Overlay[src.file] = load.FromString("import " + spec.Path.Value + "\n")
		one := load.Instances([]string{"./" + filepath.Base(src.file)}, cfg)
		if len(one) != 1 || one[0].Err == nil {
			continue
		}
		for _, p := range explainLoad(one[0].Err, src).List {
			p.Pos = src.place(spec.Pos())
			list = append(list, p)
		}
	}
	return list
}

// moduleRoot returns the nearest folder, dir or one above it, with a cue.mod; "" if there is
// none.
func moduleRoot(dir string) string {
	for {
		if info, err := os.Stat(filepath.Join(dir, "cue.mod")); err == nil && info.IsDir() {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			return ""
		}
		dir = up
	}
}

// overlaySchema adds the embedded files to the overlay at the path below root where CUE
// looks for them, and replaces vendored copies by empty files. It returns the folder.
func overlaySchema(over map[string]load.Source, root string) (where string, err error) {
	vendored := func(kind string) string {
		return filepath.Join(root, "cue.mod", kind, filepath.FromSlash(ImportPath))
	}
	where = vendored("pkg")
	if ownModule(root) {
		where = filepath.Join(root, "schema")
	}
	for _, dir := range []string{where, vendored("pkg"), vendored("gen"), vendored("usr")} {
		stale, _ := filepath.Glob(filepath.Join(dir, "*.cue"))
		for _, f := range stale {
			over[f] = load.FromString("package schema\n")
		}
	}
	for _, name := range cueNames() {
		text, err := cueFiles.ReadFile(name)
		if err != nil {
			return "", err
		}
		over[filepath.Join(where, name)] = load.FromBytes(text)
	}
	return where, nil
}

// ownModule reports whether root is the module that publishes the schema.
func ownModule(root string) bool {
	path := filepath.Join(root, "cue.mod", "module.cue")
	text, err := os.ReadFile(path)
	if err != nil {
		return false
	}
	f, err := modfile.ParseNonStrict(text, path)
	return err == nil && strings.Split(f.Module, "@")[0] == modulePath
}

// parseFile is the parser of load.Instances, with the limits of the reader.
func parseFile(name string, src any, cfg parser.Config) (*ast.File, error) {
	if err := withinLimits(name, src); err != nil {
		return nil, err
	}
	return parser.ParseFile(name, src, cfg)
}

// errOffline is the result of every registry request.
var errOffline = errors.New("modules are not fetched: put the package into the folder's module or its cue.mod/pkg")

// noRegistry is a module registry that fails every request.
type noRegistry struct{}

var _ modconfig.Registry = noRegistry{}

func (noRegistry) ModFile(context.Context, module.Version) (*modfile.File, error) {
	return nil, errOffline
}

func (noRegistry) Fetch(context.Context, module.Version) (module.SourceLoc, error) {
	return module.SourceLoc{}, errOffline
}

func (noRegistry) ModuleVersions(context.Context, string) ([]string, error) { return nil, errOffline }
