package plan

// RuleNames returns the names of the verdict's rules in their order.
func RuleNames() []string {
	var out []string
	for _, r := range rules {
		out = append(out, r.name)
	}
	return out
}

// JointTotal returns the total of the machine's memory while these members' models are in it.
func JointTotal(j *Joint, loaded ...int) int64 { return j.ledger(0, loaded).Total() }
