//go:build clients

package clients

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The requests of a benchmark, the tokens of each, and the concurrency.
const benchRequests, benchIn, benchOut, benchAtOnce = 12, 24, 8, 4

// benchTable lists the labels that `vapp bench serve` prints; "-" begins a section.
var benchTable = []string{
	"Successful requests:", "Failed requests:", "Maximum request concurrency:", "Benchmark duration (s):", "Total input tokens:",
	"Total generated tokens:", "Request throughput (req/s):", "Output token throughput (tok/s):", "Peak output token throughput (tok/s):",
	"Peak concurrent requests:", "Total token throughput (tok/s):",
	"-Time to First Token", "Mean TTFT (ms):", "Median TTFT (ms):", "P50 TTFT (ms):", "P99 TTFT (ms):",
	"-Time per Output Token (excl. 1st token)", "Mean TPOT (ms):", "Median TPOT (ms):", "P50 TPOT (ms):", "P99 TPOT (ms):",
	"-Inter-token Latency", "Mean ITL (ms):", "Median ITL (ms):", "P50 ITL (ms):", "P99 ITL (ms):",
	"-End-to-end Latency", "Mean E2EL (ms):", "Median E2EL (ms):", "P50 E2EL (ms):", "P99 E2EL (ms):",
}

// bench returns a command `vapp bench serve` against a server.
func bench(url, result string, more ...string) *exec.Cmd {
	return exec.Command("../../bin/vapp", append([]string{
		"bench", "serve", "--base-url", url, "--dataset-name", "random", "--random-input-len", strconv.Itoa(benchIn),
		"--temperature", "0", "--seed", "7", "--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "50,99",
		"--tokenizer", "../../models/SmolLM2-135M-Instruct.Q4_1.gguf", "--save-result", "--result-filename", result,
	}, more...)...)
}

// code runs a command and returns its output and exit code.
func code(t *testing.T, c *exec.Cmd) (out, complaint string, code int) {
	t.Helper()
	var o, e bytes.Buffer
	c.Stdout, c.Stderr = &o, &e
	var exit *exec.ExitError
	if err := c.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return o.String(), e.String(), c.ProcessState.ExitCode()
}

// figures parses a table: the labels in order, and the value of each.
func benchFigures(t *testing.T, out string) (labels []string, values map[string]float64) {
	t.Helper()
	_, rest, found := strings.Cut(out, "============ Serving Benchmark Result ============\n")
	body, _, ended := strings.Cut(rest, strings.Repeat("=", 50)+"\n")
	if !found || !ended {
		t.Fatalf("no table in\n%s", out)
	}
	values = map[string]float64{}
	for line := range strings.Lines(body) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "-") {
			if len(line) != 50 {
				t.Errorf("a title of %d columns: %q", len(line), line)
			}
			labels = append(labels, "-"+strings.Trim(line, "-"))
			continue
		}
		if len(line) < 51 || line[40] != ' ' {
			t.Fatalf("a row of %d columns: %q", len(line), line)
		}
		label := strings.TrimSpace(line[:40])
		x, err := strconv.ParseFloat(strings.TrimSpace(line[41:]), 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		labels, values[label] = append(labels, label), x
	}
	return labels, values
}

// checkBench runs the benchmark against a healthy server, and checks the table, the sums, the
// saved file and the exit code.
func checkBench(t *testing.T, url string, more ...string) map[string]float64 {
	t.Helper()
	path := filepath.Join(t.TempDir(), "result.json")
	out, complaint, exit := code(t, bench(url, path, append([]string{
		"--random-output-len", strconv.Itoa(benchOut), "--num-prompts", strconv.Itoa(benchRequests), "--max-concurrency", strconv.Itoa(benchAtOnce)}, more...)...))
	if exit != 0 {
		t.Fatalf("exit code %d\n%s%s", exit, out, complaint)
	}
	labels, v := benchFigures(t, out)
	want := benchTable
	if slices.Contains(more, "--request-rate") {
		want = slices.Insert(slices.Clone(want), 3, "Request rate configured (RPS):")
	}
	if diff := cmp.Diff(want, labels); diff != "" {
		t.Errorf("rows of the table (-want +got)\n%s", diff)
	}
	seconds, in, generated := v["Benchmark duration (s):"], v["Total input tokens:"], v["Total generated tokens:"]
	if v["Successful requests:"] != benchRequests || v["Failed requests:"] != 0 || v["Maximum request concurrency:"] != benchAtOnce ||
		generated != benchRequests*benchOut || in < benchRequests*(benchIn-2) || in > benchRequests*(benchIn+2) {
		t.Errorf("counts do not add up:\n%s", out)
	}
	for label, n := range map[string]float64{"Request throughput (req/s):": benchRequests, "Output token throughput (tok/s):": generated, "Total token throughput (tok/s):": in + generated} {
		if got := v[label]; got*seconds < 0.97*n-0.05 || got*seconds > 1.03*n+0.05 { // both values are rounded to two digits
			t.Errorf("%s %v in %v s are not %v", label, got, seconds, n)
		}
	}
	for _, m := range []string{"TTFT", "TPOT", "ITL", "E2EL"} {
		if mid, top := v["Median "+m+" (ms):"], v["P99 "+m+" (ms):"]; mid < 0 || top <= 0 || mid > top || v["P50 "+m+" (ms):"] != mid {
			t.Errorf("%s: median %v, P99 %v", m, mid, top)
		}
	}
	var saved struct {
		Completed, Failed int
		Output            float64 `json:"total_output_tokens"`
	}
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &saved)
	}
	if err != nil || saved.Completed != benchRequests || saved.Failed != 0 || saved.Output != generated {
		t.Errorf("saved: %+v, %v", saved, err)
	}
	return v
}

// TestBenchServe measures vapp and compares the client's counts with the server's.
func TestBenchServe(t *testing.T) {
	const counter = `vllm:generation_tokens_total`
	for end := time.Now().Add(time.Minute); benchCounter(t, base, "vllm:num_requests_running") > 0 && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond) // until the requests of earlier tests have ended
	}
	before := benchCounter(t, base, counter)
	checkBench(t, base)
	const probe = benchOut // tokens of one request before the measurement
	const want = float64(probe + benchRequests*benchOut)
	grown := benchCounter(t, base, counter) - before
	for end := time.Now().Add(time.Minute); grown < want && time.Now().Before(end); grown = benchCounter(t, base, counter) - before {
		time.Sleep(10 * time.Millisecond) // a step is counted after its tokens are sent
	}
	if grown != want {
		t.Errorf("the server generated %v tokens, the client counted %d and a probe of %d", grown, benchRequests*benchOut, probe)
	}
	checkBench(t, base, "--backend", "openai-chat", "--request-rate", "200", "--burstiness", "0.5")
}

// benchCounter returns the sum of a counter's series.
func benchCounter(t *testing.T, url, name string) float64 {
	t.Helper()
	r, err := http.Get(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	sum, seen := 0.0, false
	line := regexp.MustCompile(`^` + name + `(?:\{.*\})? (\S+)$`)
	for s := bufio.NewScanner(r.Body); s.Scan(); {
		if m := line.FindStringSubmatch(s.Text()); m != nil {
			x, err := strconv.ParseFloat(m[1], 64)
			if err != nil {
				t.Fatal(err)
			}
			sum, seen = sum+x, true
		}
	}
	if !seen {
		t.Fatalf("there is no %s", name)
	}
	return sum
}

// TestBenchServeKilled kills the server during the benchmark. Running and later requests
// must be reported as failed with a reason.
func TestBenchServeKilled(t *testing.T) {
	s, err := startServer(`maxModelLen: "1K", memory: kvCache: "64MiB"`)
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(s.dir)
	c := bench(s.url, filepath.Join(t.TempDir(), "r.json"), "--random-output-len", "64", "--random-range-ratio", "0.9", "--num-prompts", "64", "--max-concurrency", "4")
	progress, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	c.Stdout = &out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	killed := false
	for r := bufio.NewScanner(progress); r.Scan(); {
		fmt.Fprintln(&said, r.Text())
		if !killed && strings.Contains(r.Text(), "Requests:") {
			killed = true
			if err := s.cmd.Process.Kill(); err != nil {
				t.Error(err)
			}
			_ = s.cmd.Wait() // it was killed
		}
	}
	err = c.Wait()
	if code := c.ProcessState.ExitCode(); code != 1 {
		t.Errorf("exit code %d, %v\n%s%s", code, err, &out, &said)
	}
	_, v := benchFigures(t, out.String())
	good, bad := v["Successful requests:"], v["Failed requests:"]
	if !killed || good < 1 || bad < 1 || good+bad != 64 {
		t.Fatalf("%v succeeded and %v failed of 64\n%s%s", good, bad, &out, &said)
	}
	_, reasons, _ := strings.Cut(out.String(), "Failed requests by reason:\n")
	sum := 0
	for _, m := range regexp.MustCompile(`(?m)^ *(\d+)  (closed early|connection failed|connection closed): .+$`).FindAllStringSubmatch(reasons, -1) {
		n, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	if float64(sum) != bad {
		t.Errorf("%v failed, and the reasons are\n%s", bad, reasons)
	}
}

// TestBenchServeLlama measures llama-server, if VAPP_LLAMA_SERVER names one or
// `make bench-peer` built it.
func TestBenchServeLlama(t *testing.T) {
	bin := os.Getenv("VAPP_LLAMA_SERVER")
	if bin == "" {
		bin = "../../.bench/llama.cpp/bin/llama-server"
		if _, err := os.Stat(bin); err != nil {
			t.Skip("there is no llama-server: VAPP_LLAMA_SERVER names one, and make bench-peer builds it")
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	l.Close()
	var log bytes.Buffer
	c := exec.Command(bin, "-m", "../../models/SmolLM2-135M-Instruct.Q4_1.gguf", "--alias", modelName, "--host", "127.0.0.1", "--port", port, "-np", "4", "-c", "1024")
	c.Stdout, c.Stderr = &log, &log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		if err := c.Wait(); t.Failed() {
			t.Logf("llama-server ended: %v\n%s", err, &log)
		}
	}()
	url := "http://127.0.0.1:" + port
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if r, err := http.Get(url + "/health"); err == nil {
			_, _ = io.Copy(io.Discard, r.Body)
			if r.Body.Close(); r.StatusCode == http.StatusOK {
				break
			}
		}
		if time.Now().After(end) {
			t.Fatal("llama-server is not ready after a minute")
		}
	}
	checkBench(t, url)
}
