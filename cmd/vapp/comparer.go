package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"vapp.dev/appliance"
	"vapp.dev/appliance/plan"
	"vapp.dev/schema"
	"vapp.dev/tools/lock"
	"vapp.dev/tools/lock/lockfile"
	"vapp.dev/tools/review"
	"vapp.dev/tools/review/gittree"
)

// comparer plans both sides of a comparison.
type comparer struct {
	c     *cobra.Command
	flags target
	given bool // --gpu or --memory was given
	// loadTook is how long the running server has loaded the old profile's weights; 0: unknown.
	loadTook time.Duration
}

// targets returns the machines to plan the two sides of a pair for: the machine of the flags, else
// that of the flags of each side's lock file, else the profile's target. A lock of one side alone
// applies to both, unless they have different targets.
func (d *comparer) targets(p pair, states [2]*review.State) ([2]target, error) {
	both := [2]target{d.flags, d.flags}
	if d.given {
		return both, nil
	}
	var locks [2]*lock.Lock
	for i, file := range p.files {
		if file == "" {
			continue
		}
		l, err := lockfile.Read(file)
		if err != nil {
			return both, err
		}
		locks[i] = l
	}
	for i, s := range states {
		l := cmp.Or(locks[i], locks[1-i])
		if l != nil && s != nil && s.Profile != nil {
			both[i] = lockedTarget(l.FlagsFor(s.Profile))
		}
	}
	return both, nil
}

// operands compares two files or two folders.
func (d *comparer) operands(ctx context.Context, old, new string) (*review.Review, error) {
	var folders [2]bool
	for i, path := range []string{old, new} {
		st, err := os.Stat(path)
		if err != nil {
			return nil, unreadable(path, err)
		}
		folders[i] = st.IsDir()
	}
	if folders[0] != folders[1] {
		return nil, &usageError{err: fmt.Errorf("%s and %s: one is a folder; give two profiles or two folders", old, new)}
	}
	if !folders[0] {
		name := new
		if old != new {
			name = old + " → " + new
		}
		return d.compare(ctx, [2]side{{name: old}, {name: new}}, []pair{{name, [2]string{old, new}}})
	}
	pairs := map[string]*pair{}
	for i, dir := range []string{old, new} {
		files, err := schema.Below(dir)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			rel, err := filepath.Rel(dir, f)
			if err != nil {
				return nil, err
			}
			add(pairs, filepath.ToSlash(rel), i, f)
		}
	}
	return d.compare(ctx, [2]side{{name: old}, {name: new}}, ordered(pairs))
}

// side is one side of the comparison. tree is nil where it is a working tree or plain folder.
type side struct {
	name string
	tree *gittree.Tree
}

// pair is one profile on both sides: the files to read, "" where a side lacks it.
type pair struct {
	name  string
	files [2]string
}

func add(pairs map[string]*pair, name string, side int, file string) {
	p := pairs[name]
	if p == nil {
		p = &pair{name: name}
		pairs[name] = p
	}
	p.files[side] = file
}

func ordered(pairs map[string]*pair) []pair {
	var out []pair
	for _, p := range pairs {
		out = append(out, *p)
	}
	return out // review.Of sorts them
}

// compare plans every pair, up to GOMAXPROCS at once.
func (d *comparer) compare(ctx context.Context, sides [2]side, pairs []pair) (*review.Review, error) {
	files := make([]review.File, len(pairs))
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	var running sync.WaitGroup
	for i, p := range pairs {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			if ctx.Err() == nil {
				files[i] = d.plan(sides, p)
			}
		})
	}
	running.Wait()
	return review.Of(sides[0].name, sides[1].name, files), ctx.Err()
}

// plan plans both sides of a pair.
func (d *comparer) plan(sides [2]side, p pair) review.File {
	var states [2]*review.State
	var sources [2]string
	var prepared [2]*appliance.Prepared
	for i, s := range sides {
		if p.files[i] != "" {
			states[i], sources[i] = s.load(p.files[i])
		}
	}
	a, b := states[0], states[1]
	targets, lockErr := d.targets(p, states)
	same := targets[0] == targets[1] && a != nil && b != nil && a.Profile != nil && b.Profile != nil && sources[0] == sources[1] && a.Profile.Hash() == b.Profile.Hash()
	for i, s := range sides {
		if states[i] == nil || states[i].Profile == nil {
			continue
		}
		if i == 1 && same && a.Err == "" { // an error names files of its own side, so it is not shared
			b.Figures = a.Figures
			continue
		}
		err := lockErr
		if err == nil {
			prepared[i], err = d.prepare(states[i].Profile, targets[i])
		}
		if err != nil {
			states[i].Err = s.errorText(err)
			continue
		}
		defer prepared[i].Close()
		states[i].Figures = review.FiguresOf(prepared[i].Plan)
	}
	f := review.File{Path: p.name, Old: a, New: b}
	if old, next := prepared[0], prepared[1]; old != nil && next != nil {
		t, err := d.transition(old, next, targets[0] == targets[1])
		if f.Transition = t; err != nil {
			f.Refused = sides[1].errorText(err)
		}
	}
	return f
}

// prepare plans p for t.
func (d *comparer) prepare(p *schema.Profile, t target) (*appliance.Prepared, error) {
	m, err := t.machine(d.c)
	if err != nil {
		return nil, err
	}
	return appliance.PrepareProfile(p, m)
}

// errMachines is why there is no transition between profiles of different machines.
var errMachines = errors.New("the two sides are planned for different machines")

// transition returns how a server that runs the old profile would change to the next one. No server is asked, so that
// the limit is the memory of the device.
func (d *comparer) transition(old, next *appliance.Prepared, sameMachine bool) (*plan.Transition, error) {
	if !sameMachine {
		return nil, errMachines
	}
	in := plan.ChangeInputs{Old: old.Plan, New: next.Plan, Mode: next.Profile.Reload.Structural, DrainTimeout: next.Profile.Serve.DrainTimeout, Loaded: schema.Duration(d.loadTook)}
	var err error
	if in.OldFiles, err = old.Model.Fingerprint(); err != nil {
		return nil, err
	}
	if in.NewFiles, err = next.Model.Fingerprint(); err != nil {
		return nil, err
	}
	t, err := plan.NewTransition(in)
	if err != nil {
		return nil, err
	}
	return &t, nil
}

// load reads a profile and returns the path of its model. The path is the same on both sides
// where the commits do not hold the model.
func (s side) load(file string) (state *review.State, source string) {
	state = &review.State{}
	p, err := schema.Load(file)
	if err != nil {
		state.Err = s.errorText(err)
		return state, ""
	}
	source = p.Path(p.Model.Source)
	if s.tree != nil {
		if source, err = s.tree.Provide(source); err != nil {
			state.Err = s.errorText(err)
			return state, ""
		}
	}
	state.Profile = p
	return state, source
}

// errorText returns the text of err, with paths below a tree written as git does: A:path.
func (s side) errorText(err error) string {
	text := strings.TrimRight(err.Error(), "\n")
	if s.tree != nil {
		text = strings.ReplaceAll(text, s.tree.Root+string(filepath.Separator), s.name+":")
		text = strings.ReplaceAll(text, s.tree.Temp, "") // outside the repository: the path on this machine
	}
	return text
}
