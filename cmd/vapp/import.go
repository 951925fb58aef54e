package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"vapp.dev/appliance"
	"vapp.dev/schema"
	"vapp.dev/tools/importer"
)

// importFlags are the output options, and settings that the imported command does not have.
type importFlags struct {
	out, name, container string
	force                bool
}

func newImport() *cobra.Command {
	var f importFlags
	c := &cobra.Command{
		Use:   "import COMMAND... | import -",
		Short: "Convert a command line of another server to a profile",
		Long: `Import reads a command that starts vLLM, llama-server, SGLang, TGI or Ollama and
writes a profile with the same meaning, with a comment for each flag that has no
counterpart. It accepts

  vapp import "vllm serve MODEL --max-model-len 8K"     a quoted command line
  vapp import vllm serve MODEL --max-model-len 8K       the same as words
  vapp import "docker run ... vllm/vllm-openai --model MODEL ..."
  vapp import "python -m vllm.entrypoints.openai.api_server --model MODEL ..."
  vapp import "llama-server -m FILE.gguf -c 8192 -ngl 99"
  vapp import "python -m sglang.launch_server --model-path MODEL ..."
  vapp import "text-generation-launcher --model-id MODEL ..."

and on standard input, as "-", a script, a Dockerfile, a Kubernetes or Compose
manifest, a Modelfile of Ollama, a list of arguments, or the file of vLLM's
--config:

  kubectl get deploy x -o yaml | vapp import -
  vapp import - -o x.cue < Dockerfile

The profile is written to standard output, or to the file of -o. A summary follows
on standard error: the fields, what was dropped, and whether the profile can be
planned and run here. Nothing is started and nothing is downloaded.

Flags of vapp come before the command, or after it where it is one quoted argument.
A flag that the program does not have, and a value that only your shell can expand,
are errors with their position. API keys are never copied: the profile names the
environment variable for them.`,
		Args: needArgs(1, -1, "a command line, or - for standard input"),
	}
	c.Flags().SetInterspersed(false)
	c.Flags().StringVarP(&f.out, "output", "o", "", "write to this file, which must not exist")
	c.Flags().BoolVar(&f.force, "force", false, "overwrite the file of -o")
	c.Flags().StringVar(&f.name, "name", "", "name of the profile (default: derived from the model)")
	c.Flags().StringVar(&f.container, "container", "", "name of the container, where several of a manifest run a server")
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) > 1 && (args[0] == "-" || strings.ContainsAny(args[0], " \t\n")) {
			if err := c.Flags().Parse(args[1:]); err != nil {
				return &usageError{err, c.CommandPath()}
			}
			if c.Flags().NArg() > 0 {
				return &usageError{fmt.Errorf("import takes one quoted command, or the words of one; %q stands behind it", c.Flags().Arg(0)), c.CommandPath()}
			}
			args = args[:1]
		}
		return f.run(c, args)
	}
	return c
}

func (f *importFlags) run(c *cobra.Command, args []string) error {
	o := importer.Options{Name: f.name, Container: f.container}
	var got *importer.Result
	var err error
	if args[0] == "-" {
		data, readErr := io.ReadAll(io.LimitReader(c.InOrStdin(), 2<<20))
		if readErr != nil {
			return fmt.Errorf("standard input: %w", readErr)
		}
		got, err = importer.Text("stdin", data, o)
	} else {
		o.Stdin = c.InOrStdin()
		got, err = importer.Args(args, o)
	}
	if err != nil {
		if st, statErr := os.Stat(args[0]); statErr == nil && len(args) == 1 && !st.IsDir() {
			return fmt.Errorf("%s: a file; give it as vapp import - < %s", args[0], args[0])
		}
		return printProblems(c, err)
	}
	if f.out == "" {
		_, err = c.OutOrStdout().Write(got.Text)
	} else {
		err = f.save(got.Text)
	}
	if err == nil {
		f.summary(c, got)
	}
	return err
}

// summary prints what was imported to standard error, and whether the profile can be planned and run.
func (f *importFlags) summary(c *cobra.Command, r *importer.Result) {
	w := c.ErrOrStderr()
	fmt.Fprintf(w, "imported from %s: %d fields set: %s\n", r.Program, len(r.Fields), strings.Join(r.Fields, ", "))
	if len(r.Dropped) > 0 {
		fmt.Fprintf(w, "%d dropped, each with the reason in a comment: %s\n", len(r.Dropped), strings.Join(r.Dropped, ", "))
	}
	planned, runs := plannable(cmp.Or(f.out, "imported.cue"), r.Text)
	for _, line := range []struct {
		what string
		err  error
	}{{"planned", planned}, {"run here", runs}} {
		if line.err == nil {
			fmt.Fprintf(w, "can be %s: yes\n", line.what)
			continue
		}
		reason, _, _ := strings.Cut(line.err.Error(), "\n")
		fmt.Fprintf(w, "can be %s: no: %s\n", line.what, reason)
		return
	}
}

// plannable returns why the profile cannot be planned on this machine, and why it cannot be run.
func plannable(name string, text []byte) (planned, runs error) {
	p, err := schema.Parse(name, text)
	if err != nil {
		return err, err
	}
	prepared, err := appliance.PrepareProfile(p, localMachine())
	if err != nil {
		return err, err
	}
	defer prepared.Close()
	if err := prepared.Refuse(); err != nil {
		return nil, err
	}
	if err := prepared.Model.Loadable(); err != nil {
		return nil, err
	}
	return nil, prepared.Plan.CheckFree(prepared.Plan.Facts.FreeBytes)
}

// printProblems prints each problem of a command line on its own line.
func printProblems(c *cobra.Command, err error) error {
	var e *importer.Error
	if !errors.As(err, &e) {
		return err
	}
	for _, p := range e.List {
		fmt.Fprintf(c.ErrOrStderr(), "vapp: %s\n", p)
	}
	return exitError(1)
}

// save writes the profile's file. Without --force it must not exist.
func (f *importFlags) save(text []byte) error {
	mode := os.O_WRONLY | os.O_CREATE | os.O_EXCL
	if f.force {
		mode = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	}
	file, err := os.OpenFile(f.out, mode, 0o644)
	switch {
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("%s: is there already; --force overwrites it", f.out)
	case err != nil:
		return unreadable(f.out, err)
	}
	if _, err = file.Write(text); err != nil {
		file.Close()
		return err
	}
	return file.Close()
}
