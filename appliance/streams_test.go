//go:build streams

package appliance

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/cpu"
)

var crowded = flag.Int("streams", 256, "streams at once")

// The length of the measurement, and the time of a step of the idle backend.
const (
	watched = 20 * time.Second
	pause   = 50 * time.Millisecond
)

// idle is the cpu backend with devices that compute nothing and sample random tokens.
// The remaining time of a step is the engine's loop and the server.
type idle struct{ cpu.Opener }

func (o idle) Open(f backend.Facts, s backend.Settings, r backend.Reservation) (backend.Device, error) {
	d, err := o.Opener.Open(f, s, r)
	return idler{d}, err
}

type idler struct{ backend.Device }

func (d idler) Launch(_ backend.Executable, b backend.Binding) error {
	st := d.Step(b.Set)
	for i := range b.Samples {
		st.Sampled[i], st.Status[i] = 300+rand.Int32N(30000), backend.RowOK
	}
	return nil
}

// Wait sleeps, so that every stream writes each token separately, as with a real model.
func (d idler) Wait(int) error {
	time.Sleep(pause)
	return nil
}

// TestStreamingCost logs the CPU time of the server while 256 chats stream, with the idle
// backend and with the default model: rendering, detokenizing, parsing, JSON, server-sent
// events, Go's runtime and the kernel's sockets. The clients are another process. With
// the default model the server's share has a limit.
func TestStreamingCost(t *testing.T) {
	model, err := filepath.Abs("../models/SmolLM2-135M-Instruct.Q4_1.gguf")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(model); err != nil {
		t.Fatalf("%v; `make model` fetches it", err)
	}
	for _, c := range []struct {
		name   string
		opener backend.Opener
		most   float64 // limit of the server's share of the CPU time
	}{{"computes nothing", idle{}, 1}, {"default model", cpu.Opener{}, 0.05}} {
		t.Run(c.name, func(t *testing.T) {
			s := largeServer(t, model, c.opener)
			got := s.watch(t)
			t.Log(got)
			if share := got.server.Seconds() / (got.server + got.engine + got.compute).Seconds(); share > c.most {
				t.Errorf("the server takes %.1f %% of the CPU time, want at most %.0f %%", 100*share, 100*c.most)
			}
		})
	}
}

// largeServer returns a server of the default model with capacity for all streams.
func largeServer(t *testing.T, model string, o backend.Opener) *server {
	t.Helper()
	s := &server{profile: filepath.Join(t.TempDir(), "p.cue"), log: &logBuffer{}, ended: make(chan error, 1)}
	writeFile(t, s.profile, fmt.Sprintf(`package profiles
import "vapp.dev/schema"
schema.#Profile & {
	name: "streams"
	model: source: %q
	backend: "cpu"
	maxModelLen: 512
	memory: kvCache: "3GiB"
	parsers: {toolCall: "hermes", autoToolChoice: true, reasoning: "qwen3"}
	scheduler: maxNumSeqs: %d
	serve: {host: "127.0.0.1", port: 0, accessLog: false}
}
`, model, *crowded))
	a, err := New(Config{Profile: s.profile, Machine: Machine{Backends: []backend.Opener{o}}, Version: "test", Log: s.log})
	if err != nil {
		t.Fatal(err)
	}
	s.Appliance, s.url = a, a.scheme()+"://"+a.Addr().String()
	ctx, drain := context.WithCancel(context.Background())
	s.drain = drain
	go func() { s.ended <- a.Run(ctx) }()
	t.Cleanup(func() {
		drain()
		a.Abort(fmt.Errorf("the test is over"))
		<-s.ended
	})
	s.until(t, "ready", func() bool { return s.status(t, "/readyz") == http.StatusOK })
	return s
}

// until polls for three minutes.
func (s *server) until(t *testing.T, what string, yes func() bool) {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); !yes(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 3 minutes: %s\n%s", what, s.log)
		}
	}
}

// cost is the CPU time of the measurement by part.
type cost struct {
	took                    time.Duration
	steps                   int64
	tokens                  float64
	server, engine, compute time.Duration
	kinds                   map[string]time.Duration // of server
}

func (c cost) String() string {
	var b strings.Builder
	all := (c.server + c.engine + c.compute).Seconds()
	per := func(d time.Duration) string {
		return fmt.Sprintf("%6.2f s  %5.1f %%  %7.2f µs a token", d.Seconds(), 100*d.Seconds()/all, 1e6*d.Seconds()/c.tokens)
	}
	fmt.Fprintf(&b, "%d steps of %.1f tokens in %.1f s, %.2f ms each\n", c.steps, c.tokens/float64(c.steps), c.took.Seconds(), 1e3*c.took.Seconds()/float64(c.steps))
	fmt.Fprintf(&b, "compute  %s\nengine   %s\nserver   %s\n", per(c.compute), per(c.engine), per(c.server))
	for _, name := range slices.Sorted(maps.Keys(c.kinds)) {
		fmt.Fprintf(&b, "  %-12s %s\n", name, per(c.kinds[name]))
	}
	return b.String()
}

// kinds maps functions to parts of the server's time. The first one found in a stack counts.
var kinds = []struct{ name, function string }{
	{"sockets", "syscall.Syscall"},
	{"sockets", "syscall.RawSyscall"},
	{"JSON, events", "vapp.dev/appliance/api/openai."},
	{"detokenizing", "vapp.dev/engine/tokenizer."},
	{"dialect", "vapp.dev/appliance/chat/dialect."},
	{"chat", "vapp.dev/appliance/chat."},
	{"collector", "runtime.gcBgMarkWorker"},
	{"collector", "runtime.bgsweep"},
	{"scheduling", "runtime.mcall"},
	{"scheduling", "runtime.mstart"},
	{"HTTP", "net/http."},
	{"waking", "(*Stream).push"},
}

// watch starts all streams and measures the CPU time.
func (s *server) watch(t *testing.T) cost {
	t.Helper()
	crowd := exec.Command(buildCrowd(t), s.url, strconv.Itoa(*crowded))
	crowd.Stdout, crowd.Stderr = os.Stderr, os.Stderr
	if err := crowd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = crowd.Process.Kill()
		_ = crowd.Wait()
	}()
	s.until(t, "all streams run", func() bool { return s.engine().Stats().Running == *crowded })
	time.Sleep(time.Second)

	var out bytes.Buffer
	before, steps, cpuBefore := s.generated(t), s.engine().Stats().Steps, cpuTime(t)
	at := time.Now()
	if err := pprof.StartCPUProfile(&out); err != nil {
		t.Fatal(err)
	}
	time.Sleep(watched)
	running := s.engine().Stats().Running
	pprof.StopCPUProfile()
	c := cost{took: time.Since(at), steps: s.engine().Stats().Steps - steps, tokens: s.generated(t) - before, kinds: map[string]time.Duration{}}
	if running < *crowded*9/10 {
		t.Errorf("got %d streams at the end, want at least 90 %% of %d", running, *crowded)
	}
	c.split(t, &out, cpuTime(t)-cpuBefore)
	return c
}

// split assigns the samples of a profile to engine, kernels and server; the server gets
// the rest, and the time to wake readers. The time of threads that are not Go's is the
// process's time without that of the profile.
func (c *cost) split(t *testing.T, r io.Reader, all time.Duration) {
	t.Helper()
	p, err := profile.Parse(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range p.Sample {
		spent := time.Duration(s.Value[len(s.Value)-1])
		var stack strings.Builder
		for _, l := range s.Location {
			for _, line := range l.Line {
				stack.WriteString(line.Function.Name + "\n")
			}
		}
		switch text := stack.String(); {
		case strings.Contains(text, "runtime._ExternalCode") || strings.Contains(text, "engine/backend/cpu"):
		case strings.Contains(text, "vapp.dev/engine.(*loop)") && !strings.Contains(text, "(*Stream).push"):
			c.engine += spent
		default:
			c.server += spent
			name := "other"
			for _, k := range kinds {
				if strings.Contains(text, k.function) {
					name = k.name
					break
				}
			}
			c.kinds[name] += spent
		}
	}
	c.compute = max(0, all-c.engine-c.server)
	if path := os.Getenv("VAPP_STREAMS_PROFILE"); path != "" {
		f, err := os.Create(path + "-" + strings.ReplaceAll(t.Name(), "/", "-"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := p.Write(f); err != nil {
			t.Fatal(err)
		}
	}
}

// cpuTime returns the CPU time of this process.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// generated returns the number of generated tokens.
func (s *server) generated(t *testing.T) float64 {
	t.Helper()
	r, err := http.Get(s.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "vllm:generation_tokens_total{") {
			n, err := strconv.ParseFloat(lines.Text()[strings.LastIndexByte(lines.Text(), ' ')+1:], 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("no vllm:generation_tokens_total")
	return 0
}

// buildCrowd builds the program testdata/crowd and returns its path.
func buildCrowd(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "crowd")
	if out, err := exec.Command("go", "build", "-o", bin, "./testdata/crowd").CombinedOutput(); err != nil {
		t.Fatalf("go build ./testdata/crowd: %v\n%s", err, out)
	}
	return bin
}
