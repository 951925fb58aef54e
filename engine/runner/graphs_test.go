package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/sched"
)

// device records its calls.
type device struct {
	backend.Device
	captured []string
	fail     int // which capture fails; 0: none
	sets     [2]*backend.Step
	bound    backend.Binding
}

type executable struct{ p *backend.Program }

func (e executable) Program() *backend.Program { return e.p }

func (d *device) Compile(p *backend.Program) (backend.Executable, error) { return executable{p}, nil }
func (d *device) Step(set int) *backend.Step                             { return d.sets[set] }
func (d *device) GraphBytes() int64                                      { return int64(len(d.captured)) }

func (d *device) Launch(_ backend.Executable, b backend.Binding) error {
	d.bound = b
	return nil
}

func (d *device) Capture(_ backend.Executable, set int, g backend.Graph) error {
	if d.captured = append(d.captured, fmt.Sprint(set, " ", g)); len(d.captured) == d.fail {
		return errors.New("out of memory")
	}
	return nil
}

// plain is a device without graphs.
type plain struct{ backend.Device }

func (plain) Compile(p *backend.Program) (backend.Executable, error) { return executable{p}, nil }

func newRunner(t *testing.T, emit int) (*Runner, *device) {
	t.Helper()
	shape := backend.StepShape{Tokens: 16, Seqs: 4, Samples: 16, Vocab: 10, MaxPages: []int{2}, OutputCols: emit}
	d := &device{}
	for i := range d.sets {
		d.sets[i] = shape.Carve(make([]byte, shape.SetBytes()))
	}
	p := &backend.Program{Bucket: backend.Bucket{Tokens: 16, Seqs: 4, Samples: 16}}
	r, err := New(d, backend.Reservation{Programs: []*backend.Program{p}, Step: shape})
	if err != nil {
		t.Fatal(err)
	}
	return r, d
}

// TestCapture: every size is captured for both sets of buffers, the largest first, and progress
// counts sizes.
func TestCapture(t *testing.T) {
	r, d := newRunner(t, 0)
	var progress []string
	g := backend.Graphs{Mode: "full_and_piecewise", Sizes: []int{2, 8}}
	if err := r.Capture(context.Background(), g, func(done, of int) { progress = append(progress, fmt.Sprint(done, "/", of)) }); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"0 piecewise 8 (0 sequences, 0 rows)", "1 piecewise 8 (0 sequences, 0 rows)",
		"0 piecewise 2 (0 sequences, 0 rows)", "1 piecewise 2 (0 sequences, 0 rows)",
		"0 decode 2 (2 sequences, 2 rows)", "1 decode 2 (2 sequences, 2 rows)",
	}
	if !slices.Equal(d.captured, want) || !slices.Equal(progress, []string{"1/3", "2/3", "3/3"}) {
		t.Errorf("captured %q, progress %v", d.captured, progress)
	}
	if err := r.Capture(context.Background(), backend.Graphs{Mode: "none"}, nil); err != nil {
		t.Error(err)
	}
}

// TestCaptureFails: a failure names the graph and leaves no graphs in use; cancelling stops
// between two captures; a device without graphs returns ErrUnsupported.
func TestCaptureFails(t *testing.T) {
	g := backend.Graphs{Mode: "piecewise", Sizes: []int{2, 8}}
	r, d := newRunner(t, 0)
	d.fail = 3
	if err := r.Capture(context.Background(), g, nil); err == nil || err.Error() != "capturing piecewise 2 (0 sequences, 0 rows): out of memory" {
		t.Error(err)
	}
	if r.Captured() != 0 {
		t.Error("an incomplete set of graphs is used")
	}
	ctx, stop := context.WithCancelCause(context.Background())
	stop(errors.New("enough"))
	if err := r.Capture(ctx, g, nil); err == nil || err.Error() != "capturing graphs: enough" {
		t.Error(err)
	}
	r, err := New(plain{}, backend.Reservation{Programs: []*backend.Program{{Bucket: backend.Bucket{Tokens: 16, Seqs: 4}}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Capture(context.Background(), g, nil); !errors.Is(err, backend.ErrUnsupported) {
		t.Error(err)
	}
}

// TestReplay: which graph a step runs by, for sequences with the given numbers of tokens.
func TestReplay(t *testing.T) {
	for _, c := range []struct {
		mode    string
		query   int
		emit    int
		counts  []int
		samples int
		want    string
	}{
		{"full_and_piecewise", 0, 0, []int{1, 1, 1}, 3, "decode 4 (4 sequences, 4 rows) "},
		{"full_and_piecewise", 1, 0, []int{1, 1, 1}, 2, "piecewise 4 (0 sequences, 0 rows) "},
		{"full_and_piecewise", 1, 0, []int{1, 2}, 3, "piecewise 4 (0 sequences, 0 rows) "},
		{"full_and_piecewise", 2, 0, []int{2}, 2, "decode 2 (1 sequences, 2 rows) "},
		{"full_and_piecewise", 2, 0, []int{1, 1}, 2, "piecewise 2 (0 sequences, 0 rows) "},
		{"full_and_piecewise", 1, 7, []int{1, 1}, 2, "piecewise 2 (0 sequences, 0 rows) "},
		{"full_decode_only", 1, 0, []int{3, 1}, 2, "eager not_decoding"},
		{"full", 1, 0, []int{3, 1}, 2, "full 4 (4 sequences, 0 rows) "},
		{"full", 1, 0, []int{9}, 1, "eager too_many_tokens"},
		{"none", 1, 0, []int{1}, 1, "eager none_captured"},
	} {
		r, _ := newRunner(t, c.emit)
		if err := r.Capture(context.Background(), backend.Graphs{Mode: c.mode, Query: c.query, Sizes: []int{2, 4, 8}}, nil); err != nil {
			t.Fatal(err)
		}
		s := &sched.Step{Samples: c.samples}
		for _, n := range c.counts {
			s.Rows, s.Tokens = append(s.Rows, sched.Row{Count: n}), s.Tokens+n
		}
		how := r.replay(s)
		if got := fmt.Sprint(how.Graph, " ", how.Why); got != c.want {
			t.Errorf("%s, %d tokens a sequence: %v is %q, want %q", c.mode, c.query, c.counts, got, c.want)
		}
	}
}

// TestPadPages: padding sequences have no pages, those of the step keep theirs.
func TestPadPages(t *testing.T) {
	r, d := newRunner(t, 0)
	s := d.sets[1]
	for i := range s.Pages[0] {
		s.Pages[0][i] = 5
	}
	r.pad(s, backend.Binding{Set: 1, Tokens: 2, Seqs: 2, Samples: 2, Graph: backend.Graph{Kind: backend.Decode, Tokens: 3, Seqs: 3, Samples: 3}})
	if want := []int32{5, 5, 5, 5, -1, -1, 5, 5}; !slices.Equal(s.Pages[0], want) {
		t.Error(s.Pages[0], want)
	}
}
