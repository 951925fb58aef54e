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
	rows := []string{"# kernel unit ops loads body path, of rows loops, with a scale for each group path and loops; where warps meet also registers shared bytes:shared:body:waits:around of warps that load, steps of a turn, of a piece, around:panel:piece where sums are gated: of sm_90a, by TestCode"}
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
		log, err := os.ReadFile(strings.TrimSuffix(found[len(found)-1], "cubin") + "log")
		if err != nil {
			t.Fatal(err)
		}
		registers := registersOf(log)
		rows = append(rows, "# "+stem+" "+digest(t, stem))
		for name, list := range instructions(text) {
			if err := waits(name, list); err != nil {
				t.Error(err)
			}
			c := count(list)
			if !strings.HasPrefix(name, "linear_") {
				c.Gating = Gating{}
			}
			if !strings.Contains(name, "_pack_f8") {
				c.GroupPath, c.GroupLoops = 0, 0
			}
			if c.Registers = registers[name]; c.Registers == 0 {
				t.Errorf("%s: ptxas does not say how many registers it has", name)
			}
			rows = append(rows, rowOf(name, c))
		}
	}
	slices.Sort(rows)
	goldentest.Compare(t, "code.tsv", strings.Join(rows, "\n")+"\n")
}

var registersLine = regexp.MustCompile(`function 'vapp_(\w+)'|Used (\d+) registers`)

// registersOf returns the registers of a thread of each kernel, of what ptxas says.
func registersOf(log []byte) map[string]float64 {
	out, now := map[string]float64{}, ""
	for _, m := range registersLine.FindAllSubmatch(log, -1) {
		if len(m[1]) > 0 {
			now = string(m[1])
			continue
		}
		var n float64
		fmt.Sscan(string(m[2]), &n)
		out[now] = n
	}
	return out
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
	ends          bool    // a group of products
	leaves        int     // of a wait for groups of products: those that may be under way; else −1
	shared        float64 // bytes that a warp, or its share of a group's products, moves to and from shared memory
}

var (
	kernelLine = regexp.MustCompile(`^\.text\.vapp_(\w+):`)
	labelLine  = regexp.MustCompile(`^(\.L_x_\d+):`)
	codeLine   = regexp.MustCompile("^\\s+/\\*[0-9a-f]+\\*/\\s+(@!?U?P\\w+\\s+)?([A-Z][\\w.]*)(?:[^`]*`\\((\\.L_x_\\d+)\\))?")
)

var (
	leavesLine = regexp.MustCompile(`WARPGROUP\.DEPBAR\.LE gsb0, 0x(\w+)`)
	inRegister = regexp.MustCompile(`GMMA\S* R\d+, R\d+, gdesc`) // the left operand
)

// meets matches the instructions that wait for other warps.
var meets = regexp.MustCompile(`^(BAR\.SYNC|SYNCS\.PHASECHK)`)

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

// TestCount counts the code of a small kernel by hand: its loop, with a barrier behind a branch, and around it the way that stores its sums and not the one that shares them with
// other blocks, which stores more.
func TestCount(t *testing.T) {
	c := count(assembled(`PREEXIT
.L_x_1:
LDS.128 R4, [R2]
@P2 BRA ´(.L_x_3)
LDGSTS.E.BYPASS.128 [R3], desc[UR4][R6.64]
.L_x_3:
BAR.SYNC.DEFER_BLOCKING 0x0
@!PT LDS RZ, [RZ]
HGMMA.64x128x16.F32.BF16 R24, R4, gdesc[UR8], R24
HGMMA.64x128x16.F32.BF16 R24, gdesc[UR8], R24, gsb0
WARPGROUP.DEPBAR.LE gsb0, 0x1
@P0 BRA ´(.L_x_1)
@P1 BRA ´(.L_x_2)
STG.E.128 desc[UR4][R6.64], R24
EXIT
.L_x_2:
BAR.SYNC.DEFER_BLOCKING 0x0
STG.E.128 desc[UR4][R6.64], R24
STG.E.128 desc[UR4][R8.64], R24
EXIT`))
	// Products: 64·128·16 for four warps. Shared memory: 512 bytes each by LDS and LDGSTS; the right operands, 4,096 bytes, twice, and a left one of
	// 2,048, for four warps.
	const want = "small g 131072 16 9 15 0 3584 - 7b/1,1w1,1 8b/1,1w1,4 -"
	if got := rowOf("small", c); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	name, again, err := codeOf(want)
	if err != nil || name != "small" || rowOf(name, again) != want || again.Turn[1].Leaves != 1 {
		t.Errorf("%s is read as %+v (%v)", want, again, err)
	}
	for _, row := range []string{"small", "small g 1 1 1 1 1 1 - 5x 1 -", "small g 1 1 1 1 1 1 1:2 1 1 -", "small g 1 1 1 1 1 1 - 1w 1 -", "small g 1 1 1 1 1 1 - 1 1 1:2"} {
		if _, _, err := codeOf(row); err == nil {
			t.Errorf("%q is read", row)
		}
	}
}

// TestGating counts by hand the way of a small kernel that gates: behind its last products, a loop over panels that puts pieces into shared memory, and in it
// a loop over pieces, whose shortest way that stores has an exponential. Around it are ways that store more, plainly and for other blocks.
func TestGating(t *testing.T) {
	c := count(assembled(`PREEXIT
.L_x_1:
BAR.SYNC.DEFER_BLOCKING 0x0
HGMMA.64x128x16.F32.BF16 R24, R4, gdesc[UR8], R24, gsb0
WARPGROUP.DEPBAR.LE gsb0, 0x0
@P0 BRA ´(.L_x_1)
WARPGROUP.DEPBAR.LE gsb0, 0x0
@P1 BRA ´(.L_x_2)
STG.E.128 desc[UR4][R6.64], R24
MEMBAR.SC.GPU
BAR.SYNC.DEFER_BLOCKING 0x0
.L_x_2:
@P2 BRA ´(.L_x_6)
.L_x_3:
STS.128 [R2], R24
.L_x_4:
LDS.128 R24, [R2]
@P3 BRA ´(.L_x_5)
FFMA R1, R1, R1, R1
FFMA R1, R1, R1, R1
MUFU.EX2 R1, R1
.L_x_5:
SHFL.BFLY PT, R1, R1, 0x4, 0x1f
STG.E desc[UR4][R6.64], R24
@P4 BRA ´(.L_x_4)
@P5 BRA ´(.L_x_3)
EXIT
.L_x_6:
STG.E.128 desc[UR4][R6.64], R24
STG.E.128 desc[UR4][R8.64], R24
EXIT`))
	if want := (Gating{Around: 13, Panel: 10, Piece: 8}); c.Gating != want {
		t.Errorf("%+v, want %+v", c.Gating, want)
	}
	if got := c.gated(3, 4); got.Ends[len(got.Ends)-1].Instructions != 13+2*10+3*3*8 || got.Path-c.Path != 105-c.Ends[len(c.Ends)-1].Instructions || c.Ends[len(c.Ends)-1].Instructions == 105 {
		t.Errorf("3 panels of 4 pieces: %+v of %+v", got, c)
	}
	row := rowOf("small", c)
	if _, again, err := codeOf(row); err != nil || again.Gating != c.Gating {
		t.Errorf("%s is read as %+v (%v)", row, again, err)
	}
}

// TestByGroup counts by hand a small kernel that rounds rows: with one scale, in two loops and a barrier between them, or with a scale for each group, in one loop, in which
// the lanes of a group exchange their largest number.
func TestByGroup(t *testing.T) {
	c := count(assembled(`PREEXIT
@P0 BRA ´(.L_x_4)
.L_x_1:
LDG.E.64 R4, desc[UR4][R6.64]
@P1 BRA ´(.L_x_1)
VIMNMX.U32 R8, R8, R9, !PT
BAR.SYNC.DEFER_BLOCKING 0x0
.L_x_2:
LDG.E.64 R4, desc[UR4][R6.64]
STG.E.64 desc[UR4][R6.64], R4
@P1 BRA ´(.L_x_2)
.L_x_3:
EXIT
.L_x_4:
LDG.E.64 R4, desc[UR4][R6.64]
@P2 BRA ´(.L_x_6)
.L_x_5:
SHFL.BFLY PT, R1, R1, R2, 0x1f
VIMNMX.U32 R8, R8, R9, !PT
@P3 BRA ´(.L_x_5)
.L_x_6:
MUFU.RCP R1, R1
STG.E.64 desc[UR4][R6.64], R4
@P1 BRA ´(.L_x_4)
BRA ´(.L_x_3)`))
	// The loop over groups: 5 instructions and 4 times 3.
	const want = "small f 0 8 2 10 5 21 17"
	if got := rowOf("small", c); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	_, again, err := codeOf(want)
	if again = again.byGroup(); err != nil || rowOf("small", again) != "small f 0 8 2 21 17 21 17" {
		t.Errorf("%s is read as %+v (%v)", want, again, err)
	}
	if whole := (Code{Path: 3, Loops: 2}).byGroup(); whole.Path != 3 || whole.Loops != 2 {
		t.Errorf("%+v is not what it was", whole)
	}
}

// assembled returns the instructions of a kernel, one a line; ´ stands for the quotes of labels.
func assembled(lines string) []instruction {
	var text strings.Builder
	text.WriteString(".text.vapp_small:\n")
	for line := range strings.SplitSeq(lines, "\n") {
		if !strings.HasPrefix(line, ".L") {
			line = "        /*0000*/                   " + strings.ReplaceAll(line, "´", "`") + " ;"
		}
		text.WriteString(line + "\n")
	}
	return instructions([]byte(text.String()))["small"]
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
			x := instruction{op: m[2], to: m[3], guarded: m[1] != "", leaves: -1}
			x.ends = strings.Contains(x.op, "GMMA") && strings.Contains(line, "gsb0")
			if !strings.HasPrefix(m[1], "@!PT") { // a place that a later copy needs: it does nothing
				x.shared = sharedBytes(x.op, inRegister.MatchString(line))
			}
			if n := leavesLine.FindStringSubmatch(line); n != nil {
				fmt.Sscanf(n[1], "%x", &x.leaves)
			}
			out[now] = append(out[now], x)
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

// sharedBytes returns the bytes that an instruction moves to or from shared memory for a warp, without conflicts of banks: a warpgroup's
// products read the right operand once for its four warps, and the left one unless it is in registers.
func sharedBytes(op string, inRegister bool) float64 {
	if s := groupShape.FindStringSubmatch(op); s != nil {
		var n, k float64
		fmt.Sscan(s[2]+" "+s[3], &n, &k)
		size := 1.0
		if s[1] == "HGMMA" {
			size = 2
		}
		if inRegister {
			return n * k * size / 4
		}
		return (n + 64) * k * size / 4
	}
	if strings.HasPrefix(op, "LDSM") { // of 1, 2 or 4 matrices of 8 rows of 16 bytes
		return 128 * float64(max(1, int(op[len(op)-1])-'0'))
	}
	return 32 * (moved(op, "LDS") + moved(op, "STS") + moved(op, "LDGSTS"))
}

// loaded returns the bytes that an instruction loads from global memory for a thread.
func loaded(op string) float64 { return moved(op, "LDG") + moved(op, "LDGSTS") }

// stored returns the bytes that it stores there.
func stored(op string) float64 { return moved(op, "STG") }

func moved(op, prefix string) float64 {
	op = strings.ReplaceAll(op, "LTC128B", "")
	switch {
	case op != prefix && !strings.HasPrefix(op, prefix+"."):
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
