package agenda

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Head is the head of the report.
type Head struct {
	Run     string // which agenda it is: "A: correctness"
	Machine string // the device, for readers
	When    string
	Bundle  string // version of the binary
}

// Page returns the report: the status of each part, figures in tables, and the last output of
// failed parts. Figures that cannot be parsed are noted as such.
func Page(h Head, results []Result) string {
	w := &page{}
	w.line("# GPU check %s", h.Run)
	w.line("")
	w.line("%s, %s, %s.", h.Machine, h.When, h.Bundle)
	w.line("")
	w.became(results)
	w.targets(results)
	w.limits(results)
	w.benches(results)
	w.graphs(results)
	w.dependent(results)
	w.steps(results)
	w.memory(results)
	for _, r := range results {
		switch {
		case r.Status == NotRun || r.Status == Absent:
		case (r.Kind == Bench || r.Kind == Ops) && r.Status == OK:
			if _, ok := benchOf(r); !ok {
				w.line("")
				w.line("## %s", r.Title)
				w.line("")
				w.line("Its figures cannot be read.")
			}
		default:
			w.section(r)
		}
	}
	w.line("")
	w.model(results)
	return strings.TrimRight(w.b.String(), "\n") + "\n"
}

type page struct{ b strings.Builder }

func (w *page) line(format string, args ...any) { fmt.Fprintf(&w.b, format+"\n", args...) }

// row writes a line of a table and escapes characters that would end a cell.
func (w *page) row(cells ...string) {
	for i := range cells {
		cells[i] = strings.ReplaceAll(strings.ReplaceAll(cells[i], "|", "\\|"), "\n", " ")
	}
	w.line("| %s |", strings.Join(cells, " | "))
}

func (w *page) head(align string, cells ...string) {
	w.row(cells...)
	rule := make([]string, len(cells))
	for i := range rule {
		if rule[i] = "---"; align[i] == 'r' {
			rule[i] = "---:"
		}
	}
	w.row(rule...)
}

// became writes the table of all parts.
func (w *page) became(results []Result) {
	w.head("llrl", "part", "became", "seconds", "why")
	for _, r := range results {
		w.row(r.Name, string(r.Status), fmt.Sprintf("%.1f", r.Seconds), r.Why)
	}
	w.line("")
	w.line("%s.", Ended(results))
	w.line("")
}

// Ended says in a line how many parts had which status.
func Ended(results []Result) string {
	count := map[Status]int{}
	for _, r := range results {
		count[r.Status]++
	}
	var said []string
	for _, s := range []Status{OK, Failed, Crashed, Late, Absent, NotRun} {
		if count[s] > 0 {
			said = append(said, fmt.Sprintf("%d %s", count[s], s))
		}
	}
	return fmt.Sprintf("%d parts: %s", len(results), strings.Join(said, ", "))
}

// section writes the output of a part.
func (w *page) section(r Result) {
	w.line("## %s", r.Title)
	w.line("")
	if r.Status != OK {
		w.line("`%s`: %s, %s.", strings.Join(r.Command, " "), r.Status, r.Why)
		w.line("")
	}
	switch {
	case r.Kind == Tests:
		w.tests(r)
	case r.Data != nil && r.Kind != Bench && r.Kind != Ops:
		w.rates(r.Data)
	case r.Output != "":
		w.block(r.Output, 120)
	}
	if r.Status != OK && r.Errors != "" {
		w.block(r.Errors, 40)
	}
}

// block quotes the last lines of a text.
func (w *page) block(s string, most int) {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	if n := len(lines) - most; n > 0 {
		lines = append([]string{fmt.Sprintf("… %d lines", n)}, lines[n:]...)
	}
	w.line("```")
	for _, l := range lines {
		w.line("%s", strings.ReplaceAll(l, "```", "'''"))
	}
	w.line("```")
	w.line("")
}

// tests counts the results of a test binary, and quotes the failures.
func (w *page) tests(r Result) {
	var ok, skipped int
	var failed []string
	for _, l := range strings.Split(r.Output, "\n") {
		switch l := strings.TrimSpace(l); {
		case strings.HasPrefix(l, "--- PASS"):
			ok++
		case strings.HasPrefix(l, "--- SKIP"):
			skipped++
		case strings.HasPrefix(l, "--- FAIL: "):
			failed = append(failed, strings.Fields(l)[2])
		}
	}
	w.line("%d passed, %d failed, %d skipped.", ok, len(failed), skipped)
	w.line("")
	for _, f := range failed {
		w.line("- failed: `%s`", f)
	}
	if len(failed) > 0 {
		w.line("")
	}
	if r.Status != OK {
		w.block(unpassed(r.Output), 200)
	}
}

// unpassed returns the output of a test binary without the lines of started and passed tests.
func unpassed(output string) string {
	var kept []string
	for line := range strings.Lines(output) {
		said := strings.TrimSpace(line)
		if !strings.HasPrefix(said, "=== ") && !strings.HasPrefix(said, "--- PASS") && !strings.Contains(said, figureMark) {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

// rates writes an object of figures, and lists of objects as tables.
func (w *page) rates(data json.RawMessage) {
	var all map[string]any
	if err := json.Unmarshal(data, &all); err != nil {
		w.line("its figures cannot be read: %v", err)
		w.line("")
		return
	}
	var plain, lists []string
	for k, v := range all {
		if rows, ok := v.([]any); ok && len(rows) > 0 {
			if _, ok := rows[0].(map[string]any); ok {
				lists = append(lists, k)
				continue
			}
		}
		plain = append(plain, k)
	}
	slices.Sort(plain)
	slices.Sort(lists)
	if len(plain) > 0 {
		w.head("lr", "what", "figure")
		for _, k := range plain {
			w.row(k, figure(all[k]))
		}
		w.line("")
	}
	for _, k := range lists {
		w.line("%s:", k)
		w.line("")
		w.table(all[k].([]any))
	}
}

// table writes objects with the keys of the first one as a table.
func (w *page) table(rows []any) {
	first, _ := rows[0].(map[string]any)
	var names []string
	for k := range first {
		names = append(names, k)
	}
	slices.Sort(names)
	w.head(strings.Repeat("r", len(names)), slices.Clone(names)...)
	for _, x := range rows {
		m, _ := x.(map[string]any)
		var cells []string
		for _, k := range names {
			cells = append(cells, figure(m[k]))
		}
		w.row(cells...)
	}
	w.line("")
}

func figure(v any) string {
	switch x := v.(type) {
	case nil:
		return "–"
	case float64:
		if x == float64(int64(x)) && x < 1e9 && x > -1e9 {
			return fmt.Sprintf("%d", int64(x))
		}
		return fmt.Sprintf("%.4g", x)
	case string:
		return x
	}
	b, err := json.Marshal(v)
	if err != nil {
		return "–"
	}
	if len(b) > 200 {
		return fmt.Sprintf("%d bytes of JSON", len(b))
	}
	return string(b)
}
