package compat

import (
	"fmt"
	"strings"
)

// Basis is the certainty of a line.
type Basis string

// The bases, from the most certain.
const (
	Exact         Basis = "exact"         // this arithmetic gives the figure of a log, digit by digit
	Derived       Basis = "derived"       // the same arithmetic, not confirmed by a log; or a figure that no log prints
	Fitted        Basis = "fitted"        // constants fitted on logs; Residual bounds the error
	Reconstructed Basis = "reconstructed" // formulas derived from a text and its figures
)

// Line is one figure.
type Line struct {
	Key      string  `json:"key"`
	Text     string  `json:"text"` // in the wording of the release, without timestamps
	Value    float64 `json:"value"`
	Unit     string  `json:"unit,omitempty"`
	Basis    Basis   `json:"basis"`
	Residual float64 `json:"residualPercent,omitempty"` // fitted: ± of Value
	Note     string  `json:"note,omitempty"`
}

// tag returns "exact", or "fitted ±0.5 %".
func (l Line) tag() string {
	if l.Residual == 0 {
		return string(l.Basis)
	}
	return fmt.Sprintf("%s ±%s %%", l.Basis, percent(l.Residual))
}

// percent formats a bound with as many digits as it has.
func percent(p float64) string {
	if p >= 10 {
		return fmt.Sprintf("%.0f", p)
	}
	return fmt.Sprintf("%.1f", p)
}

// Report has the lines that a release would log, in their order.
type Report struct {
	Release Release `json:"release"`
	Lines   []Line  `json:"lines"`
}

// Find returns the line with this key.
func (r Report) Find(key string) (Line, bool) {
	for _, l := range r.Lines {
		if l.Key == key {
			return l, true
		}
	}
	return Line{}, false
}

// String returns one line per figure: the text of the release, then its certainty.
func (r Report) String() string {
	wide := 0
	for _, l := range r.Lines {
		wide = max(wide, len([]rune(l.Text)))
	}
	wide = min(wide, 92)
	var b strings.Builder
	for _, l := range r.Lines {
		pad := max(0, wide-len([]rune(l.Text)))
		fmt.Fprintf(&b, "%s%s  [%s]", l.Text, strings.Repeat(" ", pad), l.tag())
		if l.Note != "" {
			fmt.Fprintf(&b, " %s", l.Note)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// add appends a line.
func (r *Report) add(l Line) { r.Lines = append(r.Lines, l) }

// off returns a bound as a share of a figure in percent, rounded up to a tenth.
func off(bound, of float64) float64 {
	if of <= 0 {
		return 100
	}
	p := bound / of * 1000
	n := float64(int64(p))
	if n < p {
		n++
	}
	return min(100, n/10)
}
