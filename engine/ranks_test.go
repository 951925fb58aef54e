package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"vapp.dev/engine"
	"vapp.dev/engine/backend"
	"vapp.dev/engine/backend/local"
	"vapp.dev/engine/backend/ref"
	"vapp.dev/engine/enginetest"
	"vapp.dev/engine/kv"
	"vapp.dev/engine/ranks"
)

// channel are the options of the control channel in tests, whose ranks are goroutines.
var channel = ranks.Options{Key: []byte("a key"), Wait: time.Minute, Silence: time.Minute, Log: slog.New(slog.DiscardHandler)}

// openRanks is open for y.world ranks, each with a device of its own, connected by the control channel.
func (y *toy) openRanks(t testing.TB) *engine.Engine {
	t.Helper()
	p := y.world
	world := p.Tensor * p.Pipeline
	groups := local.New(p.Tensor, p.Pipeline)
	if y.groups != nil {
		groups = y.groups(p)
	}
	leader, err := ranks.Listen("127.0.0.1:0", channel, ranks.Member{World: world, Host: "here"})
	if err != nil {
		t.Fatal(err)
	}
	configs := make([]engine.Config, world)
	for rank := range configs {
		configs[rank] = y.rank(t, rank, groups[rank])
	}
	ended := make(chan error, world)
	for rank := 1; rank < world; rank++ {
		go func() { ended <- follow(leader.Addr().String(), rank, p, configs[rank]) }()
	}
	same := func(int) (string, error) { return "the plan", nil }
	if err := leader.Gather(context.Background(), ranks.Decided{}, same); err != nil {
		t.Fatal(err)
	}
	c := configs[0]
	c.Ranks, c.Hooks = &engine.Ranks{Leader: leader, Places: p}, y.hooks
	e, err := engine.Open(context.Background(), c.WithClock(y.clock))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := e.Close()
		for range world - 1 {
			err = errors.Join(err, <-ended)
		}
		for _, c := range configs {
			err = errors.Join(err, c.Model.Close())
		}
		if err != nil {
			t.Error(err)
		}
	})
	return e
}

// rank returns the configuration of one rank.
func (y *toy) rank(t testing.TB, rank int, g backend.Group) engine.Config {
	t.Helper()
	z := *y
	z.build.Shard, z.build.Pipe = g.Tensor(), g.Pipe()
	z.opts.Backend.Group = g
	few := z.fat && g.Pipe().World > 1
	z.fat = z.fat && !few
	m := z.inspect(t)
	account := func() *engine.Account {
		a := z.account(t, m)
		if few {
			fewPages(a)
		}
		return a
	}
	layout := account()
	if y.slabs == least {
		y.slabs = layout.Pool.SequenceSlabs(y.opts.MaxModelLen)
	}
	z.opts.KVBytes = int64(y.slabs) * layout.KV.SlabBytes
	if z.opts.SwapBytes > 0 { // the same number of slabs on all ranks
		z.opts.SwapBytes = 64 * layout.KV.SlabBytes
	}
	if rank == 0 {
		y.model = m
	}
	return engine.Config{Options: z.opts, Model: m, Opener: z.opener(), Facts: z.facts(t), Account: account()}
}

// fewPages makes a slab have few pages, as those of a fat family: the stages of a pipeline make their family anew.
func fewPages(a *engine.Account) {
	for _, l := range []kv.Layout{a.KV, a.Pool} {
		for i := range l.PagesPerSlab {
			l.PagesPerSlab[i] = min(6, l.PagesPerSlab[i])
		}
	}
	for _, classes := range [][]backend.KVClass{a.Whole, a.Reservation.Classes, a.Reservation.Programs[0].Classes} {
		for i := range classes {
			classes[i].PagesPerSlab = min(6, classes[i].PagesPerSlab)
		}
	}
}

// follow is the life of a rank other than 0.
func follow(address string, rank int, p ranks.Places, c engine.Config) error {
	f, _, err := ranks.Join(context.Background(), address, channel, ranks.Member{Rank: rank, World: p.Tensor * p.Pipeline, Host: "here"})
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Agree("the plan"); err != nil {
		return err
	}
	return engine.Follow(context.Background(), c, f, p, func([backend.NumArenas]int64) {})
}

// TestRanks runs families on two tensor parallel ranks, in two stages, and both, in the ways of axes: each way gives the tokens of
// the plain one on the same ranks, and stages give those of one rank. make soak runs all of twinFamilies.
func TestRanks(t *testing.T) {
	if testing.Short() {
		t.Skip("not run: -short leaves it out, make test runs it")
	}
	names := []string{"tiny-qwen3", "tiny-gpt-oss", "tiny-qwen35"}
	switch {
	case longSoak:
		names = twinFamilies
	case racing:
		names = names[:1] // the goroutines are the same in all
	}
	for _, name := range names {
		grids := []ranks.Places{{Tensor: 2, Pipeline: 2}}
		switch name {
		case "tiny-qwen3": // in all ways
			grids = []ranks.Places{{Tensor: 2, Pipeline: 1}, {Tensor: 1, Pipeline: 2}, {Tensor: 2, Pipeline: 2}}
		case "tiny-gemma4-e": // refused in stages
			grids = []ranks.Places{{Tensor: 2, Pipeline: 1}}
		}
		g := recorded(t, name)
		for _, p := range grids {
			like := toy{dir: checkpointOf(name), on: ref.Opener{}, opts: engine.Options{MaxModelLen: g.Rows() + 1}}
			t.Run(fmt.Sprintf("%s %d×%d", name, p.Tensor, p.Pipeline), func(t *testing.T) { onRanks(t, p, len(grids) > 1, like, g) })
		}
	}
}

// onRanks runs all ways, or those that every backend runs.
func onRanks(t *testing.T, p ranks.Places, all bool, like toy, g *enginetest.Golden) {
	plain := axis{name: "plain, alone", alone: true}
	if p.Tensor > 1 {
		plain.change = func(y *toy) { y.world = p }
	}
	ways := []axis{plain}
	for _, a := range axes {
		change := a.change
		var probe toy
		if change != nil {
			change(&probe)
		}
		if probe.fat && p.Pipeline > 1 {
			continue // the pages of a pipeline are those of the real family: see TestStagesPreempted
		}
		a.change = func(y *toy) {
			if y.world = p; change != nil {
				change(y)
			}
		}
		if a.family == "" && !a.alone && (all || a.everywhere) {
			ways = append(ways, a)
		}
	}
	twins(t, ways, like, g)
}

// TestStagesPreempted: sequences that are preempted, or swapped out, in a pipeline have the tokens of one rank.
func TestStagesPreempted(t *testing.T) {
	length := 60 // so long that the first request runs when the last one comes
	if racing {
		length = 16
	}
	run := func(change func(*toy)) [][]int32 {
		y := newToy(t)
		y.slabs = least
		change(y)
		e := y.open(t)
		var streams []*engine.Stream
		for i := range 12 {
			q := request(i)
			q.Params.MaxTokens = length
			s, err := e.Submit(context.Background(), q)
			if err != nil {
				t.Fatal(err)
			}
			streams = append(streams, s...)
		}
		var out [][]int32
		for _, s := range streams {
			tokens, _ := collect(t, s)
			out = append(out, tokens)
		}
		if e.Stats().Preemptions == 0 {
			t.Error("nothing was preempted")
		}
		return out
	}
	want := run(func(*toy) {})
	for name, change := range map[string]func(*toy){
		"preempted":                   func(y *toy) { y.world = ranks.Places{Tensor: 1, Pipeline: 2} },
		"preempted in four":           func(y *toy) { y.world = ranks.Places{Tensor: 1, Pipeline: 4} },
		"swapped in four of two each": func(y *toy) { y.world, y.opts.SwapBytes = ranks.Places{Tensor: 2, Pipeline: 4}, 64<<20 },
		"swapped":                     func(y *toy) { y.world, y.opts.SwapBytes = ranks.Places{Tensor: 1, Pipeline: 2}, 64<<20 },
	} {
		if racing && strings.Contains(name, "four") || !longSoak && (name == "preempted in four" || name == "swapped") {
			continue // make soak runs them
		}
		t.Run(name, func(t *testing.T) {
			for i, got := range run(change) {
				if !slices.Equal(got, want[i]) {
					t.Errorf("choice %d: %v, on one rank %v", i, got, want[i])
				}
			}
		})
	}
}

// TestRanksPropose: proposals of the model's own head change no token on ranks and in stages.
func TestRanksPropose(t *testing.T) {
	dir, g := recordedHead(t)
	for _, p := range []ranks.Places{{Tensor: 2, Pipeline: 1}, {Tensor: 1, Pipeline: 2}} {
		on := func(change func(*toy)) func(*toy) {
			return func(y *toy) { y.world = p; change(y) }
		}
		ways := []axis{
			{name: "plain, alone", alone: true, change: on(func(*toy) {})},
			{name: "three", change: on(head(3)), took: usedProposals},
			{name: "five, prefixes, twice", rounds: 2, took: usedProposals, change: on(func(y *toy) { head(5)(y); y.opts.PrefixCaching = true })},
		}
		t.Run(fmt.Sprintf("%d×%d", p.Tensor, p.Pipeline), func(t *testing.T) {
			twins(t, ways, toy{dir: dir, on: ref.Opener{}, opts: engine.Options{MaxModelLen: 128}}, g)
		})
	}
}

// TestRanksAdapters: each rank reads and writes its own part of an adapter, and requests have the tokens of one rank.
func TestRanksAdapters(t *testing.T) {
	answers := func(p ranks.Places) [][]int32 {
		y := adapted(ref.Opener{}, backend.Settings{}, 2)
		y.world = p
		e := y.open(t)
		load(t, e, "a", writeAdapter(t, y.dir, 4, 1))
		load(t, e, "b", writeAdapter(t, y.dir, 8, 2))
		if err := e.LoadAdapter(context.Background(), "broken", t.TempDir(), false); err == nil {
			t.Error("a folder without an adapter was loaded")
		}
		var out [][]int32
		for i, name := range []string{"a", "b", "", "a"} {
			q := request(3 * i)
			q.Adapter = name
			s, err := e.Submit(context.Background(), q)
			if err != nil {
				t.Fatal(err)
			}
			tokens, _ := collect(t, s[0])
			out = append(out, tokens)
			for _, s := range s[1:] {
				collect(t, s)
			}
		}
		return out
	}
	want := answers(ranks.Places{})
	if slices.Equal(want[0], want[2]) {
		t.Error("the adapter changes nothing")
	}
	for _, p := range []ranks.Places{{Tensor: 1, Pipeline: 2}, {Tensor: 2, Pipeline: 1}} {
		for i, got := range answers(p) {
			if !slices.Equal(got, want[i]) {
				t.Errorf("%d×%d, request %d: %v, on one rank %v", p.Tensor, p.Pipeline, i, got, want[i])
			}
		}
	}
}

// TestRanksSlabs: rank 0 uses no slab that only its own arena has, because its backend has rounded it up.
func TestRanksSlabs(t *testing.T) {
	y := newToy(t)
	y.world, y.slabs, y.opts.SwapBytes = ranks.Places{Tensor: 1, Pipeline: 2}, 10, 64<<20
	c := y.rank(t, 0, local.New(1, 2)[0])
	t.Cleanup(func() { c.Model.Close() })
	a := c.Account
	a.Reservation.Arenas[backend.KV] += 2 * a.KV.SlabBytes
	a.Reservation.Arenas[backend.Swap] += 3 * a.KV.SlabBytes
	if pages, swap := c.Slabs(); pages != 12 || swap != 67 {
		t.Errorf("one rank uses %d and %d slabs of 12 and 67", pages, swap)
	}
	c.Ranks = &engine.Ranks{}
	if pages, swap := c.Slabs(); pages != 10 || swap != 64 {
		t.Errorf("rank 0 uses %d and %d slabs, the others have 10 and 64", pages, swap)
	}
}
