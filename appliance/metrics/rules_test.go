package metrics

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"vapp.dev/appliance/drift"
)

const rulesFile = "../../packaging/prometheus/vapp.rules.yml"

var (
	ruleExpr   = regexp.MustCompile(`(?m)^ *expr: (.+)$`)
	ruleMetric = regexp.MustCompile(`\b(?:vapp_|vllm:|http_|process_)\w+`)
	ruleKinds  = regexp.MustCompile(`vapp_drift\{kind=~?"([^"]+)"\}`)
)

// unknownMetrics returns the metrics of the rules' expressions that vapp does not export, and the
// number of expressions.
func unknownMetrics(rules string, exported []*dto.MetricFamily) (unknown []string, exprs int) {
	for _, expr := range ruleExpr.FindAllStringSubmatch(rules, -1) {
		exprs++
		names := ruleMetric.FindAllString(expr[1], -1)
		if len(names) == 0 {
			unknown = append(unknown, expr[1])
		}
		for _, name := range names {
			if !slices.ContainsFunc(exported, func(f *dto.MetricFamily) bool { return f.GetName() == name }) {
				unknown = append(unknown, name)
			}
		}
	}
	return unknown, exprs
}

// TestRules checks that every alert rule asks for metrics that vapp exports and says what to do, and, where
// promtool is installed, that Prometheus accepts the file.
func TestRules(t *testing.T) {
	text, err := os.ReadFile(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	exported := families(t, testConfig())
	unknown, exprs := unknownMetrics(string(text), exported)
	if len(unknown) > 0 {
		t.Errorf("%s asks for what vapp does not export: %q", rulesFile, unknown)
	}
	for _, line := range []string{"- alert:", "summary:", "remedy:", "severity:"} {
		if n := strings.Count(string(text), line); n != exprs || n == 0 {
			t.Errorf("%d rules have %d times %q", exprs, n, line)
		}
	}
	if got, _ := unknownMetrics("  expr: vapp_no_such > 0\n  expr: 1\n", exported); !slices.Equal(got, []string{"vapp_no_such", "1"}) {
		t.Errorf("unknown metrics are not found: %q", got)
	}
	var kinds []string
	for _, m := range ruleKinds.FindAllStringSubmatch(string(text), -1) {
		kinds = append(kinds, strings.Split(m[1], "|")...)
	}
	slices.Sort(kinds)
	if want := slices.Sorted(slices.Values(drift.Kinds())); !slices.Equal(kinds, want) {
		t.Errorf("the rules are about the kinds %q; there are %q", kinds, want)
	}
	if tool, err := exec.LookPath("promtool"); err == nil {
		if out, err := exec.Command(tool, "check", "rules", rulesFile).CombinedOutput(); err != nil {
			t.Errorf("promtool: %v\n%s", err, out)
		}
	}
}
