package cost

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"vapp.dev/internal/goldentest"
	"vapp.dev/kernels/cuda"
)

// TestCode counts the machine code of every kernel and compares it with code.tsv; -update writes it. It needs the
// cubins of `make kernels` for sm_90a and NVIDIA's disassembler, whose path VAPP_NVDISASM has (the wheel
// nvidia-cuda-nvdisasm). Without them it checks that code.tsv has every kernel, and names the sources that have
// changed since they were counted.
func TestCode(t *testing.T) {
	for _, k := range cuda.Catalogue() {
		if _, ok := CodeOf(k.Name); !ok {
			t.Errorf("%s was not counted", k.Name)
		}
	}
	disassembler := os.Getenv("VAPP_NVDISASM")
	if disassembler == "" {
		var changed []string
		for _, stem := range cuda.Stems() {
			if !strings.Contains(counted, "# "+stem+" "+digest(t, stem)+"\n") {
				changed = append(changed, stem+".cu")
			}
		}
		if len(changed) > 0 {
			t.Skipf("not run: %s changed since their machine code was counted; make kernels, then VAPP_NVDISASM=… go test ./kernels/cuda/cost -run TestCode -update", strings.Join(changed, ", "))
		}
		return
	}
	rows := []string{"# kernel unit ops loads body path: of sm_90a, by TestCode"}
	for _, stem := range cuda.Stems() {
		found, _ := filepath.Glob("../../../.cache/cuda/objects/" + stem + "-90a-*.cubin")
		if len(found) == 0 {
			t.Fatalf("%s.cu is not compiled for sm_90a: make kernels", stem)
		}
		slices.SortFunc(found, func(a, b string) int { // the newest last
			x, _ := os.Stat(a)
			y, _ := os.Stat(b)
			return x.ModTime().Compare(y.ModTime())
		})
		text, err := exec.Command(disassembler, "-c", found[len(found)-1]).Output()
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, "# "+stem+" "+digest(t, stem))
		for name, list := range instructions(text) {
			c := count(list)
			rows = append(rows, fmt.Sprintf("%s %c %g %g %g %g", name, c.Unit, c.Ops, c.Loads, c.Body, c.Path))
		}
	}
	slices.Sort(rows)
	goldentest.Compare(t, "code.tsv", strings.Join(rows, "\n")+"\n")
}

var included = regexp.MustCompile(`(?m)^#include "(\w+\.cuh)"`)

// digest returns a digest of a source and of the headers that it includes.
func digest(t *testing.T, stem string) string {
	files := []string{stem + ".cu"}
	h := sha256.New()
	for i := 0; i < len(files); i++ {
		text, err := os.ReadFile("../" + files[i])
		if err != nil {
			t.Fatal(err)
		}
		h.Write(text)
		for _, m := range included.FindAllSubmatch(text, -1) {
			if name := string(m[1]); !slices.Contains(files, name) {
				files = append(files, name)
			}
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil))[:10]
}

// instruction is a line of machine code, or a label.
type instruction struct {
	label, op, to string
	guarded       bool
}

var (
	kernelLine = regexp.MustCompile(`^\.text\.vapp_(\w+):`)
	labelLine  = regexp.MustCompile(`^(\.L_x_\d+):`)
	codeLine   = regexp.MustCompile("^\\s+/\\*[0-9a-f]+\\*/\\s+(@!?U?P\\w+\\s+)?([A-Z][\\w.]*)(?:[^`]*`\\((\\.L_x_\\d+)\\))?")
)

// instructions returns the lines of each kernel.
func instructions(text []byte) map[string][]instruction {
	out := map[string][]instruction{}
	now := ""
	in := bufio.NewScanner(bytes.NewReader(text))
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		line := in.Text()
		if m := kernelLine.FindStringSubmatch(line); m != nil {
			now = m[1]
		} else if strings.HasPrefix(line, "\t.section") {
			now = ""
		} else if m := labelLine.FindStringSubmatch(line); m != nil && now != "" {
			out[now] = append(out[now], instruction{label: m[1]})
		} else if m := codeLine.FindStringSubmatch(line); m != nil && now != "" {
			out[now] = append(out[now], instruction{op: m[2], to: m[3], guarded: m[1] != ""})
		}
	}
	return out
}

var (
	syncShape  = regexp.MustCompile(`^(HMMA|IMMA|QMMA)\.(\d\d?)(\d)(\d\d?)\.`)
	groupShape = regexp.MustCompile(`^(HGMMA|QGMMA|IGMMA)\.64x(\d+)x(\d+)`)
)

// multiplied returns the operations of an instruction for a warp, and its unit.
func multiplied(op string) (ops float64, u Unit) {
	var m, n, k int
	if s := syncShape.FindStringSubmatch(op); s != nil {
		fmt.Sscan(s[2]+" "+s[3]+" "+s[4], &m, &n, &k)
		if u = Sync; s[1] != "HMMA" {
			u = Sync8
		}
		return float64(2 * m * n * k), u
	}
	if s := groupShape.FindStringSubmatch(op); s != nil {
		fmt.Sscan(s[2]+" "+s[3], &n, &k)
		if u = Warpgroup; s[1] != "HGMMA" {
			u = Group8
		}
		return float64(2 * 64 * n * k / 4), u
	}
	return 0, 0
}

// loaded returns the bytes that an instruction loads from global memory for a thread.
func loaded(op string) float64 {
	op = strings.ReplaceAll(op, "LTC128B", "")
	switch {
	case !strings.HasPrefix(op, "LDG"):
		return 0
	case strings.Contains(op, ".128"):
		return 16
	case strings.Contains(op, ".64"):
		return 8
	case strings.Contains(op, ".U16"), strings.Contains(op, ".S16"):
		return 2
	case strings.Contains(op, ".U8"), strings.Contains(op, ".S8"):
		return 1
	}
	return 4
}

// way is what a way through code does.
type way struct{ ops, scalar, stores, async, loads, count float64 }

// better reports whether a way does more than another: it multiplies more, stores more, copies more, loads more, and
// then has fewer instructions.
func (w way) better(v way) bool {
	a := [6]float64{w.ops, w.stores, w.scalar, w.async, w.loads, -w.count}
	b := [6]float64{v.ops, v.stores, v.scalar, v.async, v.loads, -v.count}
	if w.ops+v.ops > 0 { // around products, the shortest way that stores all: loads by number are exceptions
		a[2], b[2], a[4], b[4] = 0, 0, 0, 0
	}
	return slices.Compare(a[:], b[:]) > 0
}

// graph is the code of a kernel as blocks without branches.
type graph struct {
	does []way
	next [][]int
	doms []map[int]bool // the blocks through which each way to a block leads
}

// graphOf returns the blocks of a kernel; the first is its begin.
func graphOf(list []instruction) graph {
	at, starts := map[string]int{}, []int{0}
	for i, x := range list {
		if x.label != "" || i > 0 && (strings.HasPrefix(list[i-1].op, "BRA") || list[i-1].op == "EXIT") {
			if starts[len(starts)-1] != i {
				starts = append(starts, i)
			}
		}
		if x.label != "" {
			at[x.label] = len(starts) - 1
		}
	}
	g := graph{make([]way, len(starts)), make([][]int, len(starts)), make([]map[int]bool, len(starts))}
	for n, from := range starts {
		to := len(list)
		if n+1 < len(starts) {
			to = starts[n+1]
		}
		w, falls := &g.does[n], true
		for _, x := range list[from:to] {
			if x.op == "" {
				continue
			}
			ops, _ := multiplied(x.op)
			w.ops, w.loads, w.count = w.ops+ops, w.loads+loaded(x.op), w.count+1
			switch {
			case strings.HasPrefix(x.op, "FFMA"):
				w.scalar += 64
			case strings.HasPrefix(x.op, "LDGSTS"):
				w.async += loaded(x.op)
			case strings.HasPrefix(x.op, "STG"):
				w.stores++
			case strings.HasPrefix(x.op, "BRA"):
				if b, ok := at[x.to]; ok {
					g.next[n] = append(g.next[n], b)
				}
				falls = x.guarded
			case x.op == "EXIT":
				falls = x.guarded
			}
		}
		if falls && n+1 < len(starts) {
			g.next[n] = append(g.next[n], n+1)
		}
	}
	g.dominate()
	return g
}

// dominate finds doms.
func (g graph) dominate() {
	g.doms[0] = map[int]bool{0: true}
	for again := true; again; {
		again = false
		for n, to := range g.next {
			if g.doms[n] == nil {
				continue
			}
			for _, m := range to {
				if g.doms[m] == nil {
					g.doms[m], again = map[int]bool{m: true}, true
					for d := range g.doms[n] {
						g.doms[m][d] = true
					}
					continue
				}
				for d := range g.doms[m] {
					if d != m && !g.doms[n][d] {
						delete(g.doms[m], d)
						again = true
					}
				}
			}
		}
	}
}

// loops returns the blocks of each loop, by the block that it begins with.
func (g graph) loops() map[int]map[int]bool {
	before := make([][]int, len(g.next))
	for n, to := range g.next {
		for _, m := range to {
			before[m] = append(before[m], n)
		}
	}
	out := map[int]map[int]bool{}
	for n, to := range g.next {
		for _, head := range to {
			if !g.doms[n][head] {
				continue
			}
			if out[head] == nil {
				out[head] = map[int]bool{head: true}
			}
			for list := []int{n}; len(list) > 0; {
				m := list[len(list)-1]
				list = list[:len(list)-1]
				if !out[head][m] {
					out[head][m] = true
					list = append(list, before[m]...)
				}
			}
		}
	}
	return out
}

// best returns the best way that begins with a block and stays in some (nil: all), each loop once: to its end, or back
// to its begin.
func (g graph) best(head int, in map[int]bool) way {
	var order []int
	seen := map[int]bool{}
	var visit func(n int)
	visit = func(n int) {
		seen[n] = true
		for _, m := range g.next[n] {
			if !seen[m] && (in == nil || in[m]) {
				visit(m)
			}
		}
		order = append(order, n)
	}
	visit(head)
	place := map[int]int{}
	for i, n := range order {
		place[n] = i
	}
	at := map[int]way{head: {}}
	var top way
	for i := len(order) - 1; i >= 0; i-- {
		n := order[i]
		w, ok := at[n]
		if !ok {
			continue
		}
		d := g.does[n]
		w = way{w.ops + d.ops, w.scalar + d.scalar, w.stores + d.stores, w.async + d.async, w.loads + d.loads, w.count + d.count}
		last := in == nil && len(g.next[n]) == 0
		for _, m := range g.next[n] {
			if m == head {
				last = true
			} else if old, ok := at[m]; place[m] < i && (in == nil || in[m]) && (!ok || w.better(old)) {
				at[m] = w
			}
		}
		if last && (top.count == 0 || w.better(top)) {
			top = w
		}
	}
	return top
}

// count returns the counts of a kernel: its loop is the one that multiplies most on the matrix units, without one the
// innermost that multiplies most in float32, without one the innermost that loads most.
func count(list []instruction) Code {
	unit := Scalar
	for _, x := range list {
		if _, u := multiplied(x.op); u != 0 {
			unit = u
		}
	}
	g := graphOf(list)
	loops := g.loops()
	var top way
	for head, in := range loops {
		inner := true
		for other := range loops {
			inner = inner && (other == head || !in[other])
		}
		if unit == Scalar && !inner {
			continue
		}
		w := g.best(head, in)
		if slices.Compare([]float64{w.ops, w.scalar, w.loads, -w.count}, []float64{top.ops, top.scalar, top.loads, -top.count}) > 0 {
			top = w
		}
	}
	c := Code{Unit: unit, Ops: top.ops, Loads: top.loads, Body: top.count, Path: g.best(0, nil).count}
	if unit == Scalar {
		c.Ops = top.scalar
	}
	return c
}
