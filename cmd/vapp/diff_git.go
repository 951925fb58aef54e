package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"vapp.dev/tools/review"
	"vapp.dev/tools/review/gittree"
)

// revisions compares the profiles of two commits, or of one commit and the working tree.
func (d *comparer) revisions(ctx context.Context, text string, paths []string) (*review.Review, error) {
	span, err := gittree.ParseRange(text)
	if wrong := (*gittree.RangeError)(nil); errors.As(err, &wrong) {
		return nil, &usageError{err: err}
	} else if err != nil {
		return nil, err
	}
	repo, err := gittree.Open(ctx)
	if err != nil {
		return nil, err
	}
	within, err := repo.Scope(paths)
	if err != nil {
		return nil, err
	}
	ids, err := repo.Resolve(span)
	if err != nil {
		return nil, err
	}
	names := [2]string{span.Old, span.New}
	if span.WorkingTree {
		names[1] = "the working tree"
	}
	temp, err := os.MkdirTemp("", "vapp-diff-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temp)
	sides := [2]side{{name: names[0]}, {name: names[1]}}
	pairs := map[string]*pair{}
	for i, id := range ids {
		t, err := repo.LayOut(id, filepath.Join(temp, fmt.Sprint(i)))
		if err != nil {
			return nil, err
		}
		sides[i].tree = t
		addWithin(pairs, i, t.Root, t.Profiles(), within)
	}
	if span.WorkingTree {
		files, err := repo.WorkingProfiles()
		if err != nil {
			return nil, err
		}
		addWithin(pairs, 1, repo.Top, files, within)
	}
	return d.compare(ctx, sides, ordered(pairs))
}

// addWithin adds the files below root that within accepts to one side of pairs.
func addWithin(pairs map[string]*pair, side int, root string, files []string, within func(string) bool) {
	for _, f := range files {
		if within(f) {
			add(pairs, f, side, filepath.Join(root, filepath.FromSlash(f)))
		}
	}
}
