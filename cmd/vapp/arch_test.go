package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// module is the import path of the tree's root.
const module = "vapp.dev"

// room says what the sources of a package may import.
type room struct {
	// parts of the tree; a trailing "/..." takes what is below too.
	parts []string
	// modules of others: the prefix of the import paths.
	modules []string
	// not of the standard library, with the reason.
	not map[string]string
}

// Reasons of bans that several rooms share.
var (
	pure = map[string]string{
		"time": "it decides without a clock", "sync": "only the loop touches it: no locks",
		"sync/atomic": "only the loop touches it: no locks", "os": "it does no input or output",
		"net": "it does no input or output", "net/http": "it does no input or output",
	}
	noHTTP = map[string]string{"net/http": "HTTP belongs to appliance/api"}
	value  = map[string]string{
		"net/http": "HTTP belongs to appliance/api", "os": "a plan is a value: it does no input or output",
		"time": "a plan is a value: it reads no clock",
	}
	functions = map[string]string{"os": "it is pure functions", "net": "it is pure functions"}
)

// rooms is the import law: down only (cmd → appliance → engine → kernels), a
// root composes its parts and no part imports it back, kernels and
// engine/backend are vocabularies that import none of their parts, and concrete
// backends are named in cmd/vapp alone.
var rooms = map[string]room{
	"schema": {modules: []string{"cuelang.org/go"}, not: noHTTP},

	"kernels":     {not: noHTTP},
	"kernels/ref": {parts: []string{"kernels"}, not: noHTTP},
	"kernels/cpu": {parts: []string{"kernels", "kernels/cpu/isa", "kernels/cpu/native"}, not: noHTTP},
	// The C of kernels/cpu and the calls of it: no kernel of AMX without the system's permission.
	"kernels/cpu/native":  {parts: []string{"kernels/cpu/isa"}, not: noHTTP},
	"kernels/cpu/isa":     {modules: []string{"golang.org/x/sys"}, not: noHTTP},
	"kernels/cpu/isatest": {parts: []string{"kernels/cpu/isa"}, not: noHTTP},

	// Names, arguments and packed weights of the kernels: plain Go, no cgo.
	"kernels/cuda":          {parts: []string{"kernels", "kernels/ref"}, not: noHTTP},
	"kernels/cuda/cudatest": {parts: []string{"kernels/cuda"}, not: noHTTP},

	// The kernels as compiled, embedded.
	"kernels/cuda/image": {not: noHTTP},

	"engine/backend": {parts: []string{"kernels"}, not: noHTTP},
	// What an error suggests; the catalogues of models and devices use it.
	"engine/nearest":         {not: noHTTP},
	"engine/backend/devices": {parts: []string{"engine/backend", "engine/nearest"}, not: noHTTP},

	"engine/backend/dry":  {parts: []string{"engine/backend", "kernels"}, not: noHTTP},
	"engine/backend/host": {parts: []string{"engine/backend"}, modules: []string{"golang.org/x/sys"}, not: noHTTP},
	"engine/backend/ref":  {parts: []string{"engine/backend", "engine/backend/host", "kernels", "kernels/ref"}, not: noHTTP},
	"engine/backend/cpu": {
		parts:   []string{"engine/backend", "engine/backend/host", "kernels", "kernels/cpu"},
		modules: []string{"golang.org/x/sys"}, not: noHTTP,
	},
	// Its layout half is plain Go, its device half has the driver.
	"engine/backend/cuda": {parts: []string{"engine/backend", "engine/backend/cuda/driver", "kernels", "kernels/cuda", "kernels/cuda/image", "kernels/ref"}, not: noHTTP},
	// The driver: types for every build, the calls with the tag cuda.
	"engine/backend/cuda/driver": {parts: []string{"kernels/cuda"}, modules: []string{"gorgonia.org/cu"}, not: noHTTP},
	"engine/backend/measure":     {parts: []string{"engine/backend", "engine/backend/dry", "kernels"}, not: noHTTP},
	"engine/backend/backendtest": {parts: []string{"engine/backend", "kernels", "kernels/ref"}, not: noHTTP},

	// The block formats are decoded in kernels/ref, and nowhere else in Go.
	"engine/checkpoint": {parts: []string{"kernels", "kernels/ref"}, modules: []string{"golang.org/x/sys"}, not: noHTTP},
	// Who is next among clients that wait: the queue is pure, the gate has the lock.
	"engine/fairqueue": {not: noHTTP},
	"engine/tokenizer": {parts: []string{"engine/fairqueue"}, modules: []string{"github.com/daulet/tokenizers", "golang.org/x/sys"}, not: noHTTP},
	"engine/grammar":   {parts: []string{"engine/fairqueue", "engine/tokenizer"}, not: noHTTP},
	"engine/kv":        {parts: []string{"kernels"}, not: pure},
	"engine/models":    {parts: []string{"engine/backend", "engine/checkpoint", "engine/kv", "engine/nearest", "kernels"}, not: noHTTP},
	"engine/sample":    {parts: []string{"engine/backend"}, not: pure},
	"engine/speculate": {not: pure},
	"engine/pace":      {not: pure},
	"engine/sched":     {parts: []string{"engine/kv", "engine/pace", "engine/sample", "engine/speculate"}, not: pure},
	"engine/runner": {
		parts: []string{"engine/backend", "engine/kv", "engine/models", "engine/sample", "engine/sched"}, not: noHTTP,
	},
	"engine/enginetest": {parts: []string{"engine/checkpoint", "kernels", "kernels/ref"}, not: noHTTP},
	"engine": {
		parts: []string{
			"engine/backend", "engine/backend/dry", "engine/checkpoint", "engine/grammar", "engine/kv", "engine/models",
			"engine/pace", "engine/runner", "engine/sample", "engine/sched", "engine/speculate", "engine/tokenizer", "kernels",
		},
		not: noHTTP,
	},

	"appliance/plan": {
		parts: []string{"schema", "engine", "engine/kv", "engine/models", "engine/nearest", "engine/backend", "engine/backend/devices", "engine/sched", "engine/speculate", "engine/tokenizer", "kernels"}, not: value,
	},
	"appliance/plan/picture": {parts: []string{"appliance/plan"}, not: value},
	"appliance/review":       {parts: []string{"schema", "appliance/plan"}, not: value},
	"appliance/compat":       {parts: []string{"schema", "engine/backend", "engine/checkpoint"}, not: value},
	"appliance/lock":         {parts: []string{"schema", "appliance/plan"}, not: map[string]string{"net/http": "HTTP belongs to appliance/api", "os": "the caller reads the files"}},
	"appliance/chat/dialect": {not: functions},
	"appliance/chat":         {parts: []string{"appliance/chat/dialect", "engine", "engine/fairqueue", "engine/grammar", "engine/tokenizer", "engine/sample", "engine/checkpoint"}, not: noHTTP},
	"appliance/chat/chattest": {
		parts: []string{"appliance/chat", "engine", "engine/grammar", "engine/tokenizer", "engine/sample", "engine/checkpoint"}, not: noHTTP,
	},
	// The kinds of what a reply says are dialect's.
	"appliance/api/rawjson":   {not: functions},
	"appliance/api/openai":    {parts: []string{"appliance/chat", "appliance/chat/dialect", "appliance/api/rawjson"}, not: functions},
	"appliance/api/anthropic": {parts: []string{"appliance/chat", "appliance/api/rawjson"}, not: functions},
	"appliance/api/openapi": {
		modules: []string{"github.com/swaggest/jsonschema-go", "github.com/swaggest/openapi-go"}, not: functions,
	},
	"appliance/api": {
		parts:   []string{"appliance/chat", "appliance/api/openai", "appliance/api/anthropic", "appliance/api/openapi", "appliance/api/rawjson", "appliance/responses"},
		modules: []string{"github.com/labstack/echo/v4"},
	},
	// The clock of a benchmark is its client's: what is made of the times is arithmetic.
	"appliance/bench/workload": {not: pure},
	"appliance/bench/report":   {not: pure},
	"appliance/bench/offline":  {parts: []string{"appliance/bench/workload", "appliance/bench/report", "engine", "engine/sample", "engine/tokenizer"}, not: noHTTP},
	"appliance/bench":          {parts: []string{"appliance/bench/workload", "appliance/bench/report", "engine/checkpoint", "engine/tokenizer"}},
	"appliance/responses":      {modules: []string{"go.etcd.io/bbolt"}, not: noHTTP},
	"appliance/page":           {},
	"appliance/batch":          {parts: []string{"appliance/chat", "appliance/api/openai"}, not: noHTTP},
	"appliance/hub":            {modules: []string{"golang.org/x/sys"}},
	"appliance/hub/hubtest":    {},
	"appliance/importer":       {parts: []string{"schema"}, modules: []string{"cuelang.org/go"}, not: noHTTP},
	"appliance/metrics":        {parts: []string{"engine"}, modules: []string{"github.com/prometheus/client_golang"}},
	"appliance": {
		parts: []string{
			"schema", "appliance/...", "engine",
			// The words in which a profile becomes options of the engine's parts.
			"engine/backend", "engine/backend/devices", "engine/checkpoint", "engine/grammar", "engine/sample", "engine/sched", "engine/tokenizer",
		},
		modules: []string{"github.com/fsnotify/fsnotify"},
	},

	"cmd/vapp": {
		parts: []string{"schema", "appliance/...", "engine/...", "kernels/..."},
		modules: []string{
			"github.com/spf13/cobra", "github.com/vbauerster/mpb/v8", "golang.org/x/term", "golang.org/x/sys",
		},
	},

	// Tests that know the binary only from outside.
	"tests/clients": {},
	// The clients of TestBodies.
	"tests/clients/flood": {},
	// Requests out of a document, for tests to send.
	"tests/mutate": {not: functions},
	// The comparison with other engines starts binaries and reads what they print.
	"tests/peer":         {parts: []string{"tests/peer/figures"}},
	"tests/peer/figures": {not: noHTTP},
	// What a GPU is checked with runs processes and reads what they print.
	"tests/gpu":        {parts: []string{"tests/gpu/agenda"}},
	"tests/gpu/agenda": {not: noHTTP},
}

// layers from the top; a test may import its own layer and those below it.
var layers = []string{"cmd", "appliance", "engine", "kernels"}

// source is one Go file of the tree.
type source struct {
	path string // from the root, with slashes
	dir  string
	test bool
	file *ast.File
}

// sources parses every Go file of the tree, whatever its build constraints.
func sources(t *testing.T) (*token.FileSet, []source) {
	t.Helper()
	const root = "../.."
	set := token.NewFileSet()
	var out []source
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if n := d.Name(); rel != "." && (n[0] == '.' || n[0] == '_' || slices.Contains([]string{"testdata", "target", "models", "bin"}, n) && rel != "engine/models") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(rel, ".go") {
			return nil
		}
		f, err := parser.ParseFile(set, p, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		out = append(out, source{rel, path.Dir(rel), strings.HasSuffix(rel, "_test.go"), f})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 100 {
		t.Fatalf("only %d Go files below %s: is this the tree?", len(out), root)
	}
	return set, out
}

func imports(f *ast.File) []string {
	var out []string
	for _, i := range f.Imports {
		p, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			panic(err) // the parser let it pass
		}
		out = append(out, p)
	}
	return out
}

// TestImportLaw holds every file against rooms.
func TestImportLaw(t *testing.T) {
	_, files := sources(t)
	seen := map[string]bool{}
	for _, s := range files {
		r, ok := rooms[s.dir]
		if !ok && !seen[s.dir] {
			t.Errorf("%s: no room in the import law: add one to rooms, with the imports it needs", s.dir)
		}
		seen[s.dir] = true
		for _, p := range imports(s.file) {
			var why string
			switch {
			case s.test:
				why = testMay(s.dir, p)
			case forTests(p) && !strings.HasSuffix(s.dir, "test"):
				why = "what tests are made of does not ship in the binary"
			case ok:
				why = r.may(p)
			}
			if why != "" {
				t.Errorf("%s imports %s: %s", s.path, p, why)
			}
		}
	}
	for dir := range rooms {
		if !seen[dir] {
			t.Errorf("the import law has a room for %s, which does not exist", dir)
		}
	}
}

// may is the reason against an import, "" when there is none.
func (r room) may(p string) string {
	first, _, _ := strings.Cut(p, "/")
	if p == "C" || !strings.Contains(first, ".") {
		return r.not[p]
	}
	if part, ok := strings.CutPrefix(p, module+"/"); ok {
		for _, a := range r.parts {
			below, deep := strings.CutSuffix(a, "/...")
			if part == a || deep && within(part, below) {
				return ""
			}
		}
		return fmt.Sprintf("this room may import only %s of this module", list(r.parts))
	}
	for _, m := range r.modules {
		if within(p, m) {
			return ""
		}
	}
	return fmt.Sprintf("this room may import only %s of other modules", list(r.modules))
}

// forTests tells the packages that only tests use.
func forTests(p string) bool { return within(p, module) && strings.HasSuffix(p, "test") }

func list(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	return strings.Join(names, ", ")
}

func within(p, prefix string) bool { return p == prefix || strings.HasPrefix(p, prefix+"/") }

// testMay is the reason against an import of a test: tests may use any backend
// and any part at their side, but nothing from a layer above; those below
// tests/ use nothing of this module but each other.
func testMay(dir, p string) string {
	part, ours := strings.CutPrefix(p, module+"/")
	if ours && within(dir, "tests") && !within(part, "tests") {
		return "tests of the binary know it from outside"
	}
	mine, theirs := layer(dir), layer(part)
	if ours && mine >= 0 && theirs >= 0 && theirs < mine {
		return "a test may not import a layer above its own"
	}
	return ""
}

func layer(dir string) int {
	top, _, _ := strings.Cut(dir, "/")
	return slices.Index(layers, top)
}

// TestPackageComments: exactly one file of a package has a package comment, and
// its first sentence names the package.
func TestPackageComments(t *testing.T) {
	_, files := sources(t)
	comments := map[string][]string{}
	for _, s := range files {
		if s.test {
			continue
		}
		if _, ok := comments[s.dir]; !ok {
			comments[s.dir] = nil
		}
		if s.file.Doc == nil {
			continue
		}
		comments[s.dir] = append(comments[s.dir], s.path)
		want := "Package " + s.file.Name.Name + " "
		if s.file.Name.Name == "main" {
			want = "Command " + path.Base(s.dir) + " "
		}
		text := s.file.Doc.Text()
		if first, _, found := strings.Cut(text, "."); !strings.HasPrefix(text, want) || !found || first == "" {
			t.Errorf("%s: the package comment must begin with a sentence %q…, not %.40q", s.path, want, text)
		}
	}
	for dir, in := range comments {
		if len(in) != 1 {
			t.Errorf("%s: %d package comments, want 1: %s", dir, len(in), list(in))
		}
	}
}

// TestNoInit: what a binary can do is listed, not registered.
func TestNoInit(t *testing.T) {
	set, files := sources(t)
	for _, s := range files {
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
				t.Errorf("%s: func init: list it where it is used", set.Position(f.Pos()))
			}
		}
	}
}

// empty are words that say nothing of what a thing is.
var empty = []string{"manager", "helper", "helpers", "base", "impl", "util", "utils", "common", "misc"}

// TestNames: no package, file or type is called by an empty word.
func TestNames(t *testing.T) {
	set, files := sources(t)
	for _, s := range files {
		stem := strings.TrimSuffix(path.Base(s.path), ".go")
		for _, n := range append(strings.Split(stem, "_"), s.file.Name.Name, path.Base(s.dir)) {
			if slices.Contains(empty, strings.ToLower(n)) {
				t.Errorf("%s: %q says nothing: name what it is", s.path, n)
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			for _, w := range words(spec.Name.Name) {
				if slices.Contains(empty, w) {
					t.Errorf("%s: type %s: %q says nothing: name what it is", set.Position(spec.Pos()), spec.Name.Name, w)
				}
			}
			return true
		})
	}
}

// words splits a name at its capitals, in lower case.
func words(name string) []string {
	var out []string
	start := 0
	for i, r := range name {
		if i > start && r >= 'A' && r <= 'Z' {
			out = append(out, strings.ToLower(name[start:i]))
			start = i
		}
	}
	return append(out, strings.ToLower(name[start:]))
}

// TestLawCanFail holds made-up imports against the law.
func TestLawCanFail(t *testing.T) {
	for _, c := range []struct {
		dir, imports string
		ok           bool
	}{
		{"engine/sched", "vapp.dev/engine/kv", true},
		{"engine/sched", "vapp.dev/engine/kvx", false},
		{"engine/sched", "vapp.dev/engine/runner", false},
		{"engine/sched", "time", false},
		{"engine/sched", "fmt", true},
		{"engine", "vapp.dev/engine/backend/cpu", false},
		{"engine", "net/http", false},
		{"engine", "github.com/prometheus/client_golang/prometheus", false},
		{"appliance/api", "vapp.dev/engine", false},
		{"appliance/api", "github.com/labstack/echo/v4/middleware", true},
		{"appliance/api", "github.com/labstack/echo/v5", false},
		{"appliance", "vapp.dev/appliance/plan", true},
		{"appliance", "vapp.dev/engine/backend/ref", false},
		{"cmd/vapp", "vapp.dev/engine/backend/ref", true},
	} {
		if why := rooms[c.dir].may(c.imports); (why == "") != c.ok {
			t.Errorf("%s imports %s: %q, want it allowed: %v", c.dir, c.imports, why, c.ok)
		}
	}
	if !forTests("vapp.dev/engine/enginetest") || forTests("vapp.dev/engine") || forTests("net/http/httptest") {
		t.Error("packages for tests end in test, and are ours")
	}
	if testMay("engine/kv", "vapp.dev/appliance/plan") == "" || testMay("engine/kv", "vapp.dev/engine/backend/ref") != "" {
		t.Error("tests: only layers above are forbidden")
	}
	if testMay("tests/clients", "vapp.dev/schema") == "" || testMay("tests/clients", "github.com/openai/openai-go/v3") != "" {
		t.Error("tests of the binary know it from outside")
	}
	if got := words("poolManagerX"); !slices.Equal(got, []string{"pool", "manager", "x"}) {
		t.Errorf("words: %q", got)
	}
}
