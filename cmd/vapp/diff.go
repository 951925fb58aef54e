package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"vapp.dev/appliance"
	"vapp.dev/appliance/review"
	"vapp.dev/schema"
)

func newDiff() *cobra.Command {
	var target target
	var revisions string
	var markdown, asJSON bool
	c := &cobra.Command{
		Use:   "diff OLD NEW | diff --git A..B [PATH...]",
		Short: "Say what changes between profiles: fields, reload classes, bytes, capacity",
		Long: `Diff compares two profiles, or the profiles of two folders by their paths, as a
running server would on reload: every field that differs with its class (live,
drain, structural), what the plan holds and carries before and after, and what
gets worse. Nothing is loaded.

  --git A..B    the profiles of two commits of this repository (A or B left out: HEAD)
  --git A...B   those of B since it branched off A
  --git A       those of the working tree since A

Without --gpu and --memory a profile that was locked for a device (vapp lock
--gpu) is planned for that, any other for this machine.

PATHs restrict --git to folders or files. Models that are not in the repository
are looked for where they are now. Policies count: those of each side bind its
profiles.

The exit code is 0 where nothing changes, 1 where something does, and 2 where
the comparison fails or a profile of the new side cannot be planned.`,
		Args: func(c *cobra.Command, args []string) error {
			if c.Flags().Changed("git") {
				return nil
			}
			return needArgs(2, 2, "two profiles or folders")(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			if markdown && asJSON {
				return &usageError{errors.New("--markdown and --json: give one of them"), c.CommandPath()}
			}
			d := &differ{c: c, flags: target, given: c.Flags().Changed("gpu") || c.Flags().Changed("memory")}
			if _, err := target.machine(c); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt)
			defer stop()
			var r *review.Review
			var err error
			if c.Flags().Changed("git") {
				r, err = d.revisions(ctx, revisions, args)
			} else {
				r, err = d.operands(ctx, args[0], args[1])
			}
			if err == nil {
				err = printReview(c, r, markdown, asJSON)
			}
			var usage *usageError
			if errors.As(err, &usage) {
				usage.cmd = c.CommandPath()
				return err
			} else if err != nil && ctx.Err() != nil {
				return ctx.Err()
			} else if err != nil {
				fmt.Fprint(c.ErrOrStderr(), complaint(err))
				return exitError(2)
			}
			if code := r.ExitCode(); code != 0 {
				return exitError(code)
			}
			return nil
		},
	}
	target.flags(c)
	c.Flags().StringVar(&revisions, "git", "", "compare commits of this repository: A..B, A...B, or A with the working tree")
	c.Flags().BoolVar(&markdown, "markdown", false, "print a comment for a pull request")
	c.Flags().BoolVar(&asJSON, "json", false, "print the review as JSON")
	return c
}

func printReview(c *cobra.Command, r *review.Review, markdown, asJSON bool) error {
	if markdown || asJSON { // the log of a job does not show what goes into a file
		for _, change := range r.Changes {
			if change.Status == review.Broken {
				fmt.Fprintln(c.ErrOrStderr(), change.New.Err)
			}
		}
	}
	switch {
	case markdown:
		return r.Markdown(c.OutOrStdout())
	case asJSON:
		return r.JSON(c.OutOrStdout())
	}
	return r.Text(c.OutOrStdout())
}

// differ plans the two sides of a comparison.
type differ struct {
	c     *cobra.Command
	flags target
	given bool // the flags name a machine
}

// targets are the machines to plan a pair for: those of the flags, else those
// that the locks name; where only one side has a lock it is for both.
func (d *differ) targets(p pair) ([2]target, error) {
	both := [2]target{d.flags, d.flags}
	if d.given {
		return both, nil
	}
	var locked [2]bool
	for i, file := range p.files {
		if file == "" {
			continue
		}
		l, err := readLock(file)
		if err != nil {
			return both, err
		}
		if l != nil {
			locked[i], both[i] = true, target{gpu: l.Machine.GPU, memory: l.Machine.Memory}
		}
	}
	for i := range both {
		if !locked[i] && locked[1-i] {
			both[i] = both[1-i]
		}
	}
	return both, nil
}

// operands compares two files or two folders.
func (d *differ) operands(ctx context.Context, old, new string) (*review.Review, error) {
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

// side is where the profiles of one side are from; a working tree and plain
// folders have no tree.
type side struct {
	name string
	tree *tree
}

// pair is one profile on both sides: the files to read, "" where there is none.
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
	return out // review.Of sorts
}

// compare plans every pair, several at a time.
func (d *differ) compare(ctx context.Context, sides [2]side, pairs []pair) (*review.Review, error) {
	files := make([]review.File, len(pairs))
	room := make(chan struct{}, runtime.GOMAXPROCS(0))
	var running sync.WaitGroup
	for i, p := range pairs {
		room <- struct{}{}
		running.Go(func() {
			defer func() { <-room }()
			if ctx.Err() == nil {
				files[i] = d.plan(sides, p)
			}
		})
	}
	running.Wait()
	return review.Of(sides[0].name, sides[1].name, files), ctx.Err()
}

func (d *differ) plan(sides [2]side, p pair) review.File {
	var states [2]*review.State
	var sources [2]string
	for i, s := range sides {
		if p.files[i] != "" {
			states[i], sources[i] = s.load(p.files[i])
		}
	}
	a, b := states[0], states[1]
	targets, broken := d.targets(p)
	same := targets[0] == targets[1] && a != nil && b != nil && a.Profile != nil && b.Profile != nil && sources[0] == sources[1] && a.Profile.Hash() == b.Profile.Hash()
	for i, s := range sides {
		if states[i] == nil || states[i].Profile == nil {
			continue
		}
		if i == 1 && same && a.Err == "" { // an error has its own places
			b.Figures = a.Figures
			continue
		}
		err := broken
		if err == nil {
			states[i].Figures, err = d.figures(states[i].Profile, targets[i])
		}
		if err != nil {
			states[i].Figures, states[i].Err = nil, s.words(err)
		}
	}
	return review.File{Path: p.name, Old: a, New: b}
}

func (d *differ) figures(p *schema.Profile, t target) (*review.Figures, error) {
	m, err := t.machine(d.c)
	if err != nil {
		return nil, err
	}
	prepared, err := appliance.PrepareProfile(p, m)
	if err != nil {
		return nil, err
	}
	return review.FiguresOf(prepared.Plan), prepared.Close()
}

// load reads a profile, and finds its model: the path, the same on both sides
// where the model is no part of either.
func (s side) load(file string) (state *review.State, source string) {
	state = &review.State{}
	p, err := schema.Load(file)
	if err != nil {
		state.Err = s.words(err)
		return state, ""
	}
	source = p.Path(p.Model.Source)
	if s.tree != nil {
		if source, err = s.tree.provide(source); err != nil {
			state.Err = s.words(err)
			return state, ""
		}
	}
	state.Profile = p
	return state, source
}

// words are an error's, with the places of a tree as git names them: A:path.
func (s side) words(err error) string {
	text := strings.TrimRight(err.Error(), "\n")
	if s.tree != nil {
		text = strings.ReplaceAll(text, s.tree.root+string(filepath.Separator), s.name+":")
		text = strings.ReplaceAll(text, s.tree.temp, "") // outside the repository: as it is there
	}
	return text
}
