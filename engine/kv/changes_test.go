package kv

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"testing"
)

// TestHashes compares block hashes with those of Python (testdata/record_hashes.py).
func TestHashes(t *testing.T) {
	b, err := os.ReadFile("testdata/block_hashes.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Seed, Adapter, Salt, None string
		BlockSize                 int `json:"block_size"`
		Tokens                    []int32
		Hashes                    []string
		Items                     [][3]any // name, first token, tokens
	}
	if err := json.Unmarshal(b, &cases); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		p := NewPool(layoutOf(t, Spec{Name: "full", Kind: Full, PageBytes: 1 << 20, BlockSize: c.BlockSize}), 32, true)
		p.Record(c.Seed)
		tab := p.NewTable(c.Salt)
		tab.SetOrigin(Origin{c.Adapter, c.Salt})
		var items []Item
		for _, m := range c.Items {
			at, n := int(m[1].(float64)), int(m[2].(float64))
			items = append(items, Item{Name: m[0].(string), At: at, Tokens: n, From: at, To: at + n})
		}
		tab.SetItems(items)
		if !p.Extend(tab, 0, len(c.Tokens), len(c.Tokens)) {
			t.Fatal("no pages")
		}
		p.Seal(tab, c.Tokens, len(c.Tokens))
		list := p.Changes()
		if len(list) != 1+len(c.Hashes) || list[0].Op != Cleared {
			t.Fatalf("seed %q: %d changes, want Cleared and %d blocks", c.Seed, len(list), len(c.Hashes))
		}
		parent := c.None
		if n := NoneHash(c.Seed); hex.EncodeToString(n[:]) != c.None {
			t.Errorf("seed %q: none hash %x, want %s", c.Seed, n, c.None)
		}
		for i, is := range list[1:] {
			if is.First {
				is.Parent = NoneHash(c.Seed)
			}
			if got := hex.EncodeToString(is.Hash[:]); got != c.Hashes[i] || hex.EncodeToString(is.Parent[:]) != parent || is.First != (i == 0) {
				t.Errorf("seed %q, block %d: hash %s of parent %x, want %s of %s", c.Seed, i, got, is.Parent, c.Hashes[i], parent)
			}
			parent = c.Hashes[i]
		}
	}
}

// mirror is a prefix cache rebuilt from changes.
type mirror map[string]bool

func (m mirror) apply(list []Change) error {
	for _, c := range list {
		key := fmt.Sprintf("%d %x", c.Class, c.Hash)
		switch {
		case c.Op == Cleared:
			clear(m)
		case c.Op == Stored && m[key]:
			return fmt.Errorf("%s is stored twice", key)
		case c.Op == Stored:
			m[key] = true
		case !m[key]:
			return fmt.Errorf("%s is removed and was not stored", key)
		default:
			delete(m, key)
		}
	}
	return nil
}

func (m mirror) equals(p *Pool) error {
	n := 0
	var err error
	p.Contents(func(class int, h Hash) {
		if n++; !m[fmt.Sprintf("%d %x", class, h)] {
			err = fmt.Errorf("class %d holds %x, of which no change speaks", class, h)
		}
	})
	if err == nil && n != len(m) {
		err = fmt.Errorf("the cache has %d blocks, the changes leave %d", n, len(m))
	}
	return err
}

// TestChangesAtRandom rebuilds the prefix cache of random sequences from its changes.
func TestChangesAtRandom(t *testing.T) {
	for _, specs := range [][]Spec{
		{fullSpec},
		{fullSpec, windowSpec, wideSpec},
		{oddSpec},
		{fullSpec, markSpec, aheadSpec, stateSpec},
		{fullSpec, stateSpec, wideSpec, bigMarkSpec},
	} {
		s := newSim(t, specs, 7, 3)
		s.pool.snapshotEvery = 8
		s.pool.Record("0")
		m, most := mirror{}, 0
		for i := range 400 {
			if err := s.step(); err != nil {
				t.Fatal(err)
			}
			err := m.apply(s.pool.Changes())
			if err == nil {
				err = m.equals(s.pool)
			}
			if err != nil {
				t.Fatalf("%d classes, step %d: %v", len(specs), i, err)
			}
			most = max(most, len(m))
		}
		if most < 6 {
			t.Errorf("%d classes: at most %d blocks were cached: that tests too little", len(specs), most)
		}
	}
}

// TestHashOfTwoPages: blocks of two loads of an adapter have one Hash, which is removed with the last.
func TestHashOfTwoPages(t *testing.T) {
	p := NewPool(layoutOf(t, fullSpec), 8, true)
	p.Record("0")
	p.Changes()
	var tables []*Table
	for _, load := range []string{"1", "2"} {
		tab := p.NewTable(load)
		tab.SetOrigin(Origin{Adapter: "sql"})
		if !p.Extend(tab, 0, 4, 4) {
			t.Fatal("no pages")
		}
		p.Seal(tab, ids(4, 0), 4)
		tables = append(tables, tab)
	}
	if list := p.Changes(); len(list) != 1 || list[0].Op != Stored || list[0].Origin.Adapter != "sql" {
		t.Errorf("the same block twice: %+v, want it stored once", list)
	}
	p.Free(tables[0])
	p.EvictAll()
	if list := p.Changes(); len(list) != 0 {
		t.Errorf("one of two pages evicted: %+v, want no change", list)
	}
	p.Free(tables[1])
	p.EvictAll()
	if list := p.Changes(); len(list) != 1 || list[0].Op != Cleared {
		t.Errorf("the cache is empty: %+v, want Cleared", list)
	}
}

// BenchmarkSeal measures a prompt of 8192 tokens with and without Record.
func BenchmarkSeal(b *testing.B) {
	for _, record := range []bool{false, true} {
		b.Run(fmt.Sprintf("record=%v", record), func(b *testing.B) {
			p := NewPool(layoutOf(b, Spec{Name: "full", Kind: Full, PageBytes: 1 << 15, BlockSize: 16}), 64, true)
			if record {
				p.Record("0")
			}
			tokens := ids(8192, 1000)
			b.ReportAllocs()
			for i := range b.N {
				tokens[0] = int32(i)
				tab := p.NewTable("")
				p.Reserve(tab, len(tokens))
				if !p.Extend(tab, 0, len(tokens), len(tokens)) {
					b.Fatal("no pages")
				}
				p.Seal(tab, tokens, len(tokens))
				p.Free(tab)
				p.Changes()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/512, "ns/block")
		})
	}
}
