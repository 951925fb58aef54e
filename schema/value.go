package schema

// Value returns the resolved value of a field, such as memory.kvCache, as JSON; "" if it is absent. Keys are
// hidden.
func (p *Profile) Value(path string) string {
	v := tree(p)
	for _, label := range labels(path) {
		in, ok := v.(map[string]any)
		if !ok {
			return ""
		}
		v = in[label]
	}
	return valueText(v)
}
