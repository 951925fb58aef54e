package kvevents

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"vapp.dev/engine/kv"
)

// TestBatch compares the content of a batch with vLLM's order of fields.
func TestBatch(t *testing.T) {
	hash := func(n byte) (h kv.Hash) { h[31], h[0] = n, 0xff; return h }
	stored := func(n, parent byte, first bool, o kv.Origin) kv.Change {
		return kv.Change{Op: kv.Stored, Class: 1, Hash: hash(n), Parent: hash(parent), First: first, Tokens: []int32{int32(n), 70000}, Origin: o}
	}
	specs := []kv.Spec{{Kind: kv.Full, BlockSize: 2}, {Kind: kv.Window, BlockSize: 2, Window: 6}, {Kind: kv.Snapshot, BlockSize: 2}}
	both := kv.Origin{Adapter: "sql", Salt: "tenant"}
	payload, n := encode(&batch{at: time.Unix(1700000000, 5e8), cleared: true, specs: specs, changes: []kv.Change{
		stored(1, 0, true, both), stored(2, 1, false, both), stored(4, 3, false, kv.Origin{Salt: "tenant"}), {Op: kv.Stored, Hash: hash(5), First: true, Tokens: []int32{0, 9}},
		{Op: kv.Removed, Class: 2, Hash: hash(1)}, {Op: kv.Removed, Class: 2, Hash: hash(200)}, {Op: kv.Removed, Hash: hash(1)}, {Op: kv.Cleared},
	}})
	var v any
	if err := msgpack.Unmarshal(payload, &v); err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{`[1700000000.5,[["AllBlocksCleared"]`,
		`["BlockStored",[1,2],null,[1,70000,2,70000],2,null,"GPU","sql",[["sql","tenant"],["sql"]],1,"sliding_window",6]`,
		`["BlockStored",[4],3,[4,70000],2,null,"GPU",null,[null],1,"sliding_window",6]`,
		`["BlockStored",[5],null,[0,9],2,null,"GPU",null,[null],0,"full_attention",null]`,
		`["BlockRemoved",[1,200],"GPU",2]`, `["BlockRemoved",[1],"GPU",0]`, `["AllBlocksCleared"]],0]`}, ",")
	if string(got) != want || n != 7 {
		t.Errorf("%d events\n%s\nwant\n%s", n, got, want)
	}
}

// TestBuffer checks both limits of the batches kept for replay.
func TestBuffer(t *testing.T) {
	b := newBuffer(3, 10)
	for i, size := range []int{1, 1, 1, 1, 8, 1} {
		b.add(uint64(2*i), make([]byte, size)) // the odd numbers were lost
	}
	for ask, want := range map[uint64]uint64{0: 6, 6: 6, 7: 8, 10: 10} {
		if k, ok := b.from(ask); !ok || k.seq != want {
			t.Errorf("from %d: %d, %v, want %d", ask, k.seq, ok, want)
		}
	}
	if _, ok := b.from(11); ok {
		t.Error("a batch after the last one")
	}
	if b.add(12, make([]byte, 11)); b.bytes != 0 {
		t.Errorf("a batch larger than the limit is kept: %d bytes", b.bytes)
	}
	if k, ok := b.from(0); ok {
		t.Errorf("batch %d is left", k.seq)
	}
}

func TestParseEndpoint(t *testing.T) {
	for text, want := range map[string]Endpoint{
		"tcp://*:5557":         {"tcp", ":5557", true},
		"tcp://[::]:5557":      {"tcp", "[::]:5557", true},
		"tcp://0.0.0.0:5557":   {"tcp", "0.0.0.0:5557", true},
		"tcp://router:5557":    {"tcp", "router:5557", false},
		"tcp://10.0.0.7:5557":  {"tcp", "10.0.0.7:5557", false},
		"ipc:///run/vapp.sock": {"unix", "/run/vapp.sock", true},
	} {
		if got, err := ParseEndpoint(text); got != want || err != nil {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "inproc://x", "tcp://", "tcp://*", "tcp://*:70000", "tcp://:5557", "tcp://router:5557/x", "ipc://", "*:5557"} {
		if e, err := ParseEndpoint(text); err == nil {
			t.Errorf("%q: %+v, want an error", text, e)
		}
	}
}
