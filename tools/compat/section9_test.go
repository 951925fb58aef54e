package compat

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"
)

// table reads a table of testdata/section9.txt as rows of cells.
func table(t testing.TB, name string) [][]string {
	t.Helper()
	f, err := os.Open("testdata/section9.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out [][]string
	in := false
	for sc := bufio.NewScanner(f); sc.Scan(); {
		line := strings.TrimSpace(sc.Text())
		if title, ok := strings.CutPrefix(line, "# "); ok {
			in = title == name
			continue
		}
		if !in || line == "" {
			continue
		}
		cells := strings.Split(line, "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		out = append(out, cells)
	}
	if len(out) == 0 {
		t.Fatalf("no table %q", name)
	}
	return out
}

func run9(t testing.TB, name string) seed {
	t.Helper()
	for _, s := range seeds(t) {
		if s.Run == name {
			return s
		}
	}
	t.Fatalf("no run %q", name)
	return seed{}
}

func (s seed) ideal(t testing.TB) Ideal {
	return Ideal{Config: config(t, s.Model), TensorParallel: s.Request.TensorParallel, Speculative: s.Request.Speculative.Tokens}
}

func sequences(t testing.TB, i Ideal, bytes int64, length int) float64 {
	t.Helper()
	x, err := i.Sequences(bytes, length)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// rounded returns the logged GiB figure as if it were exact; section 9 starts from it.
func (s seed) rounded(t testing.TB) int64 {
	return int64(number(s.Logged["available"]) * (1 << 30))
}

// TestIdeal checks the first table of section 9.
func TestIdeal(t *testing.T) {
	for _, row := range table(t, "ideal") {
		s := run9(t, row[0])
		lo, _ := s.interval(t)
		o := s.withBytes(t, lo)
		x := sequences(t, s.ideal(t), s.rounded(t), int(o.length))
		steady := float64(o.blocks-1) / float64(o.cache.steady(o.length))
		got := fmt.Sprintf("%d | %.2fx | %.2fx | %.3fx | %s", o.length, o.concurrency(o.length), steady, x, groupDigits(int64(x*float64(o.length))))
		if want := strings.Join(row[1:], " | "); got != want {
			t.Errorf("%s: %s, want %s", row[0], got, want)
		}
		y, err := IdealSequences(s.ideal(t).Config, s.Request.TensorParallel, s.Request.Speculative.Tokens, s.rounded(t), int(o.length))
		if err != nil || y != x {
			t.Errorf("%s: IdealSequences %v, %v; Ideal %v", row[0], y, err, x)
		}
	}
}

// TestIdealByLength checks admission, steady and ideal counts at several lengths.
func TestIdealByLength(t *testing.T) {
	for _, row := range table(t, "by length") {
		s := run9(t, row[0])
		lo, _ := s.interval(t)
		o := s.withBytes(t, lo)
		n := int(number(row[1]))
		got := fmt.Sprintf("%.2f | %.2f | %.2f", o.concurrency(int64(n)), float64(o.blocks-1)/float64(o.cache.steady(int64(n))), sequences(t, s.ideal(t), s.rounded(t), n))
		if want := strings.Join(row[2:5], " | "); got != want {
			t.Errorf("%s at %d: %s, want %s", row[0], n, got, want)
		}
	}
}

// TestIdealRebuild checks Gemma 4's full layers with K recomputed from V.
func TestIdealRebuild(t *testing.T) {
	modes := map[string]Rebuild{"K and V": KeepKV, "V + rotated quarter of K": KeepRotated, "V only": KeepV}
	for _, row := range table(t, "rebuild") {
		s := run9(t, row[0])
		i := s.ideal(t)
		i.Rebuild = modes[row[2]]
		bytes, err := i.FullTokenBytes()
		if err != nil {
			t.Fatal(err)
		}
		n := int(number(row[1]))
		x := sequences(t, i, s.rounded(t), n)
		got := fmt.Sprintf("%s | %.3f | %s", groupDigits(bytes), x, groupDigits(int64(x*float64(n))))
		if want := strings.Join(row[3:], " | "); got != want {
			t.Errorf("%s, %s: %s, want %s", row[0], row[2], got, want)
		}
	}
	i := run9(t, "gpt-oss-20b mxfp4").ideal(t)
	i.Rebuild = KeepV
	if _, err := i.Sequences(1<<30, 1024); err == nil {
		t.Error("gpt-oss has no K from V")
	}
}

// TestIdealTokensLeft checks, for seed 004, the tokens left for attention after the states of
// running requests.
func TestIdealTokensLeft(t *testing.T) {
	s := run9(t, "Qwen3.5-27B-FP8 TP=2 MTP")
	lo, _ := s.interval(t)
	for _, row := range table(t, "beside") {
		n := int(number(row[0]))
		var got []string
		for _, mode := range []string{"align", "none"} {
			i := s
			i.Request.MambaCacheMode = mode
			o := i.withBytes(t, lo)
			var states int64
			for _, g := range o.cache.groups {
				if g.kind == linear {
					states += g.need(1, o.cache)
				}
			}
			got = append(got, groupDigits((o.blocks-1-int64(n)*states)*o.cache.block))
		}
		for _, copies := range []int{3, 1} {
			i := s.ideal(t)
			i.StateCopies = copies
			left, err := i.TokensLeft(s.rounded(t), n)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, groupDigits(left))
		}
		if got, want := strings.Join(got, " | "), strings.Join(row[1:], " | "); got != want {
			t.Errorf("%d requests: %s, want %s", n, got, want)
		}
	}
}
