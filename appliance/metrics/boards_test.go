package metrics

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

const ownBoard = "../../packaging/grafana/vapp.json"

// notExported are the beginnings of the names that vLLM's boards ask for and vapp does not export, with
// the reason.
var notExported = map[string]string{
	"vllm:external_prefix_cache_":           "there are no KV connectors",
	"vllm:num_requests_kv_fetch_by_stage":   "there are no KV connectors",
	"vllm:nixl_":                            "there are no KV connectors",
	"vllm:kv_offload_":                      "there are no KV connectors",
	"vllm:simple_kv_offload_":               "there are no KV connectors",
	"vllm:kv_block_":                        "vLLM has it only with --kv-cache-metrics",
	"vllm:estimated_":                       "vLLM has it only with --enable-mfu-metrics",
	"vllm:sleep_mode_operation_":            "the engine does not sleep",
	"vllm:rl_weight_update_operation_durat": "weights are not updated in place",
}

// series is one line of GET /metrics: a name and its labels.
type series struct {
	name   string
	labels map[string]string
}

var (
	sampleLine = regexp.MustCompile(`(?m)^([\w:]+)(?:\{(.*)\})? \S+$`)
	sampleArg  = regexp.MustCompile(`(\w+)="((?:[^"\\]|\\.)*)"`)

	exprSelector = regexp.MustCompile(`([a-zA-Z_:][\w:]*)\s*\{([^}]*)\}`)
	exprMatcher  = regexp.MustCompile(`(\w+)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"`)
	exprText     = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	exprRange    = regexp.MustCompile(`\[[^\]]*\]`)
	exprLabels   = regexp.MustCompile(`\b(by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)`)
	exprName     = regexp.MustCompile(`\b[a-zA-Z_:][\w:]*\s*\(?`)
	exprWord     = regexp.MustCompile(`^(and|or|unless|bool|offset)$`)
	exprVariable = regexp.MustCompile(`^label_values\((?:(.*),)?\s*(\w+)\)$`)
)

// ofTarget are the labels that Prometheus adds to every series of a server.
var ofTarget = []string{"job", "instance"}

// loadedServer returns metrics of a server that uses every part, after requests.
func loadedServer() *Metrics {
	c := testConfig()
	c.Drafts, c.Cache.SwapBytes, c.Cache.SwapPages = 2, 1<<30, 64
	c.KVEvents = func() KVEvents { return KVEvents{Batches: 3, Events: 9, Subscribers: 1} }
	m := played(c)
	m.WatchAdapters(func() AdapterUse { return AdapterUse{Slots: 2, Running: []string{"sql"}} }, time.Now)
	for _, status := range []int{200, 400, 503} {
		m.ObserveRequest(HTTPRequest{Method: "POST", Handler: "/v1/completions", Status: status, In: 7, Out: 100, Duration: 400 * time.Millisecond})
	}
	m.vapp.graphSteps.WithLabelValues("FULL", "").Inc()
	return m
}

// exportedSeries returns the series of GET /metrics, and those that Prometheus adds.
func exportedSeries(t testing.TB, m *Metrics) []series {
	out := []series{{"up", nil}}
	for _, line := range sampleLine.FindAllStringSubmatch(body(t, m), -1) {
		labels := map[string]string{}
		for _, l := range sampleArg.FindAllStringSubmatch(line[2], -1) {
			labels[l[1]] = l[2]
		}
		out = append(out, series{line[1], labels})
	}
	return out
}

// unknownIn returns what an expression selects that is not exported: a selector, or a label that it
// groups by or joins on. It also returns the names of the series that it selects.
func unknownIn(expr string, exported []series) (unknown, names []string) {
	if v := exprVariable.FindStringSubmatch(expr); v != nil {
		expr = fmt.Sprintf("sum by (%s) (%s)", v[2], v[1])
	}
	var chosen []series
	add := func(name, matchers string) {
		names = append(names, name)
		n := len(chosen)
		for _, s := range exported {
			if s.name == name && matches(s, matchers) {
				chosen = append(chosen, s)
			}
		}
		if len(chosen) == n {
			unknown = append(unknown, strings.TrimSuffix(name+"{"+matchers+"}", "{}"))
		}
	}
	rest := exprSelector.ReplaceAllStringFunc(expr, func(found string) string {
		m := exprSelector.FindStringSubmatch(found)
		add(m[1], m[2])
		return " "
	})
	rest = exprRange.ReplaceAllString(exprText.ReplaceAllString(rest, " "), " ")
	var labels []string
	for _, m := range exprLabels.FindAllStringSubmatch(rest, -1) {
		labels = append(labels, strings.FieldsFunc(m[2], func(r rune) bool { return r == ',' || r == ' ' })...)
	}
	for _, name := range exprName.FindAllString(exprLabels.ReplaceAllString(rest, " "), -1) {
		name = strings.TrimSpace(name)
		if !strings.HasSuffix(name, "(") && !exprWord.MatchString(name) {
			add(name, "")
		}
	}
	if len(names) == 0 {
		chosen = exported // label_values(LABEL) asks every series
	}
	for _, l := range labels {
		has := func(s series) bool { _, ok := s.labels[l]; return ok }
		if !slices.Contains(ofTarget, l) && !slices.ContainsFunc(chosen, has) {
			unknown = append(unknown, "label "+l)
		}
	}
	return unknown, names
}

// matches reports whether s has the labels of the matchers with their values. Any value matches a
// variable of a board.
func matches(s series, matchers string) bool {
	for _, m := range exprMatcher.FindAllStringSubmatch(matchers, -1) {
		value, ok := s.labels[m[1]]
		switch label, op, want := m[1], m[2], m[3]; {
		case slices.Contains(ofTarget, label):
		case !ok:
			return false
		case strings.Contains(want, "$"):
		case op == "=" && value != want, op == "!=" && value == want:
			return false
		case (op == "=~" || op == "!~") && regexp.MustCompile("^(?:"+want+")$").MatchString(value) != (op == "=~"):
			return false
		}
	}
	return true
}

// vllmExpressions returns the expressions of the files of vLLM's boards.
func vllmExpressions(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/boards-vllm*.txt")
	if err != nil || len(files) != 2 {
		t.Fatal(files, err)
	}
	var out []string
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
				out = append(out, line)
			}
		}
	}
	return out
}

// TestBoardsOfVLLM checks that every series that vLLM's Grafana boards select exists on a loaded
// server, or is one of notExported.
func TestBoardsOfVLLM(t *testing.T) {
	exported := exportedSeries(t, loadedServer())
	used := map[string]bool{}
	expressions := vllmExpressions(t)
	for _, expr := range expressions {
		unknown, names := unknownIn(expr, exported)
		for _, u := range unknown {
			if prefix := exception(u); prefix != "" {
				used[prefix] = true
			} else {
				t.Errorf("%s\n  asks for %s, which is not exported", expr, u)
			}
		}
		if len(names) == 0 && !strings.HasPrefix(expr, "label_values(") {
			t.Errorf("%s selects nothing", expr)
		}
	}
	if len(expressions) < 120 {
		t.Errorf("there are only %d expressions", len(expressions))
	}
	for prefix := range maps.Keys(notExported) {
		if !used[prefix] {
			t.Errorf("no board asks for %s…: remove it from notExported", prefix)
		}
	}
}

// exception returns the key of notExported for an unknown series or an expression; "" if there is none.
func exception(expr string) string {
	for prefix := range notExported {
		if strings.Contains(expr, prefix) {
			return prefix
		}
	}
	return ""
}

// ownExpressions returns the expressions of vapp's board, by the title of their panel.
func ownExpressions(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(ownBoard)
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title, Type string
			Targets     []struct{ Expr string }
		}
		Templating struct {
			List []struct{ Name, Type, Query string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for _, p := range board.Panels {
		for _, x := range p.Targets {
			out[p.Title] = append(out[p.Title], x.Expr)
		}
		if len(p.Targets) == 0 && p.Type != "row" {
			t.Errorf("panel %q asks for nothing", p.Title)
		}
	}
	for _, v := range board.Templating.List {
		if v.Type == "query" {
			out["variable "+v.Name] = []string{v.Query}
		}
	}
	if len(text) > 25_000 || len(out) < 20 {
		t.Errorf("the board has %d bytes and %d panels", len(text), len(out))
	}
	return out
}

// TestOwnBoard checks that vapp's board asks only for series that a loaded server exports, and for
// every vapp_ family that has no reason to be left out.
func TestOwnBoard(t *testing.T) {
	exported := exportedSeries(t, loadedServer())
	asked := map[string]bool{"vapp_build_info": true} // the same at all times
	for title, list := range ownExpressions(t) {
		for _, expr := range list {
			unknown, names := unknownIn(expr, exported)
			if len(unknown) > 0 {
				t.Errorf("%s: %s\n  asks for %v, which are not exported", title, expr, unknown)
			}
			for _, n := range names {
				asked[n] = true
			}
		}
	}
	for _, s := range exported {
		if strings.HasPrefix(s.name, "vapp_") && !asked[s.name] {
			t.Errorf("no panel shows %s", s.name)
			asked[s.name] = true
		}
	}
}

// TestUnknownIn checks that wrong names, values and labels are found.
func TestUnknownIn(t *testing.T) {
	exported := []series{{"up", nil}, {"a_total", map[string]string{"kind": "x", "le": "1.0"}}, {"b:c", nil}}
	for expr, want := range map[string]string{
		`sum by (kind) (rate(a_total{job=~"$job", kind="x"}[$__range])) / on () group_left () (sum(b:c) > 0)`: "[]",
		`(60 * max_over_time(a_total{kind=~"$kind"}[5m])) and on () count(up{job="j"} == bool 0)`:             "[]",
		`label_values(kind)`:              "[]",
		`label_values(a_total, kind)`:     "[]",
		`label_values(b:c, kind)`:         "[label kind]",
		`rate(a_total[1m]) or d_total`:    "[d_total]",
		`a_total{kind="y"}`:               `[a_total{kind="y"}]`,
		`a_total{kind=~"x|y", le="2.0"}`:  `[a_total{kind=~"x|y", le="2.0"}]`,
		`a_total{kind!="x"}`:              `[a_total{kind!="x"}]`,
		`a_total{kind!~"z"}`:              "[]",
		`a_total{engine=~".*"}`:           `[a_total{engine=~".*"}]`,
		`sum by (le, other) (a_total)`:    "[label other]",
		`label_replace(a_total, "x", "")`: "[]",
	} {
		if got, _ := unknownIn(expr, exported); fmt.Sprint(got) != want {
			t.Errorf("%s: %v, want %s", expr, got, want)
		}
	}
}
