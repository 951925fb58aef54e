package vapp_test

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

// module is the import path of the root.
const module = "vapp.dev"

// kubernetes are the modules of the control plane's tests.
var kubernetes = []string{"k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "sigs.k8s.io/yaml"}

// goldens is the only package of the module that every test may import.
const goldens = "internal/goldentest"

// emulated builds libraries that a program loads; it is not a part of the program.
const emulated = "kernels/cuda/cudatest"

// rule lists what the files of a package, except its tests, may import.
type rule struct {
	// parts are packages of this module; a trailing "/..." includes the packages below.
	parts []string
	// modules are prefixes of import paths of other modules.
	modules []string
	// not maps packages of the standard library that are forbidden to the reason.
	not map[string]string
}

// Forbidden packages of the standard library that several rules share.
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

// rules is the import law: each package of the module has one rule. Imports go down only
// (cmd → tools → appliance → engine → kernels; schema is a leaf). A package may import the
// packages below its folder, and none of them imports it. kernels and engine/backend define
// types for the packages below them and import none of those. Only cmd/vapp names concrete
// backends.
//
// A new package needs a rule in the section of its layer.
var rules = map[string]rule{
	// The tests of the whole tree.
	".": {},

	// The suggester of every "did you mean".
	"nearest": {not: noHTTP},

	// What a file is by its first bytes, for errors about a wrong file.
	"filekind": {not: functions},
	// The words of other programs, for hints and for the importer.
	"foreign": {parts: []string{"nearest"}, not: noHTTP},

	// Golden files and the flag -update, for the tests of every layer.
	goldens: {modules: []string{"github.com/google/go-cmp", "github.com/rogpeppe/go-internal"}, not: noHTTP},

	// schema

	"schema": {parts: []string{"filekind", "foreign", "nearest"}, modules: []string{"cuelang.org/go"}, not: noHTTP},

	// kernels

	"kernels":     {not: noHTTP},
	"kernels/ref": {parts: []string{"kernels"}, not: noHTTP},
	"kernels/cpu": {parts: []string{"kernels", "kernels/cpu/isa", "kernels/cpu/native"}, not: noHTTP},
	// The C code of kernels/cpu and its Go wrappers. isa asks the system for permission to use AMX.
	"kernels/cpu/native": {parts: []string{"kernels/cpu/isa", "kernels/cpu/native/..."}, not: noHTTP},
	// The families of C kernels: an import stands for an #include.
	"kernels/cpu/native/activation":  {parts: []string{"kernels/cpu/native/shared"}, not: noHTTP},
	"kernels/cpu/native/attention":   {parts: []string{"kernels/cpu/native/shared"}, not: noHTTP},
	"kernels/cpu/native/experts":     {parts: []string{"kernels/cpu/native/linear", "kernels/cpu/native/shared"}, not: noHTTP},
	"kernels/cpu/native/formats":     {parts: []string{"kernels/cpu/native/shared"}, not: noHTTP},
	"kernels/cpu/native/limits":      {parts: []string{"kernels/cpu/native/shared"}, not: noHTTP},
	"kernels/cpu/native/linear":      {parts: []string{"kernels/cpu/native/shared"}, not: noHTTP},
	"kernels/cpu/native/linear/int8": {parts: []string{"kernels/cpu/native/linear", "kernels/cpu/native/shared"}, not: noHTTP},
	"kernels/cpu/native/linear/w8a8": {parts: []string{"kernels/cpu/native/linear", "kernels/cpu/native/linear/int8", "kernels/cpu/native/shared"}, not: noHTTP},
	"kernels/cpu/native/norm":        {parts: []string{"kernels/cpu/native/shared"}, not: noHTTP},
	"kernels/cpu/native/portable":    {parts: []string{"kernels/cpu/native/shared"}, not: noHTTP},
	"kernels/cpu/native/sample":      {parts: []string{"kernels/cpu/native/shared"}, not: noHTTP},
	"kernels/cpu/native/shared":      {not: noHTTP},
	"kernels/cpu/native/state":       {parts: []string{"kernels/cpu/native/shared"}, not: noHTTP},

	"kernels/cpu/isa": {modules: []string{"golang.org/x/sys"}, not: noHTTP},
	// Resampling of images.
	"kernels/cpu/pixels":  {parts: []string{"kernels/cpu/isa"}, not: functions},
	"kernels/cpu/isatest": {parts: []string{"kernels/cpu/isa"}, not: noHTTP},

	// Names, arguments and packed weights of the CUDA kernels: plain Go, no cgo.
	"kernels/cuda":          {parts: []string{"kernels", "kernels/ref"}, not: noHTTP},
	"kernels/cuda/cost":     {parts: []string{"kernels", "kernels/cuda"}, not: noHTTP},
	"kernels/cuda/cudatest": {parts: []string{"kernels/cuda"}, not: noHTTP},

	// The compiled CUDA kernels, embedded.
	"kernels/cuda/image": {not: noHTTP},

	// engine

	"engine/backend":         {parts: []string{"kernels"}, not: noHTTP},
	"engine/backend/devices": {parts: []string{"engine/backend", "nearest"}, not: noHTTP},

	// Ranks that are goroutines of one process.
	"engine/backend/local": {parts: []string{"engine/backend"}, not: noHTTP},

	// Ranks that are processes, by Open MPI.
	"engine/backend/mpi": {parts: []string{"engine/backend"}, not: noHTTP},

	"engine/backend/dry":  {parts: []string{"engine/backend", "kernels"}, not: noHTTP},
	"engine/backend/host": {parts: []string{"engine/backend"}, modules: []string{"golang.org/x/sys"}, not: noHTTP},
	"engine/backend/ref":  {parts: []string{"engine/backend", "engine/backend/host", "kernels", "kernels/ref"}, not: noHTTP},
	"engine/backend/cpu": {
		parts:   []string{"engine/backend", "engine/backend/host", "kernels", "kernels/cpu"},
		modules: []string{"golang.org/x/sys"}, not: noHTTP,
	},
	// Ranks that are GPUs: NCCL.
	"engine/backend/nccl": {parts: []string{"engine/backend"}, not: noHTTP},
	// Layout is plain Go; the device needs the driver.
	"engine/backend/cuda": {parts: []string{"engine/backend", "engine/backend/cuda/driver", "engine/backend/nccl", "kernels", "kernels/cuda", "kernels/cuda/cost", "kernels/cuda/image", "kernels/ref"}, not: noHTTP},
	// Types are in every build, calls of the driver need the build tag cuda.
	"engine/backend/cuda/driver": {parts: []string{"kernels/cuda"}, modules: []string{"gorgonia.org/cu"}, not: noHTTP},
	"engine/backend/measure":     {parts: []string{"engine/backend", "engine/backend/dry", "engine/speed", "kernels"}, not: noHTTP},
	"engine/backend/backendtest": {parts: []string{"engine/backend", "kernels", "kernels/ref"}, not: noHTTP},

	// kernels/ref is the only Go decoder of the block formats.
	"engine/checkpoint": {parts: []string{"filekind", "nearest", "kernels", "kernels/ref"}, modules: []string{"golang.org/x/sys"}, not: noHTTP},
	// Fair queues of clients: the queue is pure, the gate has the lock.
	"engine/fairqueue": {not: noHTTP},
	// Engines take turns on a device.
	"engine/turns": {not: noHTTP},
	// The pixels of an image.
	// From pixels to the input of an encoder: sizes, resampling, patches, positions.
	"engine/vision":     {parts: []string{"engine/vision/rgb", "kernels/cpu/isa", "kernels/cpu/pixels"}, not: functions},
	"engine/vision/rgb": {not: pure},
	"engine/tokenizer":  {parts: []string{"engine/fairqueue"}, modules: []string{"github.com/daulet/tokenizers", "golang.org/x/sys"}, not: noHTTP},
	"engine/grammar":    {parts: []string{"engine/fairqueue", "engine/tokenizer"}, not: noHTTP},
	"engine/kv":         {parts: []string{"kernels"}, not: pure},
	"engine/models":     {parts: []string{"engine/backend", "engine/checkpoint", "engine/kv", "nearest", "kernels"}, not: noHTTP},
	"engine/sample":     {parts: []string{"engine/backend"}, not: pure},
	"engine/speculate":  {not: pure},
	"engine/steptime":   {not: pure},
	"engine/speed":      {parts: []string{"engine/backend", "kernels", "kernels/cuda/cost"}, not: pure},
	"engine/sched":      {parts: []string{"engine/kv", "engine/steptime", "engine/sample", "engine/speculate"}, not: pure},
	"engine/runner": {
		parts: []string{"engine/backend", "engine/kv", "engine/models", "engine/sample", "engine/sched"}, not: noHTTP,
	},
	// The control channel between ranks.
	"engine/ranks":      {parts: []string{"engine/backend"}, not: noHTTP},
	"engine/enginetest": {parts: []string{"engine/checkpoint", "kernels", "kernels/ref"}, not: noHTTP},
	"engine": {
		parts: []string{
			"engine/backend", "engine/backend/dry", "engine/checkpoint", "engine/grammar", "engine/kv", "engine/models", "engine/ranks",
			"engine/steptime", "engine/runner", "engine/sample", "engine/sched", "engine/speculate", "engine/speed", "engine/tokenizer", "kernels", "nearest",
		},
		not: noHTTP,
	},

	// appliance

	// Which rank this process is: flags and environment variables.
	"appliance/launcher": {not: noHTTP},
	// Open MPI's daemon on other hosts, over TCP.
	"appliance/orted": {not: noHTTP},
	"appliance/plan": {
		parts: []string{"schema", "engine", "engine/checkpoint", "engine/kv", "engine/models", "nearest", "engine/backend", "engine/backend/devices", "engine/sched", "engine/speculate", "engine/speed", "engine/tokenizer", "kernels"}, not: value,
	},
	"appliance/plan/picture": {parts: []string{"appliance/plan"}, not: value},
	"appliance/chat/dialect": {not: functions},
	// From the fields of a request to a grammar.
	"appliance/chat/structured": {parts: []string{"appliance/chat/dialect", "engine/tokenizer"}, not: functions},
	"appliance/chat/structured/structuredtest": {
		parts: []string{"appliance/chat/dialect", "engine/checkpoint", "engine/grammar", "engine/tokenizer"}, not: noHTTP,
	},
	// It uses the pipeline of chat from text to tokens.
	"appliance/chat/pooling": {parts: []string{"appliance/chat", "engine"}, not: noHTTP},
	"appliance/chat":         {parts: []string{"appliance/chat/dialect", "appliance/chat/structured", "engine", "engine/fairqueue", "engine/grammar", "engine/tokenizer", "engine/sample", "engine/checkpoint"}, not: noHTTP},
	"appliance/chat/chattest": {
		parts: []string{"appliance/chat", "engine", "engine/grammar", "engine/tokenizer", "engine/sample", "engine/checkpoint"}, not: noHTTP,
	},
	// What URLs of requests lead to: an HTTP client under a policy.
	"appliance/media/fetch": {modules: []string{"golang.org/x/net/idna"}},
	"appliance/media/load": {
		parts: []string{"appliance/chat", "appliance/media", "appliance/media/fetch", "engine", "engine/vision", "engine/vision/rgb"}, not: noHTTP,
	},
	// openai uses the kinds of reply segments, which dialect defines.
	"appliance/api/rawjson": {not: functions},
	// The memory of bodies that are read at once.
	"appliance/api/budget":    {not: noHTTP},
	"appliance/api/openai":    {parts: []string{"appliance/chat", "appliance/chat/dialect", "appliance/chat/pooling", "appliance/chat/structured", "appliance/api/rawjson"}, not: functions},
	"appliance/api/anthropic": {parts: []string{"appliance/chat", "appliance/chat/structured", "appliance/api/rawjson"}, not: functions},
	"appliance/api/openapi": {
		modules: []string{"github.com/swaggest/jsonschema-go", "github.com/swaggest/openapi-go"}, not: functions,
	},
	"appliance/api": {
		parts:   []string{"appliance/chat", "appliance/chat/pooling", "appliance/api/openai", "appliance/api/anthropic", "appliance/api/budget", "appliance/api/openapi", "appliance/api/rawjson", "appliance/drift", "appliance/responses"},
		modules: []string{"github.com/labstack/echo/v4"},
	},
	// Several servers behind one listener.
	"appliance/front": {
		parts:   []string{"appliance/api", "appliance/api/budget", "appliance/api/rawjson", "appliance/chat"},
		modules: []string{"github.com/prometheus/client_golang"},
	},
	// Bytes of a request to pixels.
	"appliance/media": {parts: []string{"engine/tokenizer", "engine/vision/rgb", "filekind"}, modules: []string{"golang.org/x/image"}, not: functions},

	"appliance/responses": {modules: []string{"go.etcd.io/bbolt"}, not: noHTTP},
	"appliance/page":      {},
	// KV events over ZeroMQ.
	"appliance/kvevents": {parts: []string{"engine/kv"}, modules: []string{"github.com/vmihailenco/msgpack/v5"}, not: noHTTP},
	// Spans to a collector of OpenTelemetry.
	"appliance/traces":            {parts: []string{"engine"}, modules: []string{"go.opentelemetry.io/otel"}, not: noHTTP},
	"appliance/traces/tracestest": {modules: []string{"go.opentelemetry.io/proto/otlp", "google.golang.org/grpc", "google.golang.org/protobuf"}},
	// The file of measured rates in the user's cache folder.
	"appliance/ratefile": {parts: []string{"engine/backend", "engine/speed"}, not: noHTTP},
	// What is declared, in force, planned and measured: values only.
	"appliance/drift": {not: map[string]string{"os": "its callers read", "net": "its callers read", "net/http": "HTTP belongs to appliance/api"}},
	// The commit of a work tree, without git.
	"appliance/githead":     {not: noHTTP},
	"appliance/auditlog":    {not: noHTTP},
	"appliance/batch":       {parts: []string{"appliance/chat", "appliance/api/openai"}, not: noHTTP},
	"appliance/hub":         {parts: []string{"filekind"}, modules: []string{"golang.org/x/sys"}},
	"appliance/hub/hubtest": {},
	// What a command line names, and the text of a profile for it.
	"appliance/starter": {parts: []string{"filekind", "schema", "appliance/hub", "engine/models"}, modules: []string{"cuelang.org/go"}, not: noHTTP},
	"appliance/metrics": {parts: []string{"engine"}, modules: []string{"github.com/prometheus/client_golang", "github.com/prometheus/client_model", "github.com/prometheus/common"}},
	"appliance": {
		parts: []string{
			"schema", "appliance/...", "engine",
			// Types of the engine's options, which a profile is translated to.
			"engine/backend", "engine/backend/devices", "engine/checkpoint", "engine/grammar", "engine/ranks", "engine/sample", "engine/sched", "engine/speed", "engine/tokenizer", "engine/turns", "engine/vision", "kernels",
		},
		modules: []string{"github.com/fsnotify/fsnotify"},
	},

	// tools: what helps operators, and is no part of serving.

	"tools/review":          {parts: []string{"schema", "appliance/plan"}, not: value},
	"tools/review/gittree":  {parts: []string{"schema", "tools/lock"}, not: noHTTP},
	"tools/compat":          {parts: []string{"engine/checkpoint", "nearest"}, not: value},
	"tools/compat/released": {parts: []string{"schema", "appliance", "engine/backend", "tools/compat"}, not: noHTTP},
	"tools/kubernetes":      {parts: []string{"schema", "appliance/plan", "engine/backend"}, modules: []string{"go.yaml.in/yaml/v3"}, not: value},
	"tools/lock":            {parts: []string{"schema", "appliance/plan"}, not: map[string]string{"net/http": "HTTP belongs to appliance/api", "os": "the caller reads the files"}},
	"tools/lock/lockfile":   {parts: []string{"appliance", "engine", "tools/lock"}, not: noHTTP},
	"tools/importer":        {parts: []string{"foreign", "nearest", "schema"}, modules: []string{"cuelang.org/go"}, not: noHTTP},
	// Facts are gathered by facts and judged by pure functions, which need the times of a clock.
	"tools/doctor": {
		parts: []string{"appliance/plan", "tools/doctor/facts"},
		not:   map[string]string{"net/http": "HTTP belongs to appliance/api", "os": "package facts reads what is judged"},
	},
	"tools/doctor/facts": {
		parts:   []string{"schema", "appliance", "appliance/hub", "appliance/plan", "engine", "engine/backend/host", "kernels/cpu/isa"},
		modules: []string{"golang.org/x/sys"}, not: noHTTP,
	},
	// Only the client of a benchmark reads the clock; workload and report are arithmetic.
	"tools/bench/workload": {not: pure},
	"tools/bench/report":   {not: pure},
	"tools/bench/offline":  {parts: []string{"tools/bench/workload", "tools/bench/report", "engine", "engine/sample", "engine/tokenizer"}, not: noHTTP},
	"tools/bench/steps":    {parts: []string{"engine", "engine/sample", "engine/speed"}, not: noHTTP},
	"tools/bench/replicas": {parts: []string{"tools/bench/workload", "tools/bench/report", "engine", "engine/speed"}, not: pure},
	"tools/bench":          {parts: []string{"tools/bench/workload", "tools/bench/report", "tools/sse", "engine/checkpoint", "engine/tokenizer"}},
	"tools/sse":            {not: value},
	"tools/serverstatus":   {parts: []string{"appliance/drift", "tools/console"}, not: map[string]string{"net/http": "tools/console has the client"}},
	"tools/console":        {parts: []string{"tools/sse", "nearest"}, modules: []string{"github.com/reeflective/readline", "golang.org/x/term"}},
	"tools/bench/enginebench": {
		parts: []string{"schema", "appliance", "appliance/plan", "engine", "engine/backend", "engine/checkpoint", "engine/sample", "engine/speed"}, not: noHTTP,
	},

	// cmd

	"cmd/vapp": {
		parts: []string{"foreign", "nearest", "schema", "tools/...", "appliance/...", "engine/...", "kernels/..."},
		modules: []string{
			"github.com/spf13/cobra", "github.com/spf13/pflag", "github.com/vbauerster/mpb/v8", "golang.org/x/term", "golang.org/x/sys",
		},
	},

	// packaging: a module of its own, for releases.

	"packaging/tools/sbom": {modules: []string{"github.com/spdx/tools-golang"}, not: noHTTP},

	// tests: they use the binary as a process.

	"tests/clients": {},
	// The clients that TestBodies starts.
	"tests/clients/flood": {},
	// Requests generated from an OpenAPI document.
	"tests/mutate": {not: functions},
	// Comparison with other engines, which it starts as processes.
	"tests/peer":         {parts: []string{"tests/peer/figures"}},
	"tests/peer/figures": {not: noHTTP},
	// Checks of a GPU, which start binaries and read their output.
	"tests/gpu":        {parts: []string{"tests/gpu/agenda"}},
	"tests/gpu/agenda": {not: noHTTP},
	// A module of its own: Helm, and a control plane of Kubernetes with clients of it.
	"tests/kubernetes/chart":        {modules: []string{"helm.sh/helm/v3", "k8s.io/cli-runtime", "sigs.k8s.io/yaml"}},
	"tests/kubernetes/controlplane": {modules: kubernetes},
	"tests/kubernetes/node":         {modules: append([]string{"golang.org/x/net", "golang.org/x/sys"}, kubernetes...)},
	"tests/kubernetes/cluster":      {parts: []string{"tests/kubernetes/chart", "tests/kubernetes/controlplane", "tests/kubernetes/node"}, modules: kubernetes},
	// vapp behind routers, which are programs.
	"tests/kubernetes/routers": {parts: []string{"tests/kubernetes/controlplane"}, modules: append([]string{"github.com/llm-d/llm-d-kv-cache"}, kubernetes...)},
}

// layers from the top. A test may import its own layer and the layers below.
var layers = []string{"cmd", "tools", "appliance", "engine", "kernels"}

// source is one Go file of the tree.
type source struct {
	path string // relative to the root, with slashes
	dir  string
	test bool
	file *ast.File
}

// sources parses every Go file of the tree, whatever its build constraints.
func sources(t *testing.T) (*token.FileSet, []source) {
	t.Helper()
	set := token.NewFileSet()
	var out []source
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel := filepath.ToSlash(p)
		if d.IsDir() {
			if skipped(rel, d.Name()) {
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
		t.Fatalf("only %d Go files: this is not the root of the module", len(out))
	}
	return set, out
}

// skipped reports whether a folder has no sources of the tree: hidden folders, test data, build
// outputs and fetched models.
func skipped(rel, name string) bool {
	if rel == "." || rel == "engine/models" {
		return false
	}
	return name[0] == '.' || name[0] == '_' || slices.Contains([]string{"testdata", "target", "models", "bin"}, name)
}

// imports returns the import paths of f.
func imports(f *ast.File) []string {
	var out []string
	for _, i := range f.Imports {
		p, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			panic(err) // the parser accepted it
		}
		out = append(out, p)
	}
	return out
}

// TestImportLaw checks the imports of every file against rules.
func TestImportLaw(t *testing.T) {
	_, files := sources(t)
	seen := map[string]bool{}
	for _, s := range files {
		r, ok := rules[s.dir]
		if !ok && !seen[s.dir] {
			t.Errorf("%s: no rule in the import law: add one to rules, with the imports that the package needs", s.dir)
		}
		seen[s.dir] = true
		for _, p := range imports(s.file) {
			var why string
			switch {
			case s.test:
				why = testMay(s.dir, p)
			case forTests(p) && !strings.HasSuffix(s.dir, "test"):
				why = "packages whose name ends in test are not part of the binary"
			case ok:
				why = r.may(p)
			}
			if why != "" {
				t.Errorf("%s imports %s: %s", s.path, p, why)
			}
		}
	}
	for dir := range rules {
		if !seen[dir] {
			t.Errorf("the import law has a rule for %s, which does not exist", dir)
		}
	}
}

// may returns why the import of p is forbidden, "" where it is allowed.
func (r rule) may(p string) string {
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
		return fmt.Sprintf("this package may import only %s of this module", list(r.parts))
	}
	for _, m := range r.modules {
		if within(p, m) {
			return ""
		}
	}
	return fmt.Sprintf("this package may import only %s of other modules", list(r.modules))
}

// forTests reports whether p is a package of this module that only tests use.
func forTests(p string) bool { return within(p, module) && strings.HasSuffix(p, "test") }

func list(names []string) string {
	if len(names) == 0 {
		return "nothing"
	}
	return strings.Join(names, ", ")
}

func within(p, prefix string) bool { return p == prefix || strings.HasPrefix(p, prefix+"/") }

// testMay returns why a test in dir may not import p, "" where it may. Tests may import any package
// of their layer and of the layers below; those below tests/ may import only each other, goldens and emulated.
func testMay(dir, p string) string {
	part, ours := strings.CutPrefix(p, module+"/")
	if ours && (part == goldens || part == emulated && within(dir, "tests")) {
		return ""
	}
	if ours && within(dir, "tests") && !within(part, "tests") {
		return "tests below tests/ use the binary as a process"
	}
	mine, theirs := layer(dir), layer(part)
	if ours && mine >= 0 && theirs >= 0 && theirs < mine {
		return "a test may not import a layer above its own"
	}
	return ""
}

// layer returns the index in layers of the layer of dir, -1 where it has none.
func layer(dir string) int {
	top, _, _ := strings.Cut(dir, "/")
	return slices.Index(layers, top)
}

// limits are the words by which a package comment says what the package must not know or import.
var limits = []string{"must not", "does not import", "does not know"}

// TestPackageComments checks that exactly one file of a package has a package comment, that its
// first sentence begins with the name of the package, and that it says what the package must not
// know and where to start reading.
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
		text := strings.Join(strings.Fields(s.file.Doc.Text()), " ")
		if first, _, found := strings.Cut(text, "."); !strings.HasPrefix(text, want) || !found || first == "" {
			t.Errorf("%s: the package comment must begin with a sentence %q…, not %.40q", s.path, want, text)
		}
		if !slices.ContainsFunc(limits, func(l string) bool { return strings.Contains(text, l) }) {
			t.Errorf("%s: the package comment does not have one of %q: write what the package must not know or import", s.path, limits)
		}
		if !strings.Contains(text, "Start reading") {
			t.Errorf("%s: the package comment does not have %q: name the file or the declaration to read first", s.path, "Start reading")
		}
	}
	for dir, in := range comments {
		if len(in) != 1 {
			t.Errorf("%s: %d package comments, want 1: %s", dir, len(in), list(in))
		}
	}
}

// TestNoInit forbids init functions: parts are listed where they are used, not registered.
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

// empty are words that do not describe a thing.
var empty = []string{"manager", "helper", "helpers", "base", "impl", "util", "utils", "common", "misc"}

// TestNames checks that the name of no package, file or type has an empty word.
func TestNames(t *testing.T) {
	set, files := sources(t)
	for _, s := range files {
		stem := strings.TrimSuffix(path.Base(s.path), ".go")
		for _, n := range append(strings.Split(stem, "_"), s.file.Name.Name, path.Base(s.dir)) {
			if slices.Contains(empty, strings.ToLower(n)) {
				t.Errorf("%s: %q describes nothing: say what it is", s.path, n)
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			for _, w := range words(spec.Name.Name) {
				if slices.Contains(empty, w) {
					t.Errorf("%s: type %s: %q describes nothing: say what it is", set.Position(spec.Pos()), spec.Name.Name, w)
				}
			}
			return true
		})
	}
}

// words splits a name at its capital letters and returns lower-case words.
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

// TestLawCanFail checks the law with allowed and forbidden imports.
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
		{"appliance", "vapp.dev/tools/compat", false},
		{"tools/compat/released", "vapp.dev/appliance", true},
		{"tools/bench/enginebench", "vapp.dev/engine/backend/cpu", false},
		{"cmd/vapp", "vapp.dev/engine/backend/ref", true},
	} {
		if why := rules[c.dir].may(c.imports); (why == "") != c.ok {
			t.Errorf("%s imports %s: %q, want it allowed: %v", c.dir, c.imports, why, c.ok)
		}
	}
	if !forTests("vapp.dev/engine/enginetest") || forTests("vapp.dev/engine") || forTests("net/http/httptest") {
		t.Error("forTests: want true only for packages of this module that end in test")
	}
	if testMay("engine/kv", "vapp.dev/appliance/plan") == "" || testMay("appliance/plan", "vapp.dev/tools/compat") == "" || testMay("engine/kv", "vapp.dev/engine/backend/ref") != "" {
		t.Error("testMay: a test may import its layer and those below, and no layer above")
	}
	if testMay("tests/clients", "vapp.dev/schema") == "" || testMay("tests/clients", "github.com/openai/openai-go/v3") != "" || testMay("tests/clients", module+"/"+goldens) != "" || testMay("tests/gpu", module+"/"+emulated) != "" {
		t.Error("tests below tests/ use the binary as a process")
	}
	if got := words("poolManagerX"); !slices.Equal(got, []string{"pool", "manager", "x"}) {
		t.Errorf("words: %q", got)
	}
}
