package appliance

import (
	"time"

	"vapp.dev/appliance/api/openai"
	"vapp.dev/appliance/responses"
	"vapp.dev/schema"
)

// openResponses opens the store of responses; nil if the profile has none.
func openResponses(p *schema.Profile) (*responses.Store, error) {
	r := p.Serve.Responses
	if r == nil {
		return nil, nil
	}
	s, err := responses.Open(responses.Config{Path: p.Path(r.Store), Limits: responseLimits(r), Interrupted: openai.InterruptedResponse})
	if err != nil {
		return nil, p.Reject("serve.responses.store", "%v", err)
	}
	return s, nil
}

func responseLimits(r *schema.Responses) responses.Limits {
	return responses.Limits{MaxAge: time.Duration(r.MaxAge), MaxBytes: int64(r.MaxBytes)}
}

// closeResponses stops the background responses and closes the store.
func (a *Appliance) closeResponses() {
	a.server.Close()
	if a.responses == nil {
		return
	}
	if err := a.responses.Close(); err != nil {
		a.log.Error("store of responses", "error", err.Error())
	}
}
