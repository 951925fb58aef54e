package appliance

import (
	"encoding/json"
	"net/http"

	"vapp.dev/appliance/api"
	"vapp.dev/appliance/chat"
	"vapp.dev/appliance/plan"
	"vapp.dev/appliance/plan/picture"
)

// status is the reply of GET /admin/status, which the page at / shows.
type status struct {
	Phase   string       `json:"phase"`
	Why     string       `json:"why,omitempty"` // the error that caused phase failed
	Version string       `json:"version"`
	Profile string       `json:"profile"` // its name
	Models  []string     `json:"models"`
	Plan    planStatus   `json:"plan"`
	Ledger  []ledgerLine `json:"ledger"` // empty until the model is loaded
	Now     nowStatus    `json:"now"`
	Pending *Waiting     `json:"pending,omitempty"` // changes of the profile that are not in effect
	Reloads []Reload     `json:"reloads"`           // the newest first
	// Sampling holds what a request gets that sets no parameter; nil until the model is loaded.
	Sampling *chat.Defaults `json:"sampling,omitempty"`
	// Media holds the maximum number of items of each kind in one prompt, by its name (image).
	// A kind that the model does not take is absent.
	Media map[string]int `json:"limit_mm_per_prompt,omitempty"`
	// MaxBody is the maximum size of a request body, in bytes.
	MaxBody int64 `json:"max_body_bytes"`
}

type planStatus struct {
	Model    string     `json:"model"`
	Backend  string     `json:"backend"`
	Device   string     `json:"device"`
	Total    int64      `json:"total_bytes"`
	Segments []segment  `json:"segments"`
	Lengths  []plan.Fit `json:"lengths"`
}

type segment struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
	What  string `json:"what"`
}

type ledgerLine struct {
	Item   string `json:"item"`
	Plan   int64  `json:"plan_bytes"`
	Actual int64  `json:"actual_bytes"`
}

// nowStatus holds the engine's figures after its last step.
type nowStatus struct {
	Running     int     `json:"running"`
	Waiting     int     `json:"waiting"`
	KVUsed      float64 `json:"kv_used"` // 0 to 1
	KVTokens    int64   `json:"kv_tokens"`
	Preemptions int64   `json:"preemptions"`
	Generated   int64   `json:"generated"` // tokens since the start
}

// mediaKinds are the kinds of chat.Media.
var mediaKinds = []string{"image", "video", "audio"}

// status returns the current status. It is cheap enough for a call each second.
func (a *Appliance) status() status {
	l := a.live.Load()
	s := status{
		Phase: a.Phase(), Why: a.why(), Version: a.cfg.Version, Profile: l.profile.Name, Models: l.api.Chat.Models,
		Plan: a.prepared().outline, Ledger: []ledgerLine{}, Pending: a.audit.waiting(), Reloads: a.Reloads(), MaxBody: l.api.MaxBodyBytes,
	}
	if v := l.api.Chat.Vision; v != nil {
		s.Media = map[string]int{}
		for _, kind := range mediaKinds {
			if most, supported := v.Limit(kind); min(most, supported) > 0 {
				s.Media[kind] = min(most, supported)
			}
		}
	}
	serving := a.serving()
	if serving == nil {
		return s
	}
	for _, c := range serving.ledger {
		s.Ledger = append(s.Ledger, ledgerLine{c.Item, c.Planned, c.Actual})
	}
	d := serving.service.Defaults(&l.api.Chat)
	s.Sampling = &d
	e := a.stats()
	s.Now = nowStatus{e.Running, e.Waiting, e.KVUsed, e.KVTokens, e.Preemptions, a.metrics.Generated()}
	return s
}

func planStatusOf(p *plan.Plan) planStatus {
	pic := picture.Of(p)
	s := planStatus{Model: p.Model.Source, Backend: p.Backend, Device: p.Facts.Device, Total: pic.Total, Lengths: p.Capacity.Lengths}
	for _, g := range pic.Segments {
		s.Segments = append(s.Segments, segment(g))
	}
	return s
}

// serveStatus handles GET /admin/status.
func (a *Appliance) serveStatus(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	s := a.status()
	if !api.HasKey(r) {
		s.Models = publicNames(s.Models, s.Plan.Model)
		s.Why, s.Plan.Model = api.WithoutFolders(s.Why), api.PublicPath(s.Plan.Model)
		s.Pending, s.Reloads = s.Pending.public(), publicReloads(s.Reloads)
	}
	// An error means that the client has disconnected.
	_ = json.NewEncoder(w).Encode(s)
}
