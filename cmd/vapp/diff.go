package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"

	"vapp.dev/tools/review"
)

func newDiff() *cobra.Command {
	var target target
	var revisions, cluster string
	var manifests manifestFlags
	var out diffOutput
	var took time.Duration
	c := &cobra.Command{
		Use:   "diff OLD NEW | diff --git A..B [PATH...] | diff --k8s MANIFESTS PROFILE",
		Short: "Show what changes between profiles: fields, reload classes, bytes, capacity",
		Long: `Diff compares two profiles, or the profiles of two folders by their paths, as a
running server would on reload: every field that differs with its reload class
(live, drain, structural, restart), memory and capacity before and after, and what
gets worse. Nothing is loaded.

For structural changes it prints how a running server would make them
(reload.structural): rebuild (the weights stay), beside (both engines at once) or
drain, why, and the gap to expect. No server is asked: the limit is the memory of
the machine or of the device, and the gap is a lower bound unless --load-took says
how long a load takes there.

  --git A..B    the profiles of two commits of this repository (A or B left out: HEAD)
  --git A...B   those of B since it branched off A
  --git A       those of the working tree since A

Without --gpu and --memory a profile that was locked for a device (vapp lock
--gpu) is planned for that device, one with a target for that, any other for this
machine.

  --k8s FILE    Kubernetes manifests, or values of the chart, in a file or a folder
                with what "vapp manifest PROFILE" would write

PATHs restrict --git to folders or files. Models that are not in the repository
are read from their present path. The policies of each side apply to its profiles.

The exit code is 0 if nothing changes, 1 if something does, and 2 if the
comparison fails, a profile of the new side cannot be planned, or a memory limit
is below the plan.`,
		Args: func(c *cobra.Command, args []string) error {
			switch {
			case c.Flags().Changed("k8s"):
				return needArgs(1, 1, "a profile")(c, args)
			case c.Flags().Changed("git"):
				return nil
			}
			return needArgs(2, 2, "two profiles or folders")(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			if out.markdown && out.json {
				return &usageError{errors.New("--markdown and --json: give one of them"), c.CommandPath()}
			}
			if c.Flags().Changed("k8s") {
				if c.Flags().Changed("git") || out != (diffOutput{}) {
					return &usageError{errors.New("--k8s: not with --git, --markdown, --json or --html"), c.CommandPath()}
				}
				manifests.target = target
				err := diffManifests(c, &manifests, args[0], cluster)
				if code := exitError(0); err != nil && !errors.As(err, &code) {
					fmt.Fprint(c.ErrOrStderr(), formatError(err))
					return exitError(2)
				}
				return err
			}
			if c.Flags().Changed("load-took") && took <= 0 {
				return &usageError{fmt.Errorf("--load-took %v: give the time that the server's log has, such as 42s", took), c.CommandPath()}
			}
			d := &comparer{c: c, flags: target, given: c.Flags().Changed("gpu") || c.Flags().Changed("memory"), loadTook: took}
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
				err = out.print(c, r)
			}
			var usage *usageError
			if errors.As(err, &usage) {
				usage.cmd = c.CommandPath()
				return err
			} else if err != nil && ctx.Err() != nil {
				return ctx.Err()
			} else if err != nil {
				fmt.Fprint(c.ErrOrStderr(), formatError(err))
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
	c.Flags().StringVar(&cluster, "k8s", "", "compare the plan with the Kubernetes manifests or chart values in this file or folder")
	c.Flags().DurationVar(&took, "load-took", 0, "how long the running server has loaded OLD's model, as its log says: the gap to expect is computed from it")
	c.Flags().BoolVar(&out.markdown, "markdown", false, "print a comment for a pull request")
	c.Flags().BoolVar(&out.json, "json", false, "print the review as JSON")
	c.Flags().StringVar(&out.html, "html", "", "write the review as one self-contained page to this file, in place of text")
	return c
}

// diffOutput is how a review is printed; the zero diffOutput is text.
type diffOutput struct {
	markdown, json bool
	html           string // a file
}

// print writes the review to the page if there is one, and to stdout as Markdown, as JSON or, without a page, as text.
func (o diffOutput) print(c *cobra.Command, r *review.Review) error {
	if o.markdown || o.json || o.html != "" { // stdout may go to a file, so the job's log needs the errors
		for _, change := range r.Changes {
			if change.Status == review.Broken {
				fmt.Fprintln(c.ErrOrStderr(), change.New.Err)
			}
		}
	}
	if o.html != "" {
		var page bytes.Buffer
		if err := r.HTML(&page); err != nil {
			return err
		}
		if err := os.WriteFile(o.html, page.Bytes(), 0o644); err != nil {
			return fmt.Errorf("--html: %w", err)
		}
	}
	switch {
	case o.markdown:
		return r.Markdown(c.OutOrStdout())
	case o.json:
		return r.JSON(c.OutOrStdout())
	case o.html != "":
		return nil
	}
	return r.Text(c.OutOrStdout())
}
