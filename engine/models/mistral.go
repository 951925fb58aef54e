package models

import "vapp.dev/engine/checkpoint"

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

// mistral3 is the text model of Mistral Small 3.1 and 3.2, whose files have a vision tower too.
func mistral3(c checkpoint.Config) (recipe, error) {
	d, err := mistral(c)
	d.insideOf("language_model.")
	return d, err
}
