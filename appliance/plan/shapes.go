package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
)

// shapesOf returns the kernel choices of the account's programs, if the layout chooses kernels
// by the number of rows.
func shapesOf(a *engine.Account) (out []backend.KernelChoice, err error) {
	l, ok := a.Layout.(backend.KernelChooser)
	if !ok {
		return nil, nil
	}
	for _, p := range a.Reservation.Programs {
		list, err := l.KernelChoices(p)
		if err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	return out, nil
}

// shapeLine is a line of the table: the kernels of the ops of one shape.
type shapeLine struct {
	name   string
	decode bool // kernels of steps that only decode
	of     []backend.KernelChoice
}

// shapeLines groups kernel choices by shape, in the order of first use. A line for decoding
// follows that for all steps.
func shapeLines(all []backend.KernelChoice) (lines []shapeLine) {
	for _, k := range all {
		format := k.Format
		if strings.Contains(k.Kernel, "_x8_") {
			format += "_x8"
		}
		name := strings.Join([]string{k.Op, format, k.Shape}, " ")
		i := slices.IndexFunc(lines, func(l shapeLine) bool { return l.name == name && l.decode == k.Decode })
		if i < 0 {
			i = len(lines)
			if base := slices.IndexFunc(lines, func(l shapeLine) bool { return l.name == name }); base >= 0 {
				i = base + 1
			}
			lines = slices.Insert(lines, i, shapeLine{name: name, decode: k.Decode})
		}
		lines[i].of = append(lines[i].of, k)
	}
	for _, l := range lines {
		slices.SortStableFunc(l.of, func(a, b backend.KernelChoice) int { return cmp.Compare(a.Rows, b.Rows) })
	}
	return lines
}

// byShape prints the kernels by shape: a line for each shape, a column for each number of rows.
func (p *Plan) byShape(t *text) {
	if len(p.Shapes) == 0 {
		return
	}
	var columns []int
	for _, k := range p.Shapes {
		columns = append(columns, k.Rows)
	}
	slices.Sort(columns)
	columns = slices.Compact(columns)
	head := []string{""}
	for _, n := range columns {
		head = append(head, Group(int64(n)))
	}
	rows := [][]string{head}
	for _, l := range shapeLines(p.Shapes) {
		row := []string{l.name}
		if l.decode {
			row[0] = "  decoding"
		}
		for _, n := range columns {
			row = append(row, l.cell(n))
		}
		rows = append(rows, row)
	}
	t.line("")
	t.line("kernels, by the most rows of a step (kernels.md; /n: a sum in n parts)")
	wide := make([]int, len(head))
	for _, r := range rows {
		for i, cell := range r {
			wide[i] = max(wide[i], utf8.RuneCountInString(cell))
		}
	}
	for _, r := range rows {
		line := fmt.Sprintf("  %-*s", wide[0], r[0])
		for i, cell := range r[1:] {
			line += fmt.Sprintf(" %*s", wide[i+1], cell)
		}
		t.line("%s", line)
	}
}

// cell returns the name of the kernel for n rows, without its op and format.
func (l shapeLine) cell(n int) string {
	i := slices.IndexFunc(l.of, func(k backend.KernelChoice) bool { return k.Rows >= n })
	switch {
	case i < 0: // ops on sampled rows, of which a step never has n
		i = len(l.of) - 1
	case i == 0 && l.decode && n < l.of[0].Rows: // same kernel as in other steps
		return ""
	}
	k := l.of[i]
	name := k.Kernel[strings.LastIndexByte(k.Kernel, '_')+1:]
	if k.Splits > 1 {
		name += fmt.Sprintf("/%d", k.Splits)
	}
	return name
}
