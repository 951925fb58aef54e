package importer

import "strings"

// tracesEndpoint sets the collector of traces. vLLM takes addresses with any scheme or none for gRPC,
// and uses TLS for https only.
func tracesEndpoint(d *draft, s setting) {
	at := s.value()
	scheme, rest, has := strings.Cut(at, "://")
	switch {
	case !has:
		at = "http://" + at
	case scheme != "http" && scheme != "https":
		at = "http://" + rest
	}
	host, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(at, "https://"), "http://"), "/")
	if host == "" || strings.ContainsAny(at, " \t\n") {
		d.invalid(s, "the URL of a collector, such as http://collector:4317")
		return
	}
	d.set("serve.traces.endpoint", quote(at), s)
}

// later keeps a setting of traces until it is known whether there are any.
func later(key string) converter {
	return func(d *draft, s setting) { d.fields["?traces."+key] = field{by: s} }
}

// settleTraces sets the other fields of traces. Without a collector the other programs make none.
func (d *draft) settleTraces() {
	_, on := d.fields["serve.traces.endpoint"]
	for _, key := range []string{"protocol", "serviceName"} {
		s := d.fields["?traces."+key].by
		delete(d.fields, "?traces."+key)
		switch {
		case s.given == "":
		case !on:
			d.notef(s, "without effect without a collector of traces")
		case key == "protocol" && s.value() != "grpc" && s.value() != "http/protobuf":
			d.invalid(s, "grpc, http/protobuf")
		default:
			d.set("serve.traces."+key, quote(s.value()), s)
		}
	}
}
