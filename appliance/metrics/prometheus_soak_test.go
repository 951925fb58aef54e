//go:build soak

package metrics

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vapp.dev/engine"
)

// TestPrometheus runs Prometheus against a server that works between its scrapes, 50 ms apart, and
// evaluates every expression of vapp's board, of vLLM's boards and of the alert rules: each has data, or
// is one of notExported.
func TestPrometheus(t *testing.T) {
	program, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("not run: there is no prometheus (Debian: apt-get install prometheus)")
	}
	const scrapes = 120
	busy := newBusyServer(scrapes)
	defer busy.Close()
	base := startPrometheus(t, program, busy.Listener.Addr().String())
	select {
	case <-busy.enough:
	case <-time.After(time.Minute):
		t.Fatal("Prometheus does not scrape")
	}

	expressions := vllmExpressions(t)
	for _, list := range ownExpressions(t) {
		expressions = append(expressions, list...)
	}
	data, excepted := 0, 0
	for _, expr := range expressions {
		n := query(t, base, expr)
		reason := exception(expr)
		switch {
		case n > 0 && reason == "":
			data++
		case n == 0 && reason != "":
			excepted++
		default:
			t.Errorf("%s\n  has %d values; exception: %q", expr, n, reason)
		}
	}
	rules := checkRules(t, base)
	t.Logf("Prometheus evaluated %d expressions: %d have data, %d are of series that vapp does not export; and %d alert rules", len(expressions), data, excepted, rules)
}

// busyServer serves the metrics of a loaded server, and plays requests before each scrape.
type busyServer struct {
	*httptest.Server
	enough chan struct{} // closed after the wanted number of scrapes
}

func newBusyServer(scrapes int) *busyServer {
	m := loadedServer()
	hooks, expose := m.Hooks(m.cfg), m.Handler()
	m.SetITLTarget(50 * time.Millisecond)
	b := &busyServer{enough: make(chan struct{})}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		play(m, hooks) // Prometheus has one scrape of a target under way
		hooks.Step(engine.StepStats{Drafts: 2, DraftTokens: 4, AcceptedTokens: 3, AcceptedPerPosition: []int{2, 1}, SwappedOut: 1, SwappedIn: 1, BeyondTarget: true, Graph: "FULL"})
		m.CountSwap("rebuild", true, 2*time.Second, time.Second)
		for _, status := range []int{200, 503} {
			m.ObserveRequest(HTTPRequest{Method: "POST", Handler: "/v1/completions", Status: status, Duration: time.Second})
		}
		expose.ServeHTTP(w, r)
		if scrapes--; scrapes == 0 {
			close(b.enough)
		}
	}))
	return b
}

// startPrometheus starts Prometheus with target and the alert rules, and returns its address.
func startPrometheus(t *testing.T, program, target string) string {
	t.Helper()
	rules, err := filepath.Abs(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := fmt.Sprintf(`global: {scrape_interval: 50ms, scrape_timeout: 50ms, evaluation_interval: 500ms}
rule_files: [%q]
scrape_configs: [{job_name: vapp, static_configs: [{targets: [%q]}]}]
`, rules, target)
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") // Prometheus does not say which port it took
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("%s", text)
		}
	})
	return "http://" + address
}

// boardVariables gives the variables of boards a value.
var boardVariables = strings.NewReplacer(
	"$__rate_interval", "3s", "$__interval", "3s", "$__range", "5s",
	"$job", "vapp", "$instance", ".+", "$model_name", "smollm2", "$Deployment_id", "smollm2",
)

// query evaluates an expression of a board, and returns how many of its values are numbers.
func query(t *testing.T, base, expr string) (n int) {
	t.Helper()
	switch v := exprVariable.FindStringSubmatch(expr); {
	case v == nil:
	case v[1] == "":
		expr = fmt.Sprintf(`count by (%s) ({%[1]s!=""})`, v[2])
	default:
		expr = fmt.Sprintf("count by (%s) (%s)", v[2], v[1])
	}
	var reply struct {
		Status, Error string
		Data          struct{ Result []struct{ Value [2]any } }
	}
	ask(t, base+"/api/v1/query?query="+url.QueryEscape(boardVariables.Replace(expr)), &reply)
	if reply.Status != "success" {
		t.Errorf("%s\n  %s", expr, reply.Error)
	}
	for _, r := range reply.Data.Result {
		if r.Value[1] != "NaN" {
			n++
		}
	}
	return n
}

// checkRules fails t where a rule cannot be evaluated, and returns how many there are.
func checkRules(t *testing.T, base string) (n int) {
	t.Helper()
	var reply struct {
		Data struct {
			Groups []struct {
				Rules []struct{ Name, Health, LastError string }
			}
		}
	}
	ask(t, base+"/api/v1/rules", &reply)
	for _, g := range reply.Data.Groups {
		for _, r := range g.Rules {
			if n++; r.Health != "ok" {
				t.Errorf("rule %s: %s: %s", r.Name, r.Health, r.LastError)
			}
		}
	}
	if n == 0 {
		t.Error("Prometheus has no rules")
	}
	return n
}

// ask reads the JSON reply to GET address.
func ask(t *testing.T, address string, reply any) {
	t.Helper()
	r, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(text, reply)
	}
	if err != nil {
		t.Fatalf("%s: %v: %s", address, err, text)
	}
}
