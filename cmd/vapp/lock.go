package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"vapp.dev/appliance"
	"vapp.dev/engine"
	"vapp.dev/schema"
	"vapp.dev/tools/lock"
	"vapp.dev/tools/lock/lockfile"
)

func newLock() *cobra.Command {
	var target target
	var check bool
	c := &cobra.Command{
		Use:   "lock PROFILE|DIR...",
		Short: "Write lock files of profiles, or check profiles against their locks",
		Long: `Lock plans profiles and writes a lock file NAME.lock.json next to each. It has
the resolved profile, the plan and the machine it was made for, the SHA-256 of
every file of the model, and the version of vapp. "vapp up --locked" serves
exactly that.

A file of the model with the size and time in the lock is not hashed again.
Where the model is not on this machine, the plan is locked without its files,
and "vapp up --locked" refuses it until it is locked on a machine that has them.

A profile with a target is locked for that machine, unless --gpu or --memory name
another; --gpu= plans for this machine. A profile that was locked with flags is
locked with them again, until its target changes. "vapp up --locked" then also
refuses a machine on which the server would carry less than its lock says.

--check writes nothing. It prints a line for each difference, for each profile
of a folder without a lock, and for each lock without a profile; if there are
any, the exit code is 1. On a machine without the weights, missing files of the
model are not checked.`,
		Args: needArgs(1, -1, "profiles or folders"),
		RunE: func(c *cobra.Command, args []string) error {
			files, err := profileFiles(args)
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt)
			defer stop()
			l := &locker{c: c, ctx: ctx, target: target}
			l.hasher.Progress = func() func(engine.Progress) { return hashProgress(os.Stderr) }
			each := l.write
			if check {
				each = l.check
				if err := l.orphans(args); err != nil {
					return err
				}
			}
			for _, f := range files {
				if filepath.Base(f) == schema.PolicyFile {
					continue
				}
				if err := each(f); err != nil && ctx.Err() != nil {
					return ctx.Err()
				} else if err != nil {
					l.bad = true
					fmt.Fprint(c.ErrOrStderr(), formatError(err))
				}
			}
			if l.bad {
				return exitError(1)
			}
			return nil
		},
	}
	target.flags(c)
	c.Flags().BoolVar(&check, "check", false, "compare with the existing locks, write nothing")
	return c
}

// locker writes or checks the locks of profiles, one after the other. bad is set by the first
// problem.
type locker struct {
	c      *cobra.Command
	ctx    context.Context
	target target
	hasher lockfile.Hasher
	bad    bool
}

// lockedTarget returns the target of a command with a lock's flags.
func lockedTarget(f lock.Flags) target { return target{gpu: f.GPU, memory: f.Memory, here: f.Here} }

// now makes the lock of the profile as it is now, for the machine of the flags, else of the old
// lock's, else of the profile's target.
func (l *locker) now(file string, old *lock.Lock) (*lock.Lock, error) {
	profile, err := schema.Load(file)
	if err != nil {
		return nil, err
	}
	given := l.c.Flags().Changed("gpu") || l.c.Flags().Changed("memory")
	flags := lock.Flags{GPU: l.target.gpu, Memory: l.target.memory}
	flags.Here = given && flags == lock.Flags{} && profile.Target != nil
	if old != nil && !given {
		flags = old.FlagsFor(profile)
	}
	t := lockedTarget(flags)
	m, err := t.machine(l.c)
	if err != nil {
		return nil, err
	}
	p, err := appliance.PrepareProfile(profile, m)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	return l.hasher.Lock(l.ctx, p, old, flags, buildVersion())
}

// write writes the profile's lock file unless it is up to date.
func (l *locker) write(file string) error {
	old, err := lockfile.Read(file)
	if broken := (*lock.Error)(nil); err != nil && !errors.As(err, &broken) {
		return err
	}
	now, err := l.now(file, old)
	if err != nil {
		return err
	}
	text, err := now.Marshal()
	if err != nil {
		return err
	}
	if now.Checkpoint.Facts != string(engine.FromCheckpoint) {
		fmt.Fprintf(l.c.ErrOrStderr(), "%s: locked without the model's weights (planned from the %s); `vapp up --locked` needs a lock from where they are\n", file, now.Checkpoint.Facts)
	}
	name := lock.FileOf(file)
	if was, err := os.ReadFile(name); err == nil && string(was) == string(text) {
		fmt.Fprintf(l.c.OutOrStdout(), "%s: up to date\n", name)
		return nil
	}
	if err := lockfile.Replace(name, text); err != nil {
		return err
	}
	fmt.Fprintf(l.c.OutOrStdout(), "%s: written\n", name)
	return nil
}

// check prints how the profile differs from its lock.
func (l *locker) check(file string) error {
	old, err := lockfile.Read(file)
	if err != nil {
		return err
	}
	if old == nil {
		return fmt.Errorf("%s: not locked; write %s with `vapp lock`", file, lock.FileOf(file))
	}
	now, err := l.now(file, old)
	if err != nil {
		return err
	}
	drift := old.Compare(now)
	if absent, rest := lock.SplitAbsent(drift); len(absent) > 0 && now.Checkpoint.Facts != string(engine.FromCheckpoint) {
		drift = rest
		fmt.Fprintf(l.c.ErrOrStderr(), "%s: %d files of the model are not here and were not checked\n", file, len(absent))
	}
	for _, d := range drift {
		l.bad = true
		fmt.Fprintf(l.c.ErrOrStderr(), "%s: not as locked: %v\n", file, d)
	}
	return nil
}

// orphans prints the lock files in folders that have no profile.
func (l *locker) orphans(args []string) error {
	for _, dir := range args {
		if st, err := os.Stat(dir); err != nil || !st.IsDir() {
			continue
		}
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && path != dir && strings.HasPrefix(d.Name(), "."):
				return fs.SkipDir
			case d.IsDir() || !strings.HasSuffix(path, lock.Extension):
				return nil
			}
			profile := strings.TrimSuffix(path, lock.Extension) + ".cue"
			if _, err := os.Stat(profile); errors.Is(err, fs.ErrNotExist) {
				l.bad = true
				fmt.Fprintf(l.c.ErrOrStderr(), "%s: the profile %s is gone\n", path, profile)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
