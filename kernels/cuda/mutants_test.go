//go:build soak

package cuda_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"vapp.dev/kernels/cuda/cudatest"
)

// mutant is a kernel broken in one place.
type mutant struct{ file, old, new, test string }

var mutants = []mutant{
	{"linear.cu", "copy_wait<kStages - 2>();", "", "TestLinear"},
	{"linear.cu", "copy_wait<kStages - 2>();\n    __syncthreads();", "copy_wait<kStages - 2>();", "TestLinear"},
	{"linear.cu", "if (unit0 + j * stride >= units) break;", "", "TestLinear"},
	{"linear.cu", "if (count + 1 < unsigned(a.splits)) return;", "if (count + 2 < unsigned(a.splits)) return;", "TestLinear"},
	{"linear.cu", "if (threadIdx.x == 0) a.arrived[block] = 0;", "", "TestLinear"},
	{"linear.cu", "if (feature >= a.part_row[i]) part = i;", ";", "TestLinearParts"},
	{"linear.cu", "multiply<W>(t, w[1], x.z, x.w);", "multiply<W>(t, w[1], x.w, x.z);", "TestLinear"},
	{"attention.cu", "copy_wait<1>();", "", "TestAttention"},
	{"attention.cu", "if (S::Stages > 1) __syncthreads();", "", "TestAttention"},
	{"attention.cu", "__syncthreads();  // the keys that lay there are done with", "", "TestAttention"},
	{"attention.cu", "p > at - a.window", "p >= at - a.window", "TestAttention"},
	{"attention.cu", "(a.both || p <= at)", "(a.both || p < at)", "TestAttention"},
	{"attention.cu", "p >= o.history && p < o.history + o.count", "p < o.history + o.count", "TestAttention"},
	{"attention.cu", "rows.sum[i] *= keep[i];", "", "TestAttention"},
	{"attention.cu", "a.softcap * tanhf(v / a.softcap)", "v", "TestAttention"},
	{"attention.cu", "part + d < p.head_dim && position < o.history && position / p.block >= o.skip", "part + d < p.head_dim", "TestAttention"},
	{"pages.cu", "__syncthreads();", "", "TestStoreKV"},
	{"pages.cu", "turning(p, j)", "j", "TestStoreKV"},
	{"norm.cu", "a.offset + a.w[i]", "a.w[i]", "TestNorm"},
	{"rope.cu", "for (int i = a.rotary +", "for (int i = a.head_dim +", "TestRope"},
	{"experts.cu", "v == best && other < id", "v == best && other > id", "TestRoute"},
	{"experts.cu", "ceil_div(count[e], a.block)", "count[e] / a.block", "TestExperts"},
	{"sample.cu", "w < r.min_p || v < least", "v < least", "TestSample"},
	{"sample.cu", "v == edge && i <= edge_index", "v == edge", "TestSample"},
	{"sample.cu", "if (i >= r.prompt) atomicAdd", "atomicAdd", "TestSample"},
	{"sample.cu", "for (int base = 0; base < a.vocab; base += kCounters)", "for (int base = 0; base < kCounters; base += kCounters)", "TestSample"},
	{"delta.cu", "__syncthreads();  // the token before is done with", "", "TestDelta"},
	{"delta.cu", "position % s.copies", "0", "TestDelta"},
	{"delta.cu", "if (begin) write(own, start);", "", "TestConv"},
	{"draft.cu", "before && drawn != -2 && token == drawn", "drawn != -2 && token == drawn", "TestDraft"},
}

// TestMutants breaks the kernels one place at a time: a test has to fail each time.
func TestMutants(t *testing.T) {
	for _, m := range mutants {
		t.Run(strings.TrimSuffix(m.file, ".cu"), func(t *testing.T) { m.run(t) })
	}
}

func (m mutant) run(t *testing.T) {
	source := t.TempDir()
	if err := os.CopyFS(source, os.DirFS(".")); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(source, m.file)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), m.old) {
		t.Fatalf("%s does not hold %q", m.file, m.old)
	}
	if err := os.WriteFile(path, []byte(strings.Replace(string(b), m.old, m.new, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.timeout", "5m", "-test.run", m.test)
	cmd.Env = append(os.Environ(), cudatest.Source+"="+source)
	out, err := cmd.CombinedOutput()
	why := ""
	for _, line := range strings.Split(string(out), "\n") {
		if strings.Contains(line, "_test.go:") {
			why = strings.TrimSpace(line)
			break
		}
	}
	if err == nil || strings.Contains(string(out), "error:") {
		t.Fatalf("%s: %q as %q: no test fails\n%s", m.file, m.old, m.new, out)
	}
	t.Logf("%s: %q: %.120s", m.file, m.old, why)
}
