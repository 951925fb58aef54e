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

	"vapp.dev/appliance"
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
	if err := pickGPU(os.Getenv, os.Setenv); err != nil {
		fmt.Fprintln(os.Stderr, "vapp:", err)
		return 1
	}
	root := newRoot()
	root.SetArgs(vllmWords(args))
	text, code := errorText(root.Execute())
	fmt.Fprint(os.Stderr, text)
	return code
}

// errorText returns what is printed of the error that ends a command, and the exit code.
func errorText(err error) (text string, code int) {
	var usage *usageError
	var exit exitError
	var aborted abortedError
	switch {
	case err == nil:
		return "", 0
	case errors.As(err, &exit):
		return "", int(exit)
	case errors.As(err, &usage):
		return fmt.Sprintf("vapp: %v\nRun '%s --help' for usage.\n", err, usage.cmd), 2
	case errors.As(err, &aborted):
		return fmt.Sprintf("vapp: %v\n", aborted), 1
	case errors.Is(err, context.Canceled):
		return "vapp: interrupted\n", 130 // as shells do: 128 + SIGINT
	}
	return formatError(err), 1
}

// formatError formats an error for the terminal. An error with a position in a profile begins with
// it, as compilers do; a profile that does not fit is reported with all suggestions.
func formatError(err error) string {
	var short *plan.DoesNotFitError
	var contract *plan.ContractError
	var placed *schema.Error
	var several *appliance.ProfilesError
	var joint *plan.JointError
	switch {
	case errors.As(err, &several):
		text := ""
		for _, one := range several.List {
			text += formatError(one)
		}
		return text
	case errors.As(err, &joint):
		return strings.TrimRight(fmt.Sprintf("%+v", joint), "\n") + "\n"
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
  vapp fit  PROFILE   show on which devices it fits, and its capacity there
  vapp diff OLD NEW   show what changes between profiles, folders or commits
  vapp pull PROFILE   download its model from the Hugging Face hub
  vapp up   PROFILE   start the planned server
  vapp run  PROFILE   answer prompts without a server
  vapp chat PROFILE   chat with its model, or with a running server

plan, fit, up, run and chat also take a model in place of a profile: a .gguf file, a
folder, org/name of the Hugging Face hub, or a name of "vapp models".`,
		Version:           buildVersion(),
		SilenceUsage:      true,
		SilenceErrors:     true,
		PersistentPreRunE: checkMinimums,
	}
	cobra.AddTemplateFunc("driverLine", driverLine) // called when printed, because it opens the driver
	root.SetVersionTemplate("vapp {{.Version}}\n{{driverLine}}\n")
	root.SetFlagErrorFunc(flagError)
	wrapFlags(root)
	root.SetHelpCommand(newHelp())
	bench := newBench()
	root.AddCommand(newVet(), newPlan(), newFit(), newDiff(), newLock(), newManifest(), newUp(), newStatus(), newAudit(), newRun(), newChat(), newPull(), newInit(), newImport(), newModels(), newDevices(), bench, newDialect(), newDoctor(), newMan(), newVersion(), newTemplateSandbox(), agentCommand())
	onlyCommands(root)
	onlyCommands(bench)
	root.InitDefaultCompletionCmd()
	if c, _, err := root.Find([]string{"completion"}); err == nil && c != root {
		onlyCommands(c)
	}
	completeValues(root)
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
