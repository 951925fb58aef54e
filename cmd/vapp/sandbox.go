package main

import (
	"os"

	"github.com/spf13/cobra"

	"vapp.dev/engine/tokenizer"
)

// sandboxName is the hidden command that renders one template, or compiles one grammar, for its
// parent.
const sandboxName = "template-sandbox"

func newTemplateSandbox() *cobra.Command {
	return &cobra.Command{
		Use:    sandboxName,
		Short:  "Render one template, or try one grammar, for the server that started this process",
		Hidden: true,
		Args:   needArgs(0, 0, "no arguments"),
		RunE: func(*cobra.Command, []string) error {
			return tokenizer.ServeSandbox(os.Stdin, os.Stdout)
		},
	}
}

// templateSandbox returns a sandbox that starts this executable with the hidden command.
func templateSandbox() (tokenizer.Sandbox, error) {
	exe, err := os.Executable()
	return tokenizer.Sandbox{Exe: exe, Args: []string{sandboxName}}, err
}
