package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"vapp.dev/appliance"
	"vapp.dev/appliance/hub"
	"vapp.dev/engine"
	"vapp.dev/schema"
)

// offlineFlag is the help of --offline.
const offlineFlag = "do not use the network: refuse a model that is not in the cache"

func newPull() *cobra.Command {
	return &cobra.Command{
		Use:   "pull PROFILE|NAME[@REVISION]",
		Short: "Download a model from the Hugging Face hub into its cache",
		Long: `Pull downloads the files that serving a model needs, and prints their path: config,
tokenizer, chat template, generation config, and the weights as safetensors or
as one GGUF file. NAME is org/name, or org/name:file.gguf where a repository
has several GGUF files.

The cache is the one of huggingface_hub, and both programs use each other's
files. An interrupted download is resumed. Sizes and hashes are checked. Pull
gets the newest commit of a branch; "vapp up" and "vapp run" download only models
that are not in the cache.

  HF_HUB_CACHE, HF_HOME   path of the cache (~/.cache/huggingface/hub)
  HF_TOKEN                token for gated and private models; else the token file
  HF_ENDPOINT             another hub
  HF_HUB_OFFLINE=1        do not use the network
  HF_HUB_DOWNLOAD_TIMEOUT seconds without a byte before a request is repeated (30)`,
		Args: needArgs(1, 1, "a profile or the name of a model"),
		RunE: func(c *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			n, format, err := modelOf(args[0])
			if path := (*pathError)(nil); errors.As(err, &path) {
				fmt.Fprintln(c.ErrOrStderr(), err)
				return nil
			} else if err != nil {
				return err
			}
			p, err := hubClient(localMachine().Hub).Open(ctx, n, hub.Want{Format: format})
			if err != nil {
				return appliance.WithNear(err)
			}
			got, err := p.Weights(ctx)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), got.Path)
			return err
		},
	}
}

// pathError means that the profile's model is a path, so that nothing is fetched.
type pathError struct{ profile, source string }

func (e *pathError) Error() string {
	return fmt.Sprintf("%s: model.source %s is a path; there is nothing to fetch", e.profile, e.source)
}

// modelOf returns the model that the argument names, or that the profile names, with its
// loadFormat.
func modelOf(arg string) (n hub.Name, format string, err error) {
	if _, err := os.Stat(arg); err != nil && !strings.HasSuffix(arg, ".cue") {
		n, ok := hub.ParseName(arg)
		if !ok {
			return n, "", fmt.Errorf("%q is neither a profile nor org/name of a hub", arg)
		}
		return n, "auto", nil
	}
	p, err := schema.Load(arg)
	if err != nil {
		return n, "", err
	}
	n, ok, err := appliance.HubName(p)
	if err == nil && !ok {
		err = &pathError{arg, p.Model.Source}
	}
	return n, p.Model.LoadFormat, err
}

// hubClient returns a client of the hub that shows its progress.
func hubClient(s hub.Settings) *hub.Client {
	c := hub.NewClient(s, "vapp/"+buildVersion())
	c.Say = func(text string) { fmt.Fprintln(os.Stderr, text) }
	show := progress(os.Stderr, "Fetching weights")
	c.Progress = func(p hub.Progress) { show(engine.Progress{Done: p.Done, Total: p.Total}) }
	return c
}

// obtain fetches the model of a profile with the client unless it is in the cache.
func obtain(ctx context.Context, profile string, m appliance.Machine, offline bool, client func(hub.Settings) *hub.Client) error {
	m.Hub.Offline = m.Hub.Offline || offline
	return appliance.Obtain(ctx, profile, m, client(m.Hub))
}

// untilSignal calls fetch for a server: a signal stops it, as it stops a server that is loading.
func untilSignal(say *startLog, fetch func(context.Context) error) (stopped bool, err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err = fetch(ctx)
	if ctx.Err() != nil {
		say.line("stopped while fetching the model")
		return true, nil
	}
	return false, err
}
