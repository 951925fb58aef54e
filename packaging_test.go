package vapp_test

import (
	"regexp"
	"strings"
	"testing"
)

// TestPackaging checks that units, profile and package configuration agree. scripts/release.sh
// verifies the rest with systemd's own tools.
func TestPackaging(t *testing.T) {
	text := func(path string) string { return string(read(t, "packaging/"+path)) }
	find := func(path, pattern string) string {
		t.Helper()
		m := regexp.MustCompile(pattern).FindStringSubmatch(text(path))
		if m == nil {
			t.Fatalf("packaging/%s has nothing like %s", path, pattern)
		}
		return m[1]
	}
	profile := find("vapp.cue", `host: "([^"]+)"`) + ":" + find("vapp.cue", `port: (\d+)`)
	if socket := find("systemd/vapp.socket", `(?m)^ListenStream=(.+)$`); socket != profile {
		t.Errorf("vapp.socket listens on %s and the profile says %s", socket, profile)
	}
	service := text("systemd/vapp.service")
	for _, line := range []string{
		"Type=notify", "ExecStart=/usr/bin/vapp up /etc/vapp/vapp.cue", "Restart=on-failure", "DynamicUser=yes", "ProtectSystem=strict",
		"StateDirectory=vapp", "CacheDirectory=vapp", "LimitMEMLOCK=infinity", "CapabilityBoundingSet=", "NoNewPrivileges=yes",
	} {
		if !strings.Contains(service, "\n"+line+"\n") {
			t.Errorf("vapp.service lacks the line %s", line)
		}
	}
	if kept := find("nfpm.yaml", `(?s)dst: /etc/vapp/vapp.cue\n\s+type: (\S+)`); kept != "config|noreplace" {
		t.Errorf("the profile is of type %s: an upgrade would replace the operator's", kept)
	}
	for _, script := range regexp.MustCompile(`packaging/(scripts/\S+)`).FindAllStringSubmatch(text("nfpm.yaml"), -1) {
		if !strings.HasPrefix(text(script[1]), "#!/bin/sh\n") {
			t.Errorf("packaging/%s is no shell script", script[1])
		}
	}
}
