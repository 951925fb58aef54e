package compat

import "slices"

// maxPage bounds the bytes of a page, so that products with it fit 64 bits.
const maxPage = 1 << 40

// layout groups the layers and gives their pages one size: memory-planning sections 6 and 7.
func layout(p paging, layers []kvLayer) (*cache, error) {
	c := &cache{paging: p}
	for _, l := range layers {
		if l.token > maxPage/maxBlock || l.state() > maxPage/4 {
			return nil, fault("config", "describes a KV cache of %d bytes a token and layer", max(l.token, l.state()))
		}
		if l.kind == linear {
			c.states++
			c.state = max(c.state, l.state())
		} else {
			c.attn++
		}
	}
	if c.states > 0 && p.whole {
		return nil, fault("memory.hybridKVCacheManager", "cannot be off: states and attention have no common page without it")
	}
	if p.whole || p.rel == V07 {
		layers = slices.Clone(layers)
		for i := range layers {
			if layers[i].kind == sliding || layers[i].kind == chunked {
				layers[i].kind, layers[i].window = full, 0
			}
		}
	}
	kinds := gather(layers)
	if c.states > 0 {
		if c.attn == 0 {
			return nil, fault("config.layer_types", "has no attention layer: the block size of states alone is not known here")
		}
		if err := c.bump(layers); err != nil {
			return nil, err
		}
	}
	if len(kinds) > 1 && !slices.ContainsFunc(layers, func(l kvLayer) bool { return l.kind != full }) {
		c.ownPages(layers)
		return c, nil
	}
	return c, c.cut(layers, kinds)
}

// gather groups layers of equal spec, in order of first appearance.
func gather(layers []kvLayer) [][]int {
	var kinds [][]int
	for i, l := range layers {
		at := slices.IndexFunc(kinds, func(k []int) bool { return layers[k[0]].same(l) == 0 })
		if at < 0 {
			kinds = append(kinds, nil)
			at = len(kinds) - 1
		}
		kinds[at] = append(kinds[at], i)
	}
	return kinds
}

// bump raises the attention block size until a page can hold a state.
func (c *cache) bump(layers []kvLayer) error {
	var token int64
	for _, l := range layers {
		if l.kind != linear {
			token = max(token, l.token)
		}
	}
	step := c.step()
	need := step * ceilDiv(c.state, step*token)
	if need > maxPage/token {
		return fault("memory.blockSize", "a state of %d bytes and %d bytes a token need blocks of %d tokens", c.state, token, need)
	}
	if need > c.block {
		c.bumped, c.block = need, need
	}
	c.padded = float64(c.block*token-c.state) / float64(c.state) * 100
	return nil
}

// ownPages makes one group of full attention layers whose pages differ in size.
func (c *cache) ownPages(layers []kvLayer) {
	g := kvGroup{kind: full, block: c.block}
	sums := make([]int64, c.stages)
	for i, l := range layers {
		g.layers = append(g.layers, i)
		sums[l.stage] += c.block * l.token
	}
	c.groups, c.slabs, c.size = []kvGroup{g}, sums, int64(len(layers))
}

// cut makes groups of equal size, with padding for missing layers. Pages have one size: a kind with
// smaller pages gets larger blocks, or since vllm-0.33 padding where its page does not divide the size.
func (c *cache) cut(layers []kvLayer, kinds [][]int) error {
	for _, k := range kinds {
		if l := layers[k[0]]; l.kind != linear {
			c.page = max(c.page, l.token*c.block)
		}
	}
	least, most := len(kinds[0]), len(kinds[0])
	for _, k := range kinds {
		least, most = min(least, len(k)), max(most, len(k))
	}
	size := least
	if 2*most < 3*least {
		size = most
	}
	for _, k := range kinds {
		l := layers[k[0]]
		block := c.block
		if l.kind != linear {
			switch divides := c.page%(l.token*c.block) == 0; {
			case divides:
				block = c.page / l.token
			case !c.rel.atLeast(V033):
				return fault("memory.kvCacheDtype", "pages of %d and %d bytes: the smaller does not divide the larger, and this release refuses to unify them", l.token*c.block, c.page)
			}
		}
		n := (len(k) + size - 1) / size
		groups := make([]kvGroup, n)
		for j, i := range k {
			groups[j%n].layers = append(groups[j%n].layers, i)
		}
		for _, g := range groups {
			g.kind, g.block, g.window, g.page = l.kind, block, l.window, c.page
			c.groups = append(c.groups, g)
		}
		if p := n*size - len(k); p > 0 {
			c.padding = append(c.padding, padding{int64(p), int64(len(k))})
		}
	}
	c.slabs = make([]int64, c.stages)
	for _, g := range c.groups {
		on := make([]int64, c.stages)
		for _, i := range g.layers {
			on[layers[i].stage]++
		}
		for stage, n := range on {
			c.slabs[stage] = max(c.slabs[stage], n*c.page)
		}
		c.size = max(c.size, slices.Max(on))
	}
	return nil
}
