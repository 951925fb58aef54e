package models_test

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/engine/checkpoint"
	"vapp.dev/engine/enginetest"
	"vapp.dev/engine/models"
	"vapp.dev/kernels"
)

// undivided matches the reasons for which a small checkpoint may not be divided between ranks.
var undivided = regexp.MustCompile(`it does not divide|no whole blocks of|not divided between ranks|norms of its Mamba-2 layers`)

// TestGoldenRanks checks that tensor parallel ranks together compute the recorded logits, although no
// device runs several: it joins the programs of all ranks into one, op by op, with the exchanges between
// them as sums and copies. Four ranks share the two key/value heads.
func TestGoldenRanks(t *testing.T) {
	if testing.Short() {
		t.Skip("not run: -short leaves it out, make test runs it")
	}
	for name := range goldens {
		if enginetest.Tiny(name) && !gguf(name) && !strings.HasSuffix(name, x8) {
			t.Run(name, func(t *testing.T) { goldenRanks(t, name, 2) })
		}
	}
	for _, name := range []string{"tiny-qwen3", "tiny-olmo2", "tiny-gemma4-moe"} {
		t.Run(name+" on four", func(t *testing.T) { goldenRanks(t, name, 4) })
	}
}

func goldenRanks(t *testing.T, name string, ranks int) {
	switch name {
	case "tiny-llama4", "tiny-gpt-oss":
		t.Skip("not run: no backend packs a part of stacks [experts, in, out] or of MXFP4 in two tensors")
	case "tiny-w8a8-moe":
		t.Skip("not run: a rank rounds its own columns of inputs, as in vLLM, and other experts may be selected then")
	}
	ck, err := checkpoint.Open(checkpointOf(t, name))
	must(t, err)
	defer ck.Close()
	var refused *models.UnsupportedError
	if _, err := newJoinedRanks(ck, models.Build{}, ranks); errors.As(err, &refused) && undivided.MatchString(refused.Why) {
		t.Skip(err)
	}
	g := readGolden(t, name)
	tally, _ := RunGolden(t, goldenRun{Opener: ref.Opener{}, KV: kernels.F32, Block: 16, Chunks: []int{33, 1}, Ranks: ranks}, g, checkpointOf(t, name))
	if err := tally.Within(enginetest.BoundFloat(name, kernels.F32).Times(g.Spread())); err != nil {
		t.Error(err)
	}
}

// joinedRanks is a model on all tensor parallel ranks, whose program computes on one device what the
// ranks compute.
type joinedRanks []models.Model

func newJoinedRanks(ck *checkpoint.Checkpoint, b models.Build, world int) (out joinedRanks, err error) {
	for rank := range world {
		b.Shard = backend.Shard{Rank: rank, World: world}
		m, err := models.New(ck, b)
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

func (m joinedRanks) Vocab() int { return m[0].Vocab() }

// Weights returns the weights of all ranks.
func (m joinedRanks) Weights() (out []backend.WeightSpec) {
	for rank, of := range m {
		first := len(out)
		for _, w := range of.Weights() {
			w = move(w, offsets{weights: first})
			w.Name = fmt.Sprintf("%s of rank %d", w.Name, rank)
			if w.InputOrder > 0 {
				w.InputOrder += first
			}
			out = append(out, w)
		}
	}
	return out
}

// Classes returns the classes of all ranks.
func (m joinedRanks) Classes(block int, f kernels.Format) (out []backend.KVClass) {
	for _, of := range m {
		out = append(out, of.Classes(block, f)...)
	}
	return out
}

// Record joins the ranks' programs. Only rank 0 samples.
func (m joinedRanks) Record(p *backend.Program) (*backend.Program, error) {
	p.Weights, p.Vocab, p.Shard = m.Weights(), m.Vocab(), backend.Whole
	var list []*backend.Program
	var by []offsets
	var at offsets
	for _, of := range m {
		n := len(p.Classes) / len(m)
		one, err := of.Record(&backend.Program{Name: p.Name, Bucket: p.Bucket, Classes: slices.Clone(p.Classes[len(list)*n:][:n])})
		if err != nil {
			return nil, err
		}
		for _, v := range one.Values {
			v.Offset, v.Freed = v.Offset+p.Scratch, 0
			p.Values = append(p.Values, v)
		}
		p.Scratch += one.Scratch
		list, by = append(list, one), append(by, at)
		at = offsets{at.values + len(one.Values), at.weights + len(of.Weights()), at.classes + n}
	}
	for i := range list[0].Ops {
		ops := make([]backend.Op, len(m))
		for rank, one := range list {
			ops[rank] = move(one.Ops[i], by[rank])
		}
		p.Ops = append(p.Ops, exchanged(p, ops)...)
	}
	return p, nil
}

// exchanged returns the op of all ranks on one device.
func exchanged(p *backend.Program, ops []backend.Op) (out []backend.Op) {
	copies := func(value func(backend.Op) backend.Value) {
		for _, op := range ops[1:] {
			out = append(out, backend.AllGather{X: value(ops[0]), Y: value(op)}) // on one rank: a copy
		}
	}
	switch first := ops[0].(type) {
	case backend.AllReduce:
		for _, op := range ops[1:] {
			out = append(out, backend.Add{X: op.(backend.AllReduce).X, Into: first.X, Scale: backend.NoWeight})
		}
		copies(func(op backend.Op) backend.Value { return op.(backend.AllReduce).X })
	case backend.AllGather:
		all := first.X
		for i, op := range ops[1:] {
			x := op.(backend.AllGather).X
			to := op.(backend.AllGather).Y
			if i < len(ops)-2 {
				to = temporary(p, p.Values[all], p.Values[all].Cols+p.Values[x].Cols)
			}
			out = append(out, backend.Concat{A: all, B: x, Y: to})
			all = to
		}
		out = append(out, backend.AllGather{X: all, Y: first.Y})
		copies(func(op backend.Op) backend.Value { return op.(backend.AllGather).Y })
	case backend.Sample:
		out = ops[:1]
	default:
		out = ops
	}
	return out
}

// temporary adds a value like another, with other columns.
func temporary(p *backend.Program, like backend.ValueInfo, cols int) backend.Value {
	bytes := 4 * int64(p.Rows(like.Rows)) * int64(cols)
	like.Cols, like.Offset, like.Bytes = cols, p.Scratch, (bytes+backend.ValueAlign-1)/backend.ValueAlign*backend.ValueAlign
	p.Scratch += like.Bytes
	p.Values = append(p.Values, like)
	return backend.Value(len(p.Values) - 1)
}

// offsets are where a rank's values, weights and classes begin.
type offsets struct{ values, weights, classes int }

// move returns an op or a weight of a rank with the numbers that it has among those of all ranks.
func move[T any](x T, by offsets) T {
	moved := moveFields(reflect.ValueOf(x), by)
	return moved.Interface().(T)
}

func moveFields(v reflect.Value, by offsets) reflect.Value {
	out := reflect.New(v.Type()).Elem()
	out.Set(v)
	switch x := v.Interface().(type) {
	case backend.Value:
		if x != backend.NoValue {
			out.SetInt(int64(x) + int64(by.values))
		}
		return out
	case backend.WeightID:
		if x != backend.NoWeight {
			out.SetInt(int64(x) + int64(by.weights))
		}
		return out
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			out.Field(i).Set(moveFields(v.Field(i), by))
			if v.Type().Field(i).Name == "Class" {
				out.Field(i).SetInt(v.Field(i).Int() + int64(by.classes))
			}
		}
	case reflect.Array:
		for i := range v.Len() {
			out.Index(i).Set(moveFields(v.Index(i), by))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			out.Set(reflect.New(v.Type().Elem()))
			out.Elem().Set(moveFields(v.Elem(), by))
		}
	}
	return out
}
