package plan

// RuleNames returns the names of the verdict's rules in their order.
func RuleNames() []string {
	var out []string
	for _, r := range rules {
		out = append(out, r.name)
	}
	return out
}
