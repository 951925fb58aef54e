// Command vapp plans and serves language models: one profile in, a planned,
// running, observable, reloadable server out.
package main

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the build; without that it is the module's.
var version = ""

func main() { os.Exit(run(os.Args[1:])) }

// usageError is a wrong command line: exit code 2 and a pointer to the help.
type usageError struct {
	err error
	cmd string
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// exitError ends the process with a code and without a further word.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit %d", int(e)) }

func run(args []string) int {
	root := newRoot()
	root.SetArgs(args)
	err := root.Execute()
	var usage *usageError
	var code exitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	case errors.As(err, &usage):
		fmt.Fprintf(os.Stderr, "vapp: %v\nRun '%s --help' for usage.\n", err, usage.cmd)
		return 2
	}
	fmt.Fprintf(os.Stderr, "vapp: %v\n", err)
	return 1
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "vapp",
		Short: "Plan and serve language models from one declarative profile",
		Long: `vapp turns a profile (CUE) into a running LLM server.

  vapp vet  PROFILE   say what is wrong with a profile
  vapp plan PROFILE   say what the server will hold in memory and how much it carries
  vapp up   PROFILE   start exactly that`,
		Version:       buildVersion(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetVersionTemplate("vapp {{.Version}}\n")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return &usageError{err, c.CommandPath()} })
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(newVet(), newPlan(), newUp(), newInit(), newBench(), newTemplateSandbox())
	return root
}

// needArgs is cobra's ExactArgs as a usageError; max < 0: no upper bound.
func needArgs(min, max int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) < min || max >= 0 && len(args) > max {
			return &usageError{fmt.Errorf("%s takes %s, not %d arguments", c.CommandPath(), what, len(args)), c.CommandPath()}
		}
		return nil
	}
}

// buildVersion is what `vapp --version` and GET /version say.
func buildVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}
