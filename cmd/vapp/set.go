package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"vapp.dev/schema"
)

// shorthand is a flag with vLLM's name that stands for --set of one field.
type shorthand struct {
	flag, path, help string
	serve            bool // of the HTTP server
	list             bool // the field is a list; the flag may be repeated
	comma            bool // and a value may have several elements
}

var shorthands = []shorthand{
	{flag: "port", path: "serve.port", help: "`port` to listen on; 0: any free port", serve: true},
	{flag: "host", path: "serve.host", help: "`host` to listen on", serve: true},
	{flag: "served-model-name", path: "serve.servedModelName", help: "model `name` that requests give; may be repeated or have commas", serve: true, list: true, comma: true},
	{flag: "api-key", path: "serve.apiKeys", help: "`key` that clients must send; may be repeated; never printed", serve: true, list: true},
	{flag: "max-model-len", path: "maxModelLen", help: "`tokens` of a prompt and its reply: 8192, 8K (1024-fold), 8k (1000-fold) or auto"},
	{flag: "max-num-seqs", path: "scheduler.maxNumSeqs", help: "`sequences` that run at the same time"},
	{flag: "kv-cache-memory", path: "memory.kvCache", help: "size of the KV cache: `bytes`, or such as 4GiB"},
	{flag: "gpu-memory-utilization", path: "memory.utilization", help: "`share` of the device's memory that the server may take, such as 0.9"},
}

// setFlags adds --set and the shorthands that mean something to the command; serve: also those of
// the HTTP server.
func setFlags(c *cobra.Command, serve bool) {
	c.Flags().StringArray("set", nil, "replace a field of the profile: `path=value`, such as scheduler.maxNumSeqs=8; may be repeated")
	for _, s := range shorthands {
		if s.serve && !serve {
			continue
		}
		help := s.help + " (--set " + s.path + ")"
		if s.list {
			c.Flags().StringArray(s.flag, nil, help)
		} else {
			c.Flags().Var(&onceValue{}, s.flag, help)
		}
	}
}

// onceValue is a text flag that may be given once.
type onceValue struct {
	text  string
	given bool
}

func (v *onceValue) String() string { return v.text }
func (v *onceValue) Type() string   { return "string" }
func (v *onceValue) Set(text string) error {
	if v.given {
		return fmt.Errorf("given twice, the first time as %q; give it once", v.text)
	}
	v.text, v.given = text, true
	return nil
}

// overrides returns what --set and the shorthands of the command replace. A field that two of them
// set is refused.
func overrides(c *cobra.Command) ([]schema.Override, error) {
	var list []schema.Override
	refuse := func(format string, args ...any) ([]schema.Override, error) {
		return nil, &usageError{fmt.Errorf(format, args...), c.CommandPath()}
	}
	if c.Flags().Lookup("set") == nil {
		return nil, nil
	}
	texts, _ := c.Flags().GetStringArray("set")
	for _, text := range texts {
		o, err := schema.ParseOverride(text)
		if err != nil {
			return refuse("--set %w", err)
		}
		list = append(list, o)
	}
	for _, s := range shorthands {
		f := c.Flags().Lookup(s.flag)
		if f == nil || !f.Changed {
			continue
		}
		values := s.values(c)
		if len(values) == 0 || slices.ContainsFunc(values, func(v string) bool { return strings.TrimSpace(v) == "" }) {
			return refuse("--%s is empty; give a value, or leave the flag out", s.flag)
		}
		o := schema.Override{Path: s.path, Value: s.value(values), From: "--" + s.flag}
		if !schema.Secret(s.path) {
			o.From += "=" + strings.Join(values, ",")
		}
		list = append(list, o)
	}
	all := list
	if f := c.Flags().Lookup("backend"); f != nil && f.Changed { // Machine.Backend replaces it
		all = append(slices.Clone(list), schema.Override{Path: "backend", From: "--backend=" + f.Value.String()})
	}
	for i, a := range all {
		for _, b := range all[:i] {
			if schema.Overlap(a.Path, b.Path) {
				if a.Path == b.Path {
					return refuse("%s and %s set the same field; give one of them", b.From, a.From)
				}
				return refuse("%s and %s exclude each other, as %s and %s do; give one of them", b.From, a.From, b.Path, a.Path)
			}
		}
	}
	return list, nil
}

// values returns what a flag was given.
func (s shorthand) values(c *cobra.Command) []string {
	if s.list {
		list, _ := c.Flags().GetStringArray(s.flag)
		return list
	}
	return []string{c.Flags().Lookup(s.flag).Value.String()}
}

// value returns the CUE value of the flag.
func (s shorthand) value(values []string) string {
	if !s.list {
		if s.path == "maxModelLen" && values[0] == "-1" {
			return "auto" // as in vLLM
		}
		return values[0]
	}
	var list []string
	for _, v := range values {
		parts := []string{v}
		if s.comma {
			parts = strings.Split(v, ",")
		}
		for _, p := range parts {
			list = append(list, schema.Quote(strings.TrimSpace(p)))
		}
	}
	return "[" + strings.Join(list, ", ") + "]"
}
