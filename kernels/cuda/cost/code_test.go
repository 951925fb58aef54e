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
			if err := waits(name, list); err != nil {
				t.Error(err)
			}
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

// global matches the instructions that access global memory.
var global = regexp.MustCompile(`^(LDG|STG|LD\.|ST\.|ATOM|RED|UBLKCP|UTMA)`)

// waits fails unless a kernel lets the next one begin and waits for the one before ahead of every access to memory, and unless
// only kernels that read weights load as if memory did not change while a kernel runs; the library's sine, in angles, has a table.
func waits(name string, list []instruction) error {
	lets, waited := false, false
	for _, x := range list {
		switch {
		case x.op == "PREEXIT":
			lets = true
		case x.op == "ACQBULK":
			waited = true
		case global.MatchString(x.op) && !waited:
			return fmt.Errorf("%s: %s before it waits for the kernel before", name, x.op)
		case strings.Contains(x.op, ".CONSTANT") && !strings.Contains(name, "linear_") && !strings.HasPrefix(name, "embed_packed_") && name != "angles":
			return fmt.Errorf("%s: %s, for memory that does not change", name, x.op)
		}
	}
	if !lets || !waited {
		return fmt.Errorf("%s lets the next kernel begin: %v, waits for the one before: %v", name, lets, waited)
	}
	return nil
}

// TestWaits checks what the test of the machine code refuses.
func TestWaits(t *testing.T) {
	for text, want := range map[string]string{
		"PREEXIT UBLKPF.L2 ACQBULK LDG.E.128 LDG.E.CONSTANT STG.E": "",
		"PREEXIT LDC ACQBULK EXIT":                                 "",
		"PREEXIT LDG.E ACQBULK":                                    "LDG.E before it waits",
		"PREEXIT ATOMG.E.ADD ACQBULK":                              "ATOMG.E.ADD before it waits",
		"PREEXIT LDS STS LDL BRA":                                  "waits for the one before: false",
		"ACQBULK LDG.E":                                            "lets the next kernel begin: false",
	} {
		var list []instruction
		for _, op := range strings.Fields(text) {
			list = append(list, instruction{op: op})
		}
		if err := waits("linear_bf16_8", list); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if err := waits("norm", []instruction{{op: "PREEXIT"}, {op: "ACQBULK"}, {op: "LDG.E.CONSTANT"}}); err == nil {
		t.Error("a norm loads what does not change")
	}
}

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
