package vision

import (
	"fmt"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/engine/models"
)

// TestPrograms compares the layout of patches with op Patches of the towers that models record.
func TestPrograms(t *testing.T) {
	for name, c := range map[string]struct {
		tower, config string
		patch         int
	}{
		"gemma": {"tiny-gemma4-tower", `{"image_processor_type": "Gemma4ImageProcessor", "patch_size": %d}`, 4},
		"qwen":  {"tiny-qwen35-tower", `{"image_processor_type": "Qwen2VLImageProcessor", "image_mean": 0.5, "image_std": 0.5, "patch_size": %d}`, 4},
	} {
		t.Run(name, func(t *testing.T) {
			ck, err := checkpoint.Open("../models/testdata/" + c.tower)
			if err != nil {
				t.Fatal(err)
			}
			defer ck.Close()
			tensors, err := models.Tensors(ck.Config())
			if err != nil {
				t.Fatal(err)
			}
			dummy, err := checkpoint.Dummy(ck.Config(), tensors, 1)
			if err != nil {
				t.Fatal(err)
			}
			m, err := models.New(dummy, models.Build{Vision: true, Shard: backend.Whole, Pipe: backend.Whole})
			if err != nil {
				t.Fatal(err)
			}
			e := m.(models.Encoder)
			p, err := e.RecordEncoder(&backend.Program{Name: "vision", Bucket: backend.Bucket{Tokens: e.Patches(), Seqs: 1, Samples: 1}})
			if err != nil {
				t.Fatal(err)
			}
			found, err := Read(Files{Image: fmt.Appendf(nil, c.config, c.patch)})
			if err != nil {
				t.Fatal(err)
			}
			l := found.Image.Layout()
			op, ok := p.Ops[0].(backend.Patches)
			if !ok || op.Frames != l.Frames || op.Square != l.Square || p.Values[op.Pixels].Cols != l.Cols() {
				t.Errorf("the program has %+v of %d numbers, the rule %+v of %d", op, p.Values[op.Pixels].Cols, l, l.Cols())
			}
			if op.Scale != 2 || op.Shift != -1 {
				t.Errorf("the program computes %v·x + %v, TestScaleAndShift checks 2·x − 1", op.Scale, op.Shift)
			}
		})
	}
}
