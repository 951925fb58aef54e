package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"vapp.dev/appliance/hub/hubtest"
	"vapp.dev/engine/backend/cuda/driver"
	"vapp.dev/engine/enginetest"
	"vapp.dev/internal/goldentest"
	"vapp.dev/kernels/cuda/cudatest"
	"vapp.dev/tools/lock/lockfile"
)

// TestMain lets this test binary act as the command vapp, so that scripts run the real main in its
// own process and can send it signals.
func TestMain(m *testing.M) {
	os.Unsetenv("NOTIFY_SOCKET") // the service manager of this machine is not that of the servers in tests
	testscript.Main(m, map[string]func(){"vapp": main})
}

// TestScript runs testdata/script, which tests the command line. -update writes the
// commands' output to the files that cmp reads.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       *goldentest.Update,
		Condition: func(name string) (bool, error) {
			switch name {
			case "cgo":
				return withC, nil
			case "cuda":
				return driver.Built, nil
			}
			return false, fmt.Errorf("unknown condition %q", name)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"await": await, "code": code, "emulated": emulated, "example": example, "field": field, "hang": hang, "hold": hold, "hub": serveHub, "http": request, "poison": poison, "ready": ready, "save": save, "seeing": seeing, "signal": deliver, "toy": toy,
		},
	})
}

// toy DIR [TOKENS] writes a model of random weights, for sequences of TOKENS tokens (512).
func toy(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && slices.Contains([]int{1, 2}, len(args)), "toy DIR [TOKENS]")
	o := enginetest.Llama{}
	if len(args) == 2 {
		n, err := strconv.Atoi(args[1])
		ts.Check(err)
		o.MaxPos = n
	}
	ts.Check(enginetest.WriteLlama(ts.MkAbs(args[0]), o))
}

// seeing DIR writes a small Gemma 4 with a vision tower.
func seeing(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 1, "seeing DIR")
	ts.Check(enginetest.Seeing{
		From:      filepath.Join("..", "..", "engine", "models", "testdata", "tiny-gemma4-tower"),
		Processor: `{"image_processor_type": "Gemma4ImageProcessor", "patch_size": 4, "pooling_kernel_size": 3, "max_soft_tokens": 70}`,
		Template:  `{% for m in messages %}{% for p in m.content %}{% if p.type == "text" %}{{ p.text }}{% else %}<|image|>{% endif %}{% endfor %}{% endfor %}`,
		Special:   map[int]string{120: "<boi>", 121: "<eoi>", 122: "<|image|>"},
	}.Write(ts.MkAbs(args[0])))
}

// emulated NAME sets a variable to the path of the emulated CUDA driver, NCCL or cuBLASLt. The driver's
// machine has no cuBLASLt, whatever this one has, until that is emulated too.
func emulated(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 1, "emulated NAME")
	build := cudatest.BuildDriver
	switch args[0] {
	case "VAPP_LIBNCCL":
		build = cudatest.BuildNCCL
	case "VAPP_LIBCUBLASLT":
		build = cudatest.BuildBLAS
	}
	path, err := build()
	ts.Check(err)
	ts.Setenv("VAPP_LIBCUBLASLT", driver.NoLibrary)
	ts.Setenv(args[0], path)
}

// poison DIR FROM TOKEN copies a model and sets the token's embedding to NaN.
func poison(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 3, "poison DIR FROM TOKEN")
	id, err := strconv.Atoi(args[2])
	ts.Check(err)
	ts.Check(enginetest.Poison(ts.MkAbs(args[0]), ts.MkAbs(args[1]), id, float32(math.NaN())))
}

// example NAME DIR copies a folder of examples, and this repository's hooks as
// pre-commit-hooks.yaml.
func example(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 2, "example NAME DIR")
	to := ts.MkAbs(args[1])
	ts.Check(os.CopyFS(to, os.DirFS(filepath.Join("../../examples", args[0]))))
	hooks, err := os.ReadFile("../../.pre-commit-hooks.yaml")
	ts.Check(err)
	ts.Check(os.WriteFile(filepath.Join(to, "pre-commit-hooks.yaml"), hooks, 0o644))
}

// save FROM TO replaces a file by a copy of another one: a server that watches it never reads it empty.
func save(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 2, "save FROM TO")
	ts.Check(lockfile.Replace(ts.MkAbs(args[1]), []byte(ts.ReadFile(args[0]))))
}

// code N COMMAND... runs the command and checks its exit code.
func code(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) >= 2, "code N COMMAND...")
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	err = ts.Exec(args[1], args[2:]...)
	if exit, ok := err.(interface{ ExitCode() int }); ok {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// field FILE PATH REGEXP checks a value of a JSON file, such as choices.0.message.content. The
// pattern must match the whole value.
func field(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, len(args) == 3, "[!] field FILE PATH REGEXP")
	d := json.NewDecoder(strings.NewReader(ts.ReadFile(args[0])))
	d.UseNumber()
	var v any
	ts.Check(d.Decode(&v))
	for _, step := range strings.Split(args[1], ".") {
		switch in := v.(type) {
		case map[string]any:
			v = in[step]
		case []any:
			i, err := strconv.Atoi(step)
			ts.Check(err)
			if v = nil; i < len(in) {
				v = in[i]
			}
		default:
			v = nil
		}
	}
	got := fmt.Sprint(v)
	if regexp.MustCompile(`^(?s:`+args[2]+`)$`).MatchString(got) == neg {
		ts.Fatalf("%s is %s", args[1], got)
	}
}

// hold NAME listens on a free port while the script runs, and sets the variable to its number.
func hold(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 1, "hold NAME")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { l.Close() })
	ts.Setenv(args[0], strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
}

// serveHub implements hub NAME=DIR...: it runs a hub of models while the script runs, and sets
// HF_ENDPOINT and HF_HOME.
func serveHub(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) > 0, "hub NAME=DIR...")
	h := hubtest.Start()
	ts.Defer(h.Close)
	for _, a := range args {
		name, dir, _ := strings.Cut(a, "=")
		_, err := h.AddDir(name, ts.MkAbs(dir))
		ts.Check(err)
	}
	ts.Setenv("HF_ENDPOINT", h.URL)
	ts.Setenv("HF_HOME", ts.MkAbs("hf"))
}

// patience bounds the wait for events that normally happen at once.
const patience = 2 * time.Minute

// await LOG REGEXP waits until the file LOG matches.
func await(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 2, "await LOG REGEXP")
	find(ts, args[0], regexp.MustCompile("(?m)"+args[1]))
}

// find waits for a match in a file that a server writes.
func find(ts *testscript.TestScript, file string, want *regexp.Regexp) []string {
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		log, err := os.ReadFile(ts.MkAbs(file))
		if err != nil && !os.IsNotExist(err) {
			ts.Check(err)
		}
		if at := want.FindStringSubmatch(string(log)); at != nil {
			return at
		}
		if bytes.Contains(log, []byte("\nvapp: ")) || time.Now().After(deadline) {
			ts.Fatalf("%s has no %s:\n%s", file, want, log)
		}
	}
}

// Log lines with the address of a server, and when it is ready.
var (
	listening = regexp.MustCompile(`msg=listening address=(\S+)`)
	serving   = regexp.MustCompile(`msg=ready `)
)

// ready LOG waits until the server that writes the file LOG is ready, by its log and by GET
// /readyz, and sets ADDR to its address.
func ready(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 1, "ready LOG")
	at := find(ts, args[0], listening)[1]
	find(ts, args[0], serving)
	r, err := http.Get("http://" + at + "/readyz")
	ts.Check(err)
	r.Body.Close()
	if r.StatusCode != http.StatusOK {
		ts.Fatalf("it says that it is ready, but /readyz answers %s", r.Status)
	}
	ts.Setenv("ADDR", at)
}

// deliver implements signal TERM|HUP|INT: it sends a signal to every process in the background.
func deliver(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 1, "signal TERM|HUP|INT")
	s, ok := map[string]os.Signal{"TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP, "INT": syscall.SIGINT}[args[0]]
	usage(ts, ok, "signal TERM|HUP|INT")
	for _, c := range ts.BackgroundCmds() {
		ts.Check(c.Process.Signal(s))
	}
}

// request implements http STATUS METHOD URL [BODY]: it sends the file BODY as JSON, checks the
// status and writes the answer to standard output.
func request(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && slices.Contains([]int{3, 4}, len(args)), "http STATUS METHOD URL [BODY]")
	var body io.Reader
	if len(args) == 4 {
		body = strings.NewReader(ts.ReadFile(args[3]))
	}
	r, err := http.NewRequest(args[1], args[2], body)
	ts.Check(err)
	r.Header.Set("Content-Type", "application/json")
	answer, err := (&http.Client{Timeout: patience}).Do(r)
	ts.Check(err)
	defer answer.Body.Close()
	_, err = io.Copy(ts.Stdout(), answer.Body)
	ts.Check(err)
	if got := strconv.Itoa(answer.StatusCode); got != args[0] {
		ts.Fatalf("%s %s: status %s, want %s", args[1], args[2], got, args[0])
	}
}

// hang URL BODY starts a streaming request and keeps it open, without reading, until the script
// ends.
func hang(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 2, "hang URL BODY")
	r, err := http.Post(args[0], "application/json", strings.NewReader(ts.ReadFile(args[1])))
	ts.Check(err)
	ts.Defer(func() { r.Body.Close() })
	if r.StatusCode != http.StatusOK {
		ts.Fatalf("%s: %s", args[0], r.Status)
	}
}

func usage(ts *testscript.TestScript, ok bool, want string) {
	if !ok {
		ts.Fatalf("usage: %s", want)
	}
}
