package plan

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"math"
	"reflect"
)

// Digest returns 64 hexadecimal digits of what is equal in every plan of the rank: its build, the
// numbers of its options, slabs, the layouts of pages, step buffers, programs, packed weights, and
// the decisions of its layout that choose kernels. It leaves out threads, workspace and the
// machine's memory.
func (r *RankPlan) Digest() string {
	a := r.Account
	step := a.Reservation.Step
	step.Work = 0 // like the workspace, it depends on the machine's GPU
	d := newDigest()
	d.add(r.Rank, r.Model.Source.Build, decisionsOf(r.Options, r.Slabs, r.SwapSlabs))
	d.add(a.KV, a.Pool, a.Whole, a.ClassOf, a.WholeStep, step, a.Reservation.Classes)
	for _, p := range a.Reservation.Programs {
		d.add(p.Name, p.Bucket, p.Ops, p.Values, p.Scratch, p.Classes, p.Vocab, p.Axes, p.Lookahead, p.Shard, p.AdapterSlots)
	}
	for i, w := range a.Reservation.Weights {
		p := a.Reservation.Packed[i]
		d.add(w.Name, w.Rows, w.Cols, w.Experts, w.Source, w.Target, p.Format, p.Bytes, p.Kernel)
	}
	for _, c := range a.Layout.Choices() {
		switch c.Name {
		case "variant", "architecture", "activations":
			d.add(c.Name, c.Value)
		}
	}
	return d.sum()
}

// Digest returns RankPlan.Digest of a plan of one rank, without making a second account.
func (p *Plan) Digest() string {
	d := p.Decisions()
	r := RankPlan{Model: p.resolved.in.Model, Options: p.Options, Account: p.Account, Slabs: d.Slabs, SwapSlabs: d.SwapSlabs}
	return r.Digest()
}

// digest hashes values by their structure: names of types, lengths and numbers.
type digest struct{ hash.Hash }

func newDigest() digest { return digest{sha256.New()} }

func (d digest) sum() string { return hex.EncodeToString(d.Sum(nil)) }

func (d digest) add(values ...any) {
	for _, v := range values {
		d.value(reflect.ValueOf(v))
	}
}

func (d digest) number(n uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], n)
	d.Write(b[:])
}

func (d digest) text(s string) {
	d.number(uint64(len(s)))
	d.Write([]byte(s))
}

// value hashes v. It panics for a type that has no value of its own, such as a function.
func (d digest) value(v reflect.Value) {
	if !v.IsValid() {
		d.text("nil")
		return
	}
	d.number(uint64(v.Kind()))
	switch v.Kind() {
	case reflect.Bool:
		n := uint64(0)
		if v.Bool() {
			n = 1
		}
		d.number(n)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		d.number(uint64(v.Int()))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		d.number(v.Uint())
	case reflect.Float32, reflect.Float64:
		d.number(math.Float64bits(v.Float()))
	case reflect.String:
		d.text(v.String())
	case reflect.Slice, reflect.Array:
		d.number(uint64(v.Len()))
		for i := range v.Len() {
			d.value(v.Index(i))
		}
	case reflect.Struct:
		d.text(v.Type().String())
		for i := range v.NumField() {
			d.value(v.Field(i))
		}
	case reflect.Pointer, reflect.Interface:
		d.value(v.Elem())
	default:
		panic(fmt.Sprintf("plan: %v has no digest", v.Type()))
	}
}
