package models

import (
	"vapp.dev/engine/backend"
	"vapp.dev/engine/checkpoint"
)

// mistral is Mistral 7B, Nemo, Small and Ministral: Llama's blocks. If the config has a window, all
// layers have it, unless layer_types says otherwise.
func mistral(c checkpoint.Config) (recipe, error) {
	d, err := llamaRecipe(c)
	if err != nil {
		return d, err
	}
	d.slideAlone(c.SlidingWindow, func(int) bool { return true })
	return d, d.wholeRope()
}

// ministral3 is the text model of Ministral 3: Mistral's blocks with queries that are scaled by their
// position, by 1 + llama_4_scaling_beta · ln(1 + ⌊position / original_max_position_embeddings⌋).
func ministral3(c checkpoint.Config) (recipe, error) {
	if c.RopeScaling.Type == "" {
		return recipe{}, &UnsupportedError{"a rope of " + c.Architecture + " without a type", "set rope_parameters, as published models do"}
	}
	d, err := mistral(c)
	if s := c.RopeScaling; err == nil && s.QueryBeta != 0 {
		d.ropes[0].temperature = backend.Temperature{Beta: float32(s.QueryBeta), Every: s.OriginalMaxPositionEmbeddings}
	}
	return d, err
}

// mistral3 is the text model of Mistral Small 3.1 and 3.2 and of Ministral 3, whose files have a
// vision tower too.
func mistral3(c checkpoint.Config) (recipe, error) {
	of := mistral
	if c.RopeScaling.QueryBeta != 0 {
		of = ministral3
	}
	d, err := of(c)
	d.insideOf("language_model.")
	return d, err
}
