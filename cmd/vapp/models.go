package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"vapp.dev/appliance/plan"
	"vapp.dev/engine/models"
)

// known is a model of the catalogue with values of its config.
type known struct {
	models.Entry
	Architecture string         `json:"architecture"`
	Layers       int            `json:"layers"`
	LayerTypes   map[string]int `json:"layer_types,omitempty"`
	Hidden       int            `json:"hidden_size"`
	Heads        int            `json:"heads"`
	KVHeads      int            `json:"kv_heads"`
	HeadDim      int            `json:"head_dim"`
	Vocab        int            `json:"vocab_size"`
	Context      int            `json:"max_position_embeddings"` // tokens
	Tensors      int            `json:"tensors,omitempty"`
	Bytes        int64          `json:"checkpoint_bytes,omitempty"`
	// Refused is why it cannot be planned, "" where it can be.
	Refused string `json:"refused,omitempty"`
}

func newModels() *cobra.Command {
	var json bool
	c := &cobra.Command{
		Use:   "models [NAME]",
		Short: "List the models that can be planned by name, without their files",
		Long: `Models lists the catalogue: models whose published config is part of this binary,
so that a profile that names one can be planned without files and network.
With a NAME it prints the details of that model. Any other model is planned from
its files, or from its config alone: vapp plan --config.`,
		Args: needArgs(0, 1, "at most one model"),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 {
				return oneModel(c, args[0], json)
			}
			list, err := models.Catalogue()
			if err != nil {
				return err
			}
			var all []known
			for _, e := range list {
				k, err := know(e)
				if err != nil {
					return err
				}
				all = append(all, k)
			}
			byMaker(all)
			if json {
				return asJSON(c.OutOrStdout(), all)
			}
			var rows [][]string
			for _, k := range all {
				rows = append(rows, []string{k.Name, billions(k.Parameters), fmt.Sprint(k.Layers), plan.Group(int64(k.Context)), k.Quantization, k.size()})
			}
			table(c.OutOrStdout(), "lrrrlr", []string{"MODEL", "PARAMETERS", "LAYERS", "CONTEXT", "WEIGHTS", "CHECKPOINT"}, rows)
			return nil
		},
	}
	c.Flags().BoolVar(&json, "json", false, "print JSON")
	return c
}

// byMaker puts the models of an organization together, in the catalogue's order.
func byMaker(all []known) {
	first := map[string]int{}
	for i, k := range all {
		maker, _, _ := strings.Cut(k.Name, "/")
		if _, ok := first[maker]; !ok {
			first[maker] = i
		}
	}
	slices.SortStableFunc(all, func(a, b known) int {
		x, _, _ := strings.Cut(a.Name, "/")
		y, _, _ := strings.Cut(b.Name, "/")
		return first[x] - first[y]
	})
}

// know reads the entry's config and derives its tensors.
func know(e models.Entry) (known, error) {
	cfg, err := e.Config()
	if err != nil {
		return known{}, err
	}
	k := known{
		Entry: e, Architecture: cfg.Architecture, Layers: cfg.NumLayers, Hidden: cfg.HiddenSize, Heads: cfg.NumHeads,
		KVHeads: cfg.NumKVHeads, HeadDim: cfg.HeadDim, Vocab: cfg.VocabSize, Context: cfg.MaxPositionEmbeddings,
	}
	for _, kind := range cfg.LayerTypes {
		if k.LayerTypes == nil {
			k.LayerTypes = map[string]int{}
		}
		k.LayerTypes[kind]++
	}
	tensors, err := models.Tensors(cfg)
	if err != nil {
		k.Refused = err.Error()
		return k, nil
	}
	k.Tensors = len(tensors)
	for _, t := range tensors {
		k.Bytes += t.Bytes
	}
	return k, nil
}

// billions formats a number of parameters: 135 M, 1.24 B, 1.03 T.
func billions(n int64) string {
	if n < 999.5e6 {
		return fmt.Sprintf("%.0f M", float64(n)/1e6)
	}
	if n < 999.5e9 {
		return fmt.Sprintf("%.3g B", float64(n)/1e9)
	}
	return fmt.Sprintf("%.3g T", float64(n)/1e12)
}

func (k known) size() string {
	if k.Refused != "" {
		return "-"
	}
	return plan.Size(k.Bytes)
}

func oneModel(c *cobra.Command, name string, json bool) error {
	e, ok, err := models.FindEntry(name)
	if err != nil {
		return err
	}
	if !ok {
		hint := `"vapp models" lists it`
		if near := models.Suggest(name); len(near) > 0 {
			hint = "did you mean " + strings.Join(near, ", ") + "?"
		}
		return &usageError{fmt.Errorf("model %.80q is not in the catalogue; %s", name, hint), c.CommandPath()}
	}
	k, err := know(e)
	if err != nil {
		return err
	}
	w := c.OutOrStdout()
	if json {
		return asJSON(w, k)
	}
	layers, sep := fmt.Sprint(k.Layers), ": "
	for _, kind := range slices.Sorted(maps.Keys(k.LayerTypes)) {
		layers += fmt.Sprintf("%s%d %s", sep, k.LayerTypes[kind], kind)
		sep = ", "
	}
	checkpoint := ""
	if k.Refused == "" {
		checkpoint = fmt.Sprintf("%s (%s bytes) in %s tensors", plan.Size(k.Bytes), plan.Group(k.Bytes), plan.Group(int64(k.Tensors)))
	}
	pairs(w, [][2]string{
		{"model", k.Name}, {"aliases", strings.Join(k.Aliases, ", ")}, {"about", k.About}, {"licence", k.Licence},
		{"architecture", k.Architecture}, {"parameters", plan.Group(k.Parameters)}, {"layers", layers},
		{"hidden size", plan.Group(int64(k.Hidden))}, {"heads", fmt.Sprintf("%d/%d × %d", k.Heads, k.KVHeads, k.HeadDim)},
		{"vocabulary", plan.Group(int64(k.Vocab))}, {"context", plan.Group(int64(k.Context)) + " tokens"},
		{"weights", k.Quantization}, {"checkpoint", checkpoint}, {"not planned", k.Refused},
	})
	return nil
}
