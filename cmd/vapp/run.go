package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"vapp.dev/appliance"
	"vapp.dev/appliance/batch"
	"vapp.dev/tools/console"
)

// runOptions are the flags of run.
type runOptions struct {
	prompts []string // --prompt; each is one prompt
	images  []string // --image; files
	file    string   // --prompts
	jsonl   bool
	raw     bool
	system  string
	output  string
	offline bool
	backend string
}

func newRun() *cobra.Command {
	var o runOptions
	c := &cobra.Command{
		Use:   "run PROFILE|MODEL",
		Short: "Answer prompts without a server",
		Long: `Run plans and loads the model as "vapp up" does, answers prompts and ends.

The answer to a single --prompt is printed as text while it is generated. Several
prompts, or --prompts FILE with one prompt per line, are batched: each result is a
line of JSON on standard output, or in the file --output, in the order of the
prompts. "-" reads standard input: --prompt - one prompt, --prompts - lines.

FILE may be JSON Lines (its name ends with .jsonl, or --jsonl). A line is

  {"prompt": "…"} or {"messages": [{"role": "user", "content": "…"}]}

with any parameter of the API ("max_tokens": 64) and an optional "custom_id" that
the result repeats, or a request in the format of OpenAI's batch API:

  {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": {…}}

A prompt is the user's message of a chat. With --raw, or if the model has no chat
template, it is a text to complete. Sampling parameters come from the line, else
from flags, the profile, or the model's generation_config.json.

--image FILE puts an image before the text of a single --prompt. The profile must
allow images (multimodal.limits.image).

A model of the Hugging Face hub is downloaded first, unless it is in the cache
("vapp help pull").

If the profile names a reasoning parser, reasoning is dimmed on a terminal, in
"reasoning" in JSON, and omitted from other text.

Speeds are printed to standard error at the end. If a prompt fails, its result has
the error, the other prompts are answered, and the exit code is 1. Ctrl-C prints
the finished results and exits with code 130.

` + argHelp,
		Args: func(c *cobra.Command, args []string) error {
			err := needArgs(1, 1, "one profile or model")(c, args)
			if wrong, ok := err.(*usageError); ok && len(args) > 1 {
				wrong.err = fmt.Errorf("%w; give a prompt as --prompt TEXT", wrong.err)
			}
			return err
		},
	}
	flags := c.Flags()
	flags.StringArrayVar(&o.prompts, "prompt", nil, "a prompt; may be repeated; - reads one from standard input")
	flags.StringArrayVar(&o.images, "image", nil, "an image for the prompt, of a model that takes images; may be repeated")
	flags.StringVar(&o.file, "prompts", "", "file with one prompt per line, or JSON Lines; - is standard input")
	flags.BoolVar(&o.jsonl, "jsonl", false, "the file of --prompts is JSON Lines, whatever its name")
	flags.BoolVar(&o.raw, "raw", false, "complete the prompts, without the chat template")
	flags.StringVar(&o.system, "system", "", "system message of each chat that has none")
	flags.StringVarP(&o.output, "output", "o", "", "file for the results, as JSON Lines")
	flags.BoolVar(&o.offline, "offline", false, offlineFlag)
	backendFlag(c, &o.backend)
	profileFlags(c, false)
	samplingFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		form := batch.Form{Raw: o.raw, System: o.system, Params: samplingParams(c)}
		if printed, _ := c.Flags().GetBool("print-profile"); printed {
			o.prompts, o.file = []string{""}, "" // none are answered
		}
		if err := o.check(); err != nil {
			return &usageError{err, c.CommandPath()}
		}
		for _, file := range o.images {
			url, err := console.ImageURL(file)
			if err != nil {
				return err
			}
			form.Images = append(form.Images, url)
		}
		return o.run(c, args[0], form)
	}
	return c
}

// check refuses conflicting flags.
func (o runOptions) check() error {
	stdin := 0
	for _, p := range append([]string{o.file}, o.prompts...) {
		if p == "-" {
			stdin++
		}
	}
	switch {
	case len(o.prompts) == 0 && o.file == "":
		return errors.New("run needs prompts: give --prompt TEXT or --prompts FILE (- is standard input)")
	case len(o.prompts) > 0 && o.file != "":
		return errors.New("give either --prompt or --prompts")
	case stdin > 1:
		return errors.New("standard input can be read once: give one -")
	case o.jsonl && o.file == "":
		return errors.New("--jsonl needs --prompts FILE")
	case len(o.images) > 0 && (len(o.prompts) != 1 || o.raw):
		return errors.New("--image belongs to one --prompt of a chat, without --raw; in JSON Lines, messages have image_url parts")
	case o.raw && o.system != "":
		return errors.New("--system and --raw: give one of them; --raw has no chat messages")
	}
	return nil
}

// run answers the prompts of the flags.
func (o runOptions) run(c *cobra.Command, arg string, form batch.Form) error {
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM, drainSignal)
	defer stop()
	context.AfterFunc(ctx, stop) // restore the default handler: a second signal ends the process
	machine, err := withBackend(c, o.backend)
	if err != nil {
		return err
	}
	profile, machine, err := profileArg(c, arg, machine, argUse{fetch: true, offline: o.offline, ctx: ctx})
	if err != nil {
		return err
	}
	if err := obtain(ctx, profile, machine, o.offline, hubClient); err != nil {
		return err
	}
	if handled, err := rankedAt(c, profile, &machine); handled || err != nil {
		return err
	}
	machine.Ranks.Drain = stop
	input, err := o.read(c.InOrStdin()) // on rank 0, which has the standard input
	if err != nil {
		return err
	}
	p, err := appliance.Prepare(profile, machine)
	if err != nil {
		return err
	}
	defer p.Close()
	most := 0
	if m := p.Profile.Multimodal; m != nil {
		most = m.Limits.Image
	}
	if len(o.images) > most { // before the model is loaded
		return fmt.Errorf("--image: %s allows %d image(s) in a request (multimodal.limits.image); given: %d", profile, most, len(o.images))
	}
	if target, machine := p.OffTarget(); target != "" {
		fmt.Fprintf(c.ErrOrStderr(), "%s: this machine is not the profile's target: %s, not %s\n", profile, machine, target)
	}
	box, err := templateSandbox()
	if err != nil {
		return err
	}
	results, err := o.results(c.OutOrStdout())
	if err != nil {
		return err
	}
	m, err := appliance.OpenOffline(ctx, p, appliance.OfflineConfig{Progress: loadProgress(os.Stderr), Sandbox: box})
	if err != nil {
		return errors.Join(err, results.Close())
	}
	defer m.Close()
	for _, w := range m.Warnings {
		fmt.Fprintln(os.Stderr, "vapp:", w)
	}
	form.Raw = form.Raw || m.Settings.Template == nil
	items := input.items(form)
	s := session{
		runner: batch.Runner{Service: m, Settings: &m.Settings, Slots: m.Slots},
		out:    results, err: os.Stderr, terminal: isTerminal(results.Writer),
	}
	if len(o.prompts) == 1 && o.output == "" {
		err = s.one(ctx, items[0])
	} else {
		err = s.many(ctx, items)
	}
	return errors.Join(err, results.Close())
}

// promptInput is the prompts of the flags, before they become items.
type promptInput struct {
	prompts []string
	text    []byte // content of --prompts
	jsonl   bool
	file    bool
}

// maxPrompts bounds the bytes of prompts, because all are kept in memory.
const maxPrompts = 1 << 30

// read reads the prompts. It runs before anything is loaded.
func (o runOptions) read(stdin io.Reader) (promptInput, error) {
	in := promptInput{prompts: o.prompts, file: o.file != "", jsonl: o.jsonl}
	if !in.file {
		for i, p := range in.prompts {
			if p == "-" {
				text, err := readPrompts(stdin, "standard input")
				if err != nil {
					return in, err
				}
				in.prompts[i] = strings.TrimRight(string(text), "\r\n")
			}
		}
		return in, nil
	}
	if ext := filepath.Ext(o.file); ext == ".jsonl" || ext == ".ndjson" {
		in.jsonl = true
	}
	if o.file == "-" {
		text, err := readPrompts(stdin, "standard input")
		in.text = text
		return in, err
	}
	f, err := os.Open(o.file)
	if err != nil {
		return in, unreadable(o.file, err)
	}
	defer f.Close()
	in.text, err = readPrompts(f, o.file)
	return in, err
}

func readPrompts(r io.Reader, name string) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxPrompts+1))
	switch {
	case err != nil:
		return nil, unreadable(name, err)
	case len(text) > maxPrompts:
		return nil, fmt.Errorf("%s: more than %d bytes of prompts; split them", name, maxPrompts)
	case len(strings.TrimSpace(string(text))) == 0:
		return nil, fmt.Errorf("%s: no prompts", name)
	}
	return text, nil
}

// items converts the prompts to requests.
func (in promptInput) items(f batch.Form) []batch.Item {
	switch {
	case in.jsonl:
		return f.JSONL(in.text)
	case in.file:
		return f.Lines(in.text)
	}
	var out []batch.Item
	for _, p := range in.prompts {
		out = append(out, f.Text(p))
	}
	return out
}

// resultFile is the destination of results.
type resultFile struct {
	io.Writer
	file *os.File // nil: standard output, which is not closed
}

// results opens --output. It runs before anything is loaded.
func (o runOptions) results(stdout io.Writer) (*resultFile, error) {
	if o.output == "" {
		return &resultFile{Writer: stdout}, nil
	}
	f, err := os.Create(o.output)
	if err != nil {
		return nil, unreadable(o.output, err)
	}
	return &resultFile{Writer: f, file: f}, nil
}

// Close closes the file of --output and returns write errors.
func (r *resultFile) Close() error {
	if r.file == nil {
		return nil
	}
	return r.file.Close()
}

func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// rate formats a count per second.
func rate(n int, d time.Duration) string {
	if n <= 0 || d <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f tokens/s", float64(n)/d.Seconds())
}
