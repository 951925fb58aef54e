package figures

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// PageName returns the name of a processor's page in docs/performance, from the fields of
// /proc/cpuinfo: "amd-epyc-25-17.md".
func PageName(model, family, number string) string {
	for _, mark := range []string{"(R)", "(r)", "(TM)", "(tm)", " CPU", " Processor"} {
		model = strings.ReplaceAll(model, mark, "")
	}
	model, _, _ = strings.Cut(model, " @")
	words := strings.FieldsFunc(strings.ToLower(strings.Join([]string{model, family, number}, "-")), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	})
	return strings.Join(words, "-") + ".md"
}

// page is what the index shows of a machine's page.
type page struct {
	file, cpu, met string
	facts          []string
	works          []string
	cells          map[string]string // by work
}

// Index returns the text of docs/performance.md: the machines with a page, side by side. pages has
// their texts by file name, as Report writes them. It fails for a text that is no such page.
func Index(pages map[string]string) (string, error) {
	var all []page
	for file, text := range pages {
		p, err := readPage(file, text)
		if err != nil {
			return "", err
		}
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b page) int { return strings.Compare(a.file, b.file) })
	var b strings.Builder
	b.WriteString(indexHead)
	for _, p := range all {
		fmt.Fprintf(&b, "- [%s](performance/%s): %s\n", p.cpu, p.file, p.met)
		for _, f := range p.facts {
			fmt.Fprintf(&b, "  - %s\n", f)
		}
	}
	b.WriteString("\n" + indexTable + "| work |")
	for _, p := range all {
		fmt.Fprintf(&b, " %s |", p.cpu)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(all)) + "\n")
	for _, w := range worksOf(all) {
		fmt.Fprintf(&b, "| %s |", w)
		for _, p := range all {
			cell, ok := p.cells[w]
			if !ok {
				cell = "–"
			}
			fmt.Fprintf(&b, " %s |", cell)
		}
		b.WriteString("\n")
	}
	return b.String(), nil
}

const indexHead = `# Performance

vapp beside llama.cpp and PyTorch on the same files, one page for each machine that was measured. ` + "`make bench-peer`" + `
measures the machine that it runs on, writes its page and then this one, which only repeats figures of the pages.

## The machines

`

const indexTable = `## Side by side

Tokens/s of vapp, or milliseconds of the first token; in brackets the share of that machine's own limit, and the multiple of the
better llama.cpp.

`

// worksOf returns the works of all pages in the order of the first page that has them.
func worksOf(all []page) (out []string) {
	for _, p := range all {
		for _, w := range p.works {
			if !slices.Contains(out, w) {
				out = append(out, w)
			}
		}
	}
	return out
}

// readPage reads a page that Report wrote.
func readPage(file, text string) (page, error) {
	p := page{file: path.Base(file), cells: map[string]string{}}
	bad := func(what string) (page, error) {
		return page{}, fmt.Errorf("%s: %s; it is no page of make bench-peer", file, what)
	}
	rest, ok := strings.CutPrefix(text, title)
	if !ok {
		return bad("it does not begin with " + strings.TrimSpace(title))
	}
	p.cpu, rest, _ = strings.Cut(rest, "\n")
	_, facts, ok := strings.Cut(rest, "## The machine\n\n")
	if !ok {
		return bad("no section of the machine")
	}
	for line := range strings.Lines(facts) {
		fact, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "- ")
		if !ok {
			break
		}
		p.facts = append(p.facts, fact)
	}
	_, table, ok := strings.Cut(facts, "## Against the targets\n\n")
	table, after, missed := strings.Cut(table, "\n## Missed\n")
	if !ok || !missed {
		return bad("no table of targets")
	}
	lines := strings.Split(strings.TrimSpace(table), "\n")
	for _, line := range lines[min(2, len(lines)):] {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if len(cells) < 7 {
			return bad("a row of " + fmt.Sprint(len(cells)) + " cells")
		}
		if shown(cells[0]) && cells[1] != "–" {
			p.works = append(p.works, cells[0])
			p.cells[cells[0]] = brief(cells[1], cells[5], cells[6])
		}
	}
	for line := range strings.Lines(after) {
		if strings.Contains(line, "targets are met") {
			p.met, _, _ = strings.Cut(strings.TrimSpace(line), ";")
			p.met = strings.TrimSuffix(p.met, ".")
			return p, nil
		}
	}
	return bad("no number of the targets that are met")
}

// shown reports whether the index has a row of the table: speed as a client sees it.
func shown(work string) bool {
	for _, w := range []string{", engine", "peak memory", "start", "Go and HTTP"} {
		if strings.Contains(work, w) {
			return false
		}
	}
	return true
}

// brief returns vapp's figure without its spread, the share of the limit and the multiple of the
// better llama.cpp.
func brief(vapp, limit, best string) string {
	vapp, _, _ = strings.Cut(vapp, " ±")
	var in []string
	if share, _, ok := strings.Cut(limit, " of "); ok {
		in = append(in, share)
	}
	if times, _, _ := strings.Cut(best, " ("); times != "–" && times != "" {
		in = append(in, times)
	}
	if len(in) == 0 {
		return vapp
	}
	return vapp + " (" + strings.Join(in, ", ") + ")"
}
