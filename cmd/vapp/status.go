package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"vapp.dev/appliance/auditlog"
	"vapp.dev/appliance/drift"
	"vapp.dev/appliance/plan"
	"vapp.dev/tools/console"
	"vapp.dev/tools/serverstatus"
)

// waitInterval is the time between two requests of vapp status --wait.
const waitInterval = 250 * time.Millisecond

func newStatus() *cobra.Command {
	var key, wait, profile string
	var limit time.Duration
	var json bool
	c := &cobra.Command{
		Use:   "status [URL]",
		Short: "Show whether a running server is what its profile declares and its plan gives",
		Long: `Status prints GET /admin/drift of a server: its phase, the profile in its files
and the one in force, the changes that wait for a restart, each kind of drift with
its remedy, and what was planned and measured. URL is http://localhost:8000 unless
it is given.

With --wait ready it asks again until the model is loaded, or the server fails,
drains or does not answer within --timeout.

The exit code tells scripts:

  0  ready, without drift
  1  an error, such as a wrong key or a server that is not vapp
  2  an invalid command line
  3  ready, with drift
  4  loading
  5  draining or failed
  6  no answer

  VAPP_API_KEY, OPENAI_API_KEY  the server's key, without --api-key`,
		Args: needArgs(0, 1, "at most one address"),
		RunE: func(c *cobra.Command, args []string) error {
			at := "http://localhost:8000"
			if len(args) == 1 {
				at = args[0]
			}
			if wait != "" && wait != "ready" {
				return &usageError{fmt.Errorf("--wait %q: give ready", wait), c.CommandPath()}
			}
			if wait == "" && c.Flags().Changed("timeout") {
				return &usageError{errors.New("--timeout is for --wait ready"), c.CommandPath()}
			}
			if !console.IsURL(at) {
				return &usageError{fmt.Errorf("%s is no address of a server; write http://HOST:PORT", at), c.CommandPath()}
			}
			client, err := console.NewClient(at, cmp.Or(key, os.Getenv("VAPP_API_KEY"), os.Getenv("OPENAI_API_KEY")))
			if err != nil {
				return &usageError{err, c.CommandPath()}
			}
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return status(ctx, c, client, profile, wait != "", limit, json)
		},
	}
	c.Flags().StringVar(&key, "api-key", "", "key of the server")
	c.Flags().StringVar(&profile, "profile", "", "name of the profile, where a server has several")
	c.Flags().StringVar(&wait, "wait", "", "wait until the server is in this state: ready")
	c.Flags().DurationVar(&limit, "timeout", 10*time.Minute, "how long --wait waits")
	c.Flags().BoolVar(&json, "json", false, "print JSON")
	return c
}

// status prints the report of a server. Its error is the exit code.
func status(ctx context.Context, c *cobra.Command, client *console.Client, profile string, wait bool, limit time.Duration, json bool) error {
	next := func() bool { return false }
	if wait {
		var stop func()
		next, stop = serverstatus.Every(ctx, waitInterval, limit)
		defer stop()
	}
	r, err := serverstatus.Wait(ctx, client, profile, next)
	switch {
	case ctx.Err() != nil:
		return context.Canceled
	case serverstatus.Lost(err):
		if c.Flags().NArg() == 0 {
			err = fmt.Errorf("%w; vapp status URL asks another server", err)
		}
		fmt.Fprintln(c.ErrOrStderr(), "vapp:", err)
		return exitError(serverstatus.Unreachable)
	case err != nil:
		return err
	case json:
		err = asJSON(c.OutOrStdout(), r)
	default:
		printStatus(c.OutOrStdout(), client.URL(), r)
	}
	if code := serverstatus.Code(r); err == nil && code != 0 {
		return exitError(code)
	}
	return err
}

// printStatus prints a report. Texts of the server cannot write to the terminal what is no text.
func printStatus(w io.Writer, url string, r drift.Report) {
	p := console.Printable
	state := p(r.Phase)
	if r.Why != "" {
		state += ": " + p(r.Why)
	}
	commit := ""
	if r.Declared.Commit != "" {
		commit = ", commit " + p(auditlog.Short(r.Declared.Commit))
	}
	drifts := "none"
	if r.Drift {
		drifts = "see below"
	}
	pairs(w, [][2]string{
		{"server", url + ", vapp " + p(r.Version)}, {"phase", state},
		{"declared", fmt.Sprintf("%s%s, hash %s, read %s ago", p(r.Declared.File), commit, p(auditlog.Short(r.Declared.Hash)), ago(r.At.Sub(r.Declared.ReadAt)))},
		{"in force", fmt.Sprintf("hash %s, plan %s, for %s", p(auditlog.Short(r.InForce.Hash)), p(auditlog.Short(r.InForce.Plan)), ago(r.At.Sub(r.InForce.Since)))},
		{"drift", drifts},
	})
	for _, f := range r.Findings {
		if !f.Drift {
			continue
		}
		since := ""
		if f.Since != nil {
			since = " for " + ago(r.At.Sub(*f.Since))
		}
		fmt.Fprintf(w, "\n%s%s: %s\n", p(f.Kind), since, indented(p(f.What)))
		if f.Kind == drift.ProfilePending && r.Restart != nil && r.Restart.Error != "" {
			fmt.Fprintf(w, "  a restart would fail: %s\n", indented(p(r.Restart.Error)))
		}
		fmt.Fprintf(w, "  remedy: %s\n", p(f.Remedy))
	}
	printFields(w, r.Fields)
	printMeasures(w, r.Measures)
}

// indented indents the lines after the first.
func indented(text string) string {
	return strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n  ")
}

// printFields prints a table of fields, in which "same" stands for the value of the column before. Without drift
// there is no column DRIFT.
func printFields(w io.Writer, list []drift.Field) {
	if len(list) == 0 {
		return
	}
	p := console.Printable
	cell := func(value, before string) string {
		if value != "" && value == before {
			return "same"
		}
		return cmp.Or(p(value), "-")
	}
	rows := [][]string{{"FIELD", "DECLARED", "IN FORCE", "PLANNED", "DRIFT", "WHERE"}}
	drifts := false
	for _, f := range list {
		where, class := "", ""
		if f.Line > 0 {
			where = fmt.Sprintf("%s:%d", p(f.File), f.Line)
		}
		if f.Drift {
			drifts, class = true, p(f.Class)
		}
		rows = append(rows, []string{p(f.Path), cell(f.Declared, ""), cell(f.InForce, f.Declared), cell(f.Planned, f.InForce), cmp.Or(class, "-"), cmp.Or(where, "-")})
	}
	if !drifts {
		for i, row := range rows {
			rows[i] = slices.Delete(row, 4, 5)
		}
	}
	fmt.Fprintln(w)
	table(w, "llllll", rows[0], rows[1:])
}

func printMeasures(w io.Writer, list []drift.Measure) {
	if len(list) == 0 {
		return
	}
	var rows [][]string
	for _, m := range list {
		show := plan.Size
		if m.Unit != "bytes" {
			show = func(n int64) string { return strconv.FormatInt(n, 10) }
		}
		measured, drifts := "unknown", "-"
		if m.Measured != nil {
			measured = show(*m.Measured)
		}
		if m.Drift {
			drifts = console.Printable(m.Kind)
		}
		rows = append(rows, []string{console.Printable(m.Item), show(m.Planned), measured, drifts, ago(time.Duration(m.Age * float64(time.Second)))})
	}
	fmt.Fprintln(w)
	table(w, "lrrlr", []string{"MEASURE", "PLANNED", "MEASURED", "DRIFT", "AGE"}, rows)
}

// ago formats an age to the second.
func ago(d time.Duration) string { return max(0, d).Round(time.Second).String() }
