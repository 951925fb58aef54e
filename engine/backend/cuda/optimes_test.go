//go:build linux && cgo && cuda

package cuda

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/dry"
	"vapp.dev/kernels"
	"vapp.dev/kernels/cuda"
	"vapp.dev/kernels/cuda/image"
)

// TestOpTimes: ops and kernels are counted by name, separately for decode steps and others. A graph
// counts as one op. The time between steps is counted from the second step on. Without the
// setting nothing is measured.
func TestOpTimes(t *testing.T) {
	emulated(t)
	for _, on := range []bool{true, false} {
		d, err := opened(t, backend.Settings{TimeOps: on})
		check(t, err)
		p := d.r.Programs[0]
		e, err := d.Compile(p)
		check(t, err)
		g := backend.Graph{Kind: backend.Full, Tokens: 16, Seqs: 1}
		check(t, d.Capture(e, 1, g))
		for i, b := range []backend.Binding{{Tokens: 16, Seqs: 1}, {Set: 1, Tokens: 1, Seqs: 1}, {Tokens: 9, Seqs: 1}, {Set: 1, Tokens: 5, Seqs: 1, Graph: g}, {Tokens: 1, Seqs: 1}} {
			s := d.Step(b.Set)
			for t := range b.Tokens {
				s.Positions[t], s.Seq[t] = int32(t), 0
			}
			s.First[0], s.First[1] = 0, int32(b.Tokens)
			s.Pad(b)
			check(t, d.Launch(e, b))
			if i%2 == 1 { // two steps are in progress
				check(t, d.Wait(0))
				check(t, d.Wait(1))
			}
		}
		check(t, d.Wait(0))
		decode, prompts := d.OpTimes()
		want := "map[(no step):2 add:4 tokens:2] map[(graph):1 (no step):2 add:4 tokens:3]"
		if !on {
			want = "map[] map[]"
		}
		if got := fmt.Sprint(runs(t, decode), " ", runs(t, prompts)); got != want {
			t.Errorf("TimeOps %v: %s, want %s", on, got, want)
		}
		decode, prompts = d.KernelTimes()
		want = "map[add:4 tokens:2] map[add:4 tokens:2]"
		if !on {
			want = "map[] map[]"
		}
		if got := fmt.Sprint(runs(t, decode), " ", runs(t, prompts)); got != want {
			t.Errorf("TimeOps %v: kernels %s, want %s", on, got, want)
		}
	}
}

// TestKernelsElsewhere: kernels are loaded from the directory in the environment variable; an
// error names a missing file.
func TestKernelsElsewhere(t *testing.T) {
	emulated(t)
	dir := t.TempDir()
	t.Setenv(image.Directory, dir)
	if _, err := opened(t, backend.Settings{}); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), dir) {
		t.Errorf("without kernels: %v", err)
	}
	write := func(name string) {
		for _, stem := range cuda.Stems() { // the emulated driver has its own kernels and reads none
			var b bytes.Buffer
			z := zip.NewWriter(&b)
			w, err := z.Create(name)
			check(t, err)
			_, err = w.Write([]byte{1})
			check(t, errors.Join(err, z.Close(), os.WriteFile(filepath.Join(dir, stem+".zip"), b.Bytes(), 0o644)))
		}
	}
	write("sm_80.cubin")
	if _, err := opened(t, backend.Settings{}); !errors.As(err, new(*image.NoEntry)) || !strings.Contains(err.Error(), "has no sm_90a.cubin, only sm_80.cubin: ") {
		t.Errorf("with kernels for another GPU: %v", err)
	}
	write("sm_90a.cubin")
	_, err := opened(t, backend.Settings{})
	check(t, err)
}

// runs returns how often each op ran. It checks that no time is negative and that the longest
// comes first.
func runs(t *testing.T, all []backend.OpTime) map[string]int64 {
	t.Helper()
	out := map[string]int64{}
	for i, o := range all {
		out[o.Op] = o.Runs
		if o.Wall < 0 || i > 0 && o.Wall > all[i-1].Wall {
			t.Errorf("%d: %+v", i, all)
		}
	}
	return out
}

// opened opens a device for a small program without weights.
func opened(t *testing.T, s backend.Settings) (*device, error) {
	t.Helper()
	f, err := Opener{}.Probe()
	check(t, err)
	l, err := Opener{}.Layout(f, s)
	check(t, err)
	p := &backend.Program{Name: "add", Bucket: backend.Bucket{Tokens: 16, Seqs: 1, Samples: 1}, Vocab: 1}
	r := backend.Record(p)
	ids, x, into := r.New("ids", kernels.I32, backend.PerToken, 1), r.New("x", kernels.F32, backend.PerToken, 16), r.New("into", kernels.F32, backend.PerToken, 16)
	r.Do(backend.Tokens{Out: ids})
	r.Do(backend.Add{X: x, Into: into, Scale: backend.NoWeight})
	r.Do(backend.Add{X: into, Into: x, Scale: backend.NoWeight})
	r.Free(ids, x, into)
	res, err := dry.Run(l, nil, []*backend.Program{p}, backend.StepShape{Tokens: 16, Seqs: 1, Samples: 1, Vocab: 1}, 0)
	check(t, err)
	d, err := Opener{}.Open(f, s, res)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { check(t, d.Close()) })
	return d.(*device), nil
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
