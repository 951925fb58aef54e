// Command vapp plans and serves language models: one profile in, a planned, running, observable,
// reloadable server out. Its files hold flags, help texts and output of the commands; logic must
// not be here but in appliance and tools. It alone names concrete backends. Start reading at
// newRoot in main.go and up in up.go.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"vapp.dev/appliance/plan"
	"vapp.dev/schema"
)

// version is set by the build; without it the version of the module is used.
var version = ""

func main() { os.Exit(run(os.Args[1:])) }

// usageError is an invalid command line: exit code 2 and a reference to the help.
type usageError struct {
	err error
	cmd string
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// exitError ends the process with this code and prints nothing.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit %d", int(e)) }

func run(args []string) int {
	root := newRoot()
	root.SetArgs(vllmWords(args))
	err := root.Execute()
	var usage *usageError
	var code exitError
	var aborted abortedError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	case errors.As(err, &usage):
		fmt.Fprintf(os.Stderr, "vapp: %v\nRun '%s --help' for usage.\n", err, usage.cmd)
		return 2
	case errors.As(err, &aborted):
		fmt.Fprintf(os.Stderr, "vapp: %v\n", aborted)
		return 1
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(os.Stderr, "vapp: interrupted")
		return 130 // as shells do: 128 + SIGINT
	}
	fmt.Fprint(os.Stderr, formatError(err))
	return 1
}

// formatError formats an error for the terminal. An error with a position in a profile begins with
// it, as compilers do; a profile that does not fit is reported with all suggestions.
func formatError(err error) string {
	var short *plan.DoesNotFitError
	var contract *plan.ContractError
	var placed *schema.Error
	switch {
	case errors.As(err, &contract):
		return strings.TrimRight(fmt.Sprintf("%+v", contract), "\n") + "\n"
	case errors.As(err, &short):
		return strings.TrimRight(fmt.Sprintf("%+v", short), "\n") + "\n"
	case errors.As(err, &placed) && len(placed.List) > 0 && placed.List[0].Pos.Line > 0:
		return fmt.Sprintln(err)
	}
	return fmt.Sprintf("vapp: %v\n", err)
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "vapp",
		Short: "Plan and serve language models from one declarative profile",
		Long: `vapp turns a profile (one CUE file) into a running LLM server.

  vapp init DIR       make a folder with a first profile
  vapp vet  PROFILE   check a profile
  vapp plan PROFILE   show the memory and the capacity of its server
  vapp fit  MODEL     show on which devices it fits, and its capacity there
  vapp diff OLD NEW   show what changes between profiles, folders or commits
  vapp pull PROFILE   download its model from the Hugging Face hub
  vapp up   PROFILE   start the planned server
  vapp run  PROFILE   answer prompts without a server
  vapp chat PROFILE   chat with its model, or with a running server`,
		Version:           buildVersion(),
		SilenceUsage:      true,
		SilenceErrors:     true,
		PersistentPreRunE: checkMinimums,
	}
	cobra.AddTemplateFunc("driverLine", driverLine) // called when printed, because it opens the driver
	root.SetVersionTemplate("vapp {{.Version}}\n{{driverLine}}\n")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return &usageError{err, c.CommandPath()} })
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetHelpCommand(newHelp())
	bench := newBench()
	root.AddCommand(newVet(), newPlan(), newFit(), newDiff(), newLock(), newUp(), newRun(), newChat(), newPull(), newInit(), newImport(), newModels(), newDevices(), bench, newDialect(), newVersion(), newTemplateSandbox())
	onlyCommands(root)
	onlyCommands(bench)
	return root
}

// buildVersion returns the version for `vapp --version` and GET /version.
func buildVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}
