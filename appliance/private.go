package appliance

import (
	"encoding/json"

	"vapp.dev/schema"
)

// private changes a profile to that of a server for one client on this machine: a free port of the
// loopback address, one key, no files of serving, and no reload.
func private(p *schema.Profile, key string) error {
	text, err := json.Marshal(key)
	if err != nil {
		return err
	}
	var k schema.Key
	if err := json.Unmarshal(text, &k); err != nil {
		return err
	}
	s := &p.Serve
	s.Host, s.Port, s.APIKeys, s.TLS, s.Responses, s.AllowedHosts = "127.0.0.1", 0, []schema.Key{k}, nil, nil, nil
	s.KVEvents, s.Idle, s.Sleep, s.Traces = nil, nil, false, nil
	s.PerKey, s.AccessLog, s.LogRequests = schema.PerKey{}, false, false
	p.Reload.Watch, p.Log.Audit = false, nil
	return nil
}
