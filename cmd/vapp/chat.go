package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"vapp.dev/appliance"
	"vapp.dev/tools/console"
)

// chatOptions are the flags of chat.
type chatOptions struct {
	key, model, system, backend         string
	offline, verbose, noStats, noRecord bool
}

func newChat() *cobra.Command {
	var o chatOptions
	c := &cobra.Command{
		Use:   "chat [URL|PROFILE|MODEL]",
		Short: "Chat on this terminal with a server, or with a model of this machine",
		Long: `Chat sends what you type to a server and prints the reply while it is generated.

With no argument the server is http://localhost:8000. URL is another server of the
OpenAI API: vapp, vLLM, llama.cpp or Ollama. With a profile, chat plans and loads
the model as "vapp up" does, on a free port that only this chat can use, and stops
it at the end.

/help lists the commands: settings, images, saving and loading, tokens, asking again.
/image FILE sends an image with the next message, to a model that takes images. Tab
completes commands and files. A text of several lines is pasted, or begins and ends
with """. Ctrl-C stops a reply; Ctrl-D or /bye leaves.

Standard input may be a pipe: each line is one message, replies are plain text, and
the exit code is 1 if a line failed.

  VAPP_API_KEY, OPENAI_API_KEY  the server's key, without --api-key
  NO_COLOR, TERM=dumb           without colours; without the line editor

Lines that you typed are kept in vapp/chat-history of XDG_STATE_HOME
(~/.local/state), readable by you only.

` + argHelp,
		Args: needArgs(0, 1, "one address, profile or model"),
	}
	f := c.Flags()
	f.StringVar(&o.key, "api-key", "", "key of the server")
	f.StringVar(&o.model, "model", "", "model of the server (default: the first that it lists)")
	f.StringVar(&o.system, "system", "", "system message")
	f.BoolVar(&o.offline, "offline", false, offlineFlag)
	f.BoolVar(&o.verbose, "verbose", false, "print the log of the profile's server")
	f.BoolVar(&o.noStats, "no-stats", false, "do not print the speed after each reply")
	f.BoolVar(&o.noRecord, "no-history", false, "do not read or write the file of typed lines")
	backendFlag(c, &o.backend)
	profileFlags(c, false)
	samplingFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		values := samplingParams(c)
		if o.system != "" {
			values["system"] = o.system
		}
		at := "http://localhost:8000"
		if len(args) == 1 {
			at = args[0]
		}
		ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGTERM)
		defer stop()
		signals, interrupts := make(chan os.Signal, 1), make(chan struct{}, 1)
		signal.Notify(signals, os.Interrupt)
		defer signal.Stop(signals)
		go func() {
			for range signals {
				select {
				case interrupts <- struct{}{}:
				default:
				}
			}
		}()
		if console.IsURL(at) {
			for _, name := range []string{"backend", "offline", "verbose", "print-profile", "set", "max-model-len", "max-num-seqs", "kv-cache-memory", "gpu-memory-utilization"} {
				if c.Flags().Changed(name) {
					return &usageError{fmt.Errorf("--%s is for a profile or a model; the server at %s has its own", name, at), c.CommandPath()}
				}
			}
			return o.talk(ctx, at, cmp.Or(o.key, os.Getenv("VAPP_API_KEY"), os.Getenv("OPENAI_API_KEY")), values, interrupts)
		}
		if o.key != "" {
			return &usageError{errors.New("--api-key is for a URL; the server of a profile has a key of its own"), c.CommandPath()}
		}
		return o.own(ctx, c, at, values, interrupts)
	}
	return c
}

// own serves a profile for this chat only.
func (o chatOptions) own(ctx context.Context, c *cobra.Command, arg string, values map[string]any, interrupts chan struct{}) error {
	machine, err := withBackend(c, o.backend)
	if err != nil {
		return err
	}
	profile := arg
	stopped, err := untilSignal(&startLog{to: os.Stderr}, func(ctx context.Context) (err error) {
		if profile, machine, err = profileArg(c, arg, machine, argUse{fetch: true, offline: o.offline, ctx: ctx}); err != nil {
			return err
		}
		return obtain(ctx, profile, machine, o.offline, hubClient)
	})
	if stopped || err != nil {
		return err
	}
	box, err := templateSandbox()
	if err != nil {
		return err
	}
	log := io.Discard
	if o.verbose {
		log = os.Stderr
	}
	key, ready := rand.Text(), make(chan struct{})
	a, err := appliance.New(appliance.Config{
		Profile: profile, Machine: machine, Version: buildVersion(), Log: log, Progress: loadProgress(os.Stderr), Sandbox: box,
		PrivateKey: key, OnReady: func() { close(ready) },
	})
	if err != nil {
		return err
	}
	serving, drain := context.WithCancel(ctx)
	defer drain()
	ended := make(chan error, 1)
	go func() { ended <- a.Run(serving) }()
	select {
	case err := <-ended:
		return err
	case <-interrupts:
		drain()
		return errors.Join(context.Canceled, <-ended)
	case <-ready:
	}
	err = o.talk(ctx, "http://"+a.Addr().String(), key, values, interrupts)
	drain()
	return errors.Join(err, <-ended)
}

// talk chats with the server at an address.
func (o chatOptions) talk(ctx context.Context, at, key string, values map[string]any, interrupts <-chan struct{}) error {
	client, err := console.NewClient(at, key)
	if err != nil {
		return err
	}
	if terminal, err := term.GetState(int(os.Stdin.Fd())); err == nil {
		defer context.AfterFunc(ctx, func() { leave(terminal) })()
	} else {
		defer context.AfterFunc(ctx, func() { leave(nil) })()
	}
	model := console.Model{ID: o.model}
	asking, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-interrupts:
			cancel()
		case <-asking.Done():
		}
	}()
	list, err := client.Models(asking)
	cancel()
	if lost := (*console.LostError)(nil); errors.As(err, &lost) {
		return fmt.Errorf("%w; start a server (vapp up PROFILE), or give its URL or a profile: vapp chat PROFILE", err)
	} else if err != nil && o.model == "" {
		return err
	}
	for _, m := range list {
		if m.ID == o.model || o.model == "" {
			model = m
			break
		}
	}
	terminal, dumb := isTerminal(os.Stdout), os.Getenv("TERM") == "dumb"
	interactive := terminal && isTerminal(os.Stdin)
	var in console.Input
	if interactive && !dumb {
		path := ""
		if !o.noRecord {
			path = console.HistoryPath()
		}
		in = console.NewEditor(console.OpenHistory(path))
	} else {
		in = console.NewLines(os.Stdin, os.Stdout, interrupts)
	}
	return console.New(console.Config{
		Client: client, Model: model, Values: values, In: in, Out: os.Stdout, Err: os.Stderr, Interrupts: interrupts,
		Interactive: interactive, Terminal: terminal, Color: !dumb && os.Getenv("NO_COLOR") == "", Stats: !o.noStats,
	}).Run(ctx)
}

// leave ends the process for SIGTERM while a line is read, which nothing else interrupts. terminal is
// the state to restore; nil: there is none.
func leave(terminal *term.State) {
	if terminal != nil {
		_ = term.Restore(int(os.Stdin.Fd()), terminal) // the process ends in any case
	}
	os.Exit(128 + int(syscall.SIGTERM))
}
