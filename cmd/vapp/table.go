package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// table prints rows of cells under their headings. sides has a letter for each column, "l" or "r"
// for left or right alignment.
func table(w io.Writer, sides string, heads []string, rows [][]string) {
	width := make([]int, len(heads))
	all := append([][]string{heads}, rows...)
	for _, row := range all {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range all {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if sides[i] == 'r' {
				line.WriteString(pad + cell)
			} else {
				line.WriteString(cell + pad)
			}
			line.WriteString("  ")
		}
		fmt.Fprintln(w, strings.TrimRight(line.String(), " "))
	}
}

// pairs prints names and values in two columns, without pairs whose value is "".
func pairs(w io.Writer, list [][2]string) {
	width := 0
	for _, p := range list {
		width = max(width, len(p[0]))
	}
	for _, p := range list {
		if p[1] != "" {
			fmt.Fprintf(w, "%-*s  %s\n", width, p[0], p[1])
		}
	}
}

// asJSON prints a value as indented JSON.
func asJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// formatRate formats a rate with its unit in powers of a thousand: 312 TFLOP/s.
func formatRate(x float64, unit string) string {
	if x == 0 {
		return "-"
	}
	for _, s := range []struct {
		step float64
		name string
	}{{1e15, "P"}, {1e12, "T"}, {1e9, "G"}, {1e6, "M"}} {
		if x >= s.step {
			return fmt.Sprintf("%.3g %s%s", x/s.step, s.name, unit)
		}
	}
	return fmt.Sprintf("%.3g %s", x, unit)
}
