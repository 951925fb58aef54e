package ranks

import (
	"context"
	"testing"

	"vapp.dev/engine/backend"
)

// nothing is a device that does nothing, and a group of one.
type nothing struct {
	backend.Device
	backend.Group
	steps [2]*backend.Step
}

func (n *nothing) Step(set int) *backend.Step                     { return n.steps[set] }
func (*nothing) Launch(backend.Executable, backend.Binding) error { return nil }
func (*nothing) Wait(int) error                                   { return nil }
func (*nothing) Abort(error)                                      {}

// BenchmarkControl is rank 0's work for the other rank in a decode step of 64 streams of 4,000 tokens: the inputs of the step, and
// the comparison of its samples.
func BenchmarkControl(b *testing.B) {
	shape := backend.StepShape{Tokens: 512, Seqs: 64, Samples: 64, Vocab: 128256, MaxPages: []int{256}, Bias: 1024, Logprobs: 20}
	device := func() *nothing { return &nothing{steps: [2]*backend.Step{newStep(shape), newStep(shape)}} }
	o := options("key")
	l, err := Listen("127.0.0.1:0", o, member(0))
	if err != nil {
		b.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		f, _, err := Join(context.Background(), l.Addr().String(), o, member(1))
		if err == nil {
			err = f.Agree("plan")
		}
		if err == nil {
			d := device()
			err = f.Run(context.Background(), Work{Device: d, Group: d, Places: Places{2, 1}, Shape: ShapeOf(shape, []int{0}, 1, backend.EncoderShape{})})
		}
		ended <- err
	}()
	if err := l.Gather(context.Background(), Decided{}, func(int) (string, error) { return "plan", nil }); err != nil {
		b.Fatal(err)
	}
	mine := device()
	d := l.Drive(mine, Places{2, 1}, ShapeOf(shape, []int{0}, 1, backend.EncoderShape{}), shape)
	for _, s := range mine.steps {
		for i := range 64 {
			s.First[i+1], s.Seq[i], s.Positions[i] = int32(i+1), int32(i), 3999
			for k := range 250 {
				s.Pages[0][i*256+k] = int32(i*250 + k)
			}
			for k := 250; k < 256; k++ {
				s.Pages[0][i*256+k] = -1
			}
		}
	}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		set := n % 2
		n++
		if err := d.Launch(nil, backend.Binding{Set: set, Tokens: 64, Seqs: 64, Samples: 64}); err != nil {
			b.Fatal(err)
		}
		if err := d.Wait(set); err != nil {
			b.Fatal(err)
		}
	}
	l.Close()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
}
