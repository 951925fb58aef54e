package kvevents

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/vmihailenco/msgpack/v5"

	"vapp.dev/engine/kv"
)

// medium is where blocks are, in vLLM's words. vLLM says so on every platform.
const medium = "GPU"

// kinds are vLLM's names of the kinds of groups.
var kinds = map[kv.Kind]string{kv.Full: "full_attention", kv.Window: "sliding_window", kv.Chunk: "chunked_local_attention", kv.Snapshot: "mamba"}

// encode returns the MessagePack of a batch, [time, events, rank of data parallelism], and its
// number of events. Each event is an array that begins with its name.
func encode(b *batch) ([]byte, int) {
	var out bytes.Buffer
	e := encoder{msgpack.NewEncoder(&out)}
	groups := group(b.changes)
	n := len(groups)
	if b.cleared {
		n++
	}
	e.array(3)
	e.check(e.EncodeFloat64(float64(b.at.UnixNano()) / 1e9))
	e.array(n)
	if b.cleared {
		e.cleared()
	}
	for _, g := range groups {
		switch g[0].Op {
		case kv.Stored:
			e.stored(g, b.specs[g[0].Class])
		case kv.Removed:
			e.array(4)
			e.text("BlockRemoved")
			e.hashes(g)
			e.text(medium)
			e.int(g[0].Class)
		default:
			e.cleared()
		}
	}
	e.int(0)
	return out.Bytes(), n
}

// group divides changes into runs of one event each: blocks of a class that follow each other in
// one sequence were stored, or blocks of a class were removed.
func group(changes []kv.Change) [][]kv.Change {
	var out [][]kv.Change
	for from, i := 0, 1; i <= len(changes); i++ {
		if i < len(changes) && follows(&changes[i-1], &changes[i]) {
			continue
		}
		out = append(out, changes[from:i])
		from = i
	}
	return out
}

// follows reports whether b belongs to the same event as a, which is before it.
func follows(a, b *kv.Change) bool {
	if a.Op != b.Op || a.Class != b.Class {
		return false
	}
	return a.Op == kv.Removed || a.Op == kv.Stored && !b.First && b.Parent == a.Hash && b.Origin == a.Origin
}

// encoder writes to memory, where only a wrong program can fail.
type encoder struct{ *msgpack.Encoder }

func (e encoder) check(err error) {
	if err != nil {
		panic("kvevents: " + err.Error())
	}
}

func (e encoder) array(n int)   { e.check(e.EncodeArrayLen(n)) }
func (e encoder) text(s string) { e.check(e.EncodeString(s)) }
func (e encoder) int(n int)     { e.check(e.EncodeInt(int64(n))) }
func (e encoder) null()         { e.check(e.EncodeNil()) }

func (e encoder) textOrNull(s string) {
	if s == "" {
		e.null()
		return
	}
	e.text(s)
}

// hash writes the lower 64 bits of a hash as a number, vLLM's default.
func (e encoder) hash(h kv.Hash) { e.check(e.EncodeUint(External(h))) }

// External returns a hash as events have it: its last eight bytes, big-endian.
func External(h kv.Hash) uint64 { return binary.BigEndian.Uint64(h[len(h)-8:]) }

func (e encoder) hashes(list []kv.Change) {
	e.array(len(list))
	for i := range list {
		e.hash(list[i].Hash)
	}
}

func (e encoder) cleared() {
	e.array(1)
	e.text("AllBlocksCleared")
}

// stored writes BlockStored: hashes, parent's hash, tokens, block size, LoRA id (vLLM deprecates it),
// medium, LoRA name, extra keys of each block, group, kind of the group, window.
func (e encoder) stored(list []kv.Change, s kv.Spec) {
	first := &list[0]
	e.array(12)
	e.text("BlockStored")
	e.hashes(list)
	if first.First {
		e.null()
	} else {
		e.hash(first.Parent)
	}
	e.array(len(list) * s.BlockSize)
	for i := range list {
		for _, id := range list[i].Tokens {
			e.int(int(id))
		}
	}
	e.int(s.BlockSize)
	e.null()
	e.text(medium)
	e.textOrNull(first.Origin.Adapter)
	e.extraKeys(list)
	e.int(first.Class)
	e.text(kinds[s.Kind])
	if s.Kind == kv.Window {
		e.int(min(s.Window, math.MaxInt32))
	} else {
		e.null()
	}
}

// extraKeys writes the keys of each block's hash, null for a block without any: in vLLM's order the adapter,
// the name of each image in the block and where it begins from the block's first token, the salt.
func (e encoder) extraKeys(list []kv.Change) {
	e.array(len(list))
	for i := range list {
		o := list[i].Origin
		if !list[i].First {
			o.Salt = ""
		}
		n := len(list[i].Items)
		for _, k := range []string{o.Adapter, o.Salt} {
			if k != "" {
				n++
			}
		}
		if n == 0 {
			e.null()
			continue
		}
		e.array(n)
		if o.Adapter != "" {
			e.text(o.Adapter)
		}
		for j := range list[i].Items {
			m := &list[i].Items[j]
			e.array(2)
			e.text(m.Key())
			e.int(m.At - list[i].At)
		}
		if o.Salt != "" {
			e.text(o.Salt)
		}
	}
}
