package importer

import "slices"

// kvEventKeys are the keys of --kv-events-config.
var kvEventKeys = []string{"enable_kv_cache_events", "publisher", "endpoint", "replay_endpoint", "buffer_steps", "hwm", "max_queue_size", "topic"}

// kvEvents keeps the keys of --kv-events-config until all of them are known.
func kvEvents(d *draft, s setting) {
	if !d.wantObject(s) {
		return
	}
	for _, key := range sortedKeys(s.keys) {
		one := s.entry(key, compact(s.keys[key]))
		switch {
		case !slices.Contains(kvEventKeys, key):
			hint := "the keys are enable_kv_cache_events, publisher, endpoint, replay_endpoint, buffer_steps, hwm and topic"
			if near := nearestKey(key, kvEventKeys); near != "" {
				hint = "did you mean " + near + "?"
			}
			d.problem(Unknown, s.at, hint, "%s: no such key of %s", short(key), s.flag.name())
		case s.keys[key] == nil:
		case key == "enable_kv_cache_events" && one.value() != "true" && one.value() != "false":
			d.invalid(one, "true, false")
		default:
			d.fields["?kv."+key] = field{by: one}
		}
	}
}

// settleKVEvents sets the fields of KV events. vLLM publishes none unless enable_kv_cache_events is
// true and the publisher is zmq, its default then.
func (d *draft) settleKVEvents() {
	take := func(key string) setting {
		s := d.fields[key].by
		delete(d.fields, key)
		return s
	}
	seed, set := take("?hashSeed"), map[string]setting{}
	for _, key := range kvEventKeys {
		set[key] = take("?kv." + key)
	}
	on, publisher := set["enable_kv_cache_events"], set["publisher"].value()
	why := ""
	switch {
	case on.value() != "true":
		why = "without effect without enable_kv_cache_events"
	case publisher != "" && publisher != "zmq":
		why = "without effect: the publisher is " + short(publisher)
	}
	if why != "" {
		for _, key := range kvEventKeys {
			if s := set[key]; s.given != "" {
				d.notef(s, "%s", why)
			}
		}
		if seed.given != "" {
			d.notef(seed, "without effect without KV events")
		}
		return
	}
	d.set("serve.kvEvents.endpoint", quote("tcp://*:5557"), on)
	for key, field := range map[string]string{"endpoint": "endpoint", "replay_endpoint": "replayEndpoint", "topic": "topic"} {
		if s := set[key]; s.given != "" {
			d.set("serve.kvEvents."+field, quote(s.value()), s)
		}
	}
	for key, field := range map[string]string{"buffer_steps": "bufferSteps", "hwm": "hwm"} {
		if s := set[key]; s.given != "" {
			integer("serve.kvEvents."+field)(d, s)
		}
	}
	if s := set["max_queue_size"]; s.given != "" {
		d.notef(s, no+"at most 256 batches are on their way from the engine")
	}
	if seed.given != "" {
		d.set("serve.kvEvents.hashSeed", quote(seed.value()), seed)
	}
}
