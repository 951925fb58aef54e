package appliance

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"slices"
	"strings"

	"vapp.dev/appliance/plan"
	"vapp.dev/engine/backend"
)

// showPlan logs what the plan needs and carries in one line, and each of its warnings. At
// level debug it also writes the whole plan: as text, or as one record of a JSON log.
func (a *Appliance) showPlan(of *Prepared) error {
	p := of.Plan
	switch {
	case !a.log.Enabled(context.Background(), slog.LevelDebug):
	case a.json():
		a.log.Debug("plan", "plan", p)
	default:
		if err := p.Text(a.cfg.Log); err != nil {
			return err
		}
	}
	a.log.Info("plan: fits", planAttrs(p)...)
	for _, w := range p.Warnings {
		a.log.Warn("plan: " + w)
	}
	return nil
}

func (a *Appliance) json() bool { return a.live.Load().profile.Log.Format == "json" }

// planAttrs returns the figures of a plan that its log line has.
func planAttrs(p *plan.Plan) []any {
	needs := plan.Size(p.Ledger.Total())
	if p.Budget.Bytes > 0 {
		needs += " of " + plan.Size(p.Budget.Bytes)
	}
	on := p.Backend
	if i := slices.IndexFunc(p.Choices, func(c backend.Choice) bool { return c.Name == "variant" }); i >= 0 {
		on += " " + p.Choices[i].Value
	}
	c, longest := p.Capacity, p.Options.MaxModelLen
	at := fmt.Sprintf("%s of %s tokens", plan.Group(int64(c.Running(longest))), plan.Group(int64(longest)))
	if first := c.Lengths[0]; first.Tokens < longest {
		at += fmt.Sprintf(", %s of %s", plan.Group(int64(first.Running)), plan.Group(int64(first.Tokens)))
	}
	return []any{"needs", needs, "on", on, "kv_cache", fmt.Sprintf("%s tokens in %s", plan.Group(c.Tokens), plan.Size(p.Ledger.Bytes("kv"))), "sequences_at_once", at}
}

// compare logs the planned and the allocated bytes of every arena: one line of sums, and a line for each arena at
// level debug, or at level error if they differ. It stores them in s for the metrics.
func (a *Appliance) compare(s *served) {
	s.compared, s.estimates = a.reloader.now(), map[string]int64{}
	if _, before, now, ok := s.engine.Memory(); ok {
		s.deviceOwn = before - now
	}
	s.ledger = s.prepared.Ledger().Compare(s.engine.Usage())
	logLedger(a.log, s.ledger)
	if n, ok := s.engine.GraphBytes(); ok {
		a.compareEstimate(s, "graphs", n)
	}
	if n, ok := s.engine.CollectiveBytes(); ok {
		a.compareEstimate(s, "collectives", n)
	}
	if huge, of, ok := s.engine.Huge(); ok {
		a.log.Debug("huge pages", "bytes", huge, "of", of)
	}
	a.logPlacement(s.engine.Placement())
	for _, n := range s.engine.Notes() {
		a.log.Warn("device: " + n)
	}
}

// logPlacement logs the threads and the memory on each NUMA node, and why memory could not be
// placed as planned.
func (a *Appliance) logPlacement(p backend.Placement) {
	for _, n := range p.Nodes {
		a.log.Info("NUMA node", "node", n.ID, "threads", n.Threads, "bytes", n.Bytes)
	}
	if p.Refused != nil {
		a.log.Warn("memory is not bound to NUMA nodes", "reason", p.Refused)
	}
}

// showUse logs the address of the page and how to use the model: commands that can be pasted
// into a shell, or one record of a JSON log.
func (a *Appliance) showUse() error {
	base := strings.TrimSuffix(a.url(), "/v1")
	ask, page := a.example(base), base+"/"
	if a.cfg.member != nil {
		page += "?profile=" + url.QueryEscape(a.first.Profile.Name)
	}
	if a.json() {
		a.log.Info("how to use it", "page", page, "request", ask)
		return nil
	}
	text := "  page  " + page + "\n  ask   " + ask + "\n"
	if l := a.live.Load(); l.source != "" && a.prepared().Model.Pooling == nil {
		text += "  chat  vapp chat " + base
		if a.cfg.member != nil {
			text += " --model " + l.api.Chat.Models[0]
		}
		if l.keyed() {
			text += " --api-key KEY"
		}
		text += "\n"
	}
	_, err := io.WriteString(a.cfg.Log, text)
	return err
}

// example returns a curl command with a request that the model can answer.
func (a *Appliance) example(base string) string {
	l := a.live.Load()
	path, body := "/v1/completions", `{"prompt": "Once upon a time", "max_tokens": 32}`
	switch pooling := a.prepared().Model.Pooling; {
	case pooling != nil && pooling.Task == "classify":
		path, body = "/classify", `{"input": "Good morning."}`
	case pooling != nil:
		path, body = "/v1/embeddings", `{"input": "Good morning."}`
	case l.source != "":
		path, body = "/v1/chat/completions", `{"messages": [{"role": "user", "content": "Good morning!"}]}`
	}
	if a.cfg.member != nil { // with several models a request names one
		body = fmt.Sprintf(`{"model": %q, %s`, l.api.Chat.Models[0], body[1:])
	}
	key := ""
	if l.keyed() {
		key = " -H 'Authorization: Bearer KEY'"
	}
	return fmt.Sprintf("curl %s%s%s -H 'Content-Type: application/json' -d '%s'", base, path, key, body)
}

// compareEstimate compares a line that the plan estimates with what was measured. More than planned is a warning only: arenas are exact.
func (a *Appliance) compareEstimate(s *served, item string, n int64) {
	planned := s.prepared.Ledger().Bytes(item)
	s.estimates[item] = n
	log := a.log.Debug
	if n > planned {
		log = a.log.Warn
	}
	log("ledger", "item", item, "plan_bytes", planned, "actual_bytes", n, "difference", n-planned)
}

// logLedger logs the planned and the allocated bytes of a ledger's arenas.
func logLedger(log *slog.Logger, lines []plan.Line) {
	var planned, actual, apart int64
	for _, c := range lines {
		write := log.Debug
		if c.Difference() != 0 {
			write = log.Error
		}
		write("ledger", "item", c.Item, "plan_bytes", c.Planned, "actual_bytes", c.Actual, "difference", c.Difference())
		planned, actual, apart = planned+c.Planned, actual+c.Actual, apart+max(c.Difference(), -c.Difference())
	}
	sums := []any{"items", len(lines), "plan_bytes", planned, "actual_bytes", actual, "difference", apart}
	if apart == 0 {
		log.Info("ledger: planned bytes = actual bytes", sums...)
	} else {
		log.Error("ledger: planned and actual bytes differ", sums...)
	}
}
