package doctor

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"vapp.dev/appliance/plan"
	"vapp.dev/tools/doctor/facts"
)

func reach(f facts.Facts) []Finding {
	h := f.Hub
	token := "no token"
	if h.Token {
		token = "a token is set"
	}
	switch {
	case !has(f, "hub"):
		return nil
	case h.Offline:
		return is(Note, "unset HF_HUB_OFFLINE to download models", "offline by HF_HUB_OFFLINE; %s", token)
	case !strings.HasPrefix(h.Endpoint, "http://") && !strings.HasPrefix(h.Endpoint, "https://"):
		return is(Problem, "set HF_ENDPOINT to an address such as https://hub.example.org, or unset it", "%s is no address of a hub: HF_ENDPOINT begins with http:// or https://", h.Endpoint)
	case h.Err != "":
		return is(Note, "needed only to download models: connect, set HTTPS_PROXY, or set HF_ENDPOINT to a mirror", "%s is not reached: %s; %s", h.Endpoint, h.Err, token)
	case !h.Token:
		return is(OK, "", "%s answers in %d ms; no token: gated models (Llama, Gemma) need HF_TOKEN", h.Endpoint, h.Took.Milliseconds())
	}
	return is(OK, "", "%s answers in %d ms; %s", h.Endpoint, h.Took.Milliseconds(), token)
}

func cache(f facts.Facts) []Finding {
	h, p := f.Hub, f.Profile
	if !has(f, "hub") {
		return nil
	}
	const scarce = 5 << 30
	found := fmt.Sprintf("%s: %s free", h.Cache, plan.Size(h.Free))
	switch {
	case h.Cache == "":
		return is(Note, "set HOME or HF_HOME to download models", "there is no folder for models of the hub")
	case !h.Writable:
		state := Note
		if p.Fetch {
			state = Problem
		}
		return is(state, "make it a writable folder, or set HF_HUB_CACHE to one", "%s: this user may not write there, or it is no folder", h.Cache)
	case h.Free < 0:
		return is(OK, "", "%s", h.Cache)
	case p.Fetch && h.Free < p.Needs:
		return is(Problem, "free disk space, or set HF_HUB_CACHE to a folder on a larger disk", "%s, and %s is not downloaded yet", found, p.Source)
	case h.Free < scarce:
		return is(Note, "free disk space before you download models", "%s", found)
	}
	return is(OK, "", "%s", found)
}

// Tolerances of clocks.
const (
	skewed = 5 * time.Minute // beyond it tokens and certificates may be refused
	day    = 24 * time.Hour
)

func clock(f facts.Facts) []Finding {
	c := f.Clock
	found := c.Now.UTC().Format("2006-01-02 15:04:05 UTC")
	const do = "set the clock: timedatectl set-ntp true, or date -s"
	apart := c.Now.Sub(c.Hub)
	switch {
	case !c.Hub.IsZero() && apart.Abs() > skewed:
		return is(Problem, do, "%s, which is %s the hub's clock: TLS certificates and tokens may be refused", found, apartBy(apart))
	case c.Now.Before(c.Built.Add(-day)):
		return is(Problem, do, "%s, before this program was built (%s): TLS certificates are refused", found, c.Built.UTC().Format(time.DateOnly))
	case c.Model.After(c.Now.Add(day)):
		return is(Note, do+"; or touch the model's files", "%s, before the model's files were written (%s)", found, c.Model.UTC().Format(time.DateOnly))
	case !c.Hub.IsZero():
		return is(OK, "", "%s, as the hub's", found)
	}
	return is(OK, "", "%s", found)
}

func apartBy(d time.Duration) string {
	text := d.Abs().Round(time.Minute).String()
	text = strings.TrimSuffix(text, "0s")
	if d < 0 {
		return text + " behind"
	}
	return text + " ahead of"
}

func port(f facts.Facts) []Finding {
	p := f.Port
	state := Problem
	if f.Profile.Path == "" {
		state = Note // it may be a server that should run
	}
	switch {
	case p.Address == "":
		return nil
	case p.Number == 0:
		return is(OK, "", "any free port is used (serve.port: 0)")
	case p.Used && p.Holder != "":
		return is(state, "stop it, or start with another port: --port, or serve.port", "%s is in use by %s", p.Address, p.Holder)
	case p.Used:
		return is(state, "choose another serve.port; `ss -ltnp` as root says who has it", "%s is in use by a process that this user may not see", p.Address)
	case p.Err != "":
		return is(Problem, "choose a serve.host of this machine and a serve.port that this user may open, 1024 or above", "%s: %s", p.Address, p.Err)
	}
	return is(OK, "", "%s is free", p.Address)
}

func profile(f facts.Facts) []Finding {
	switch p := f.Profile; {
	case p.Path == "" || !has(f, "profile"):
		return nil
	case p.NoFit:
		return is(Problem, "vapp plan "+p.Path+" lists what would make it fit", "%s", p.Err)
	case p.Err != "":
		return is(Problem, "correct what the line names", "%s", p.Err)
	default:
		return is(OK, "", "%s: %s", p.Path, p.Name)
	}
}

func model(f facts.Facts) []Finding {
	p := f.Profile
	switch {
	case p.Where == "":
		return nil
	case p.Fetch && f.Hub.Offline:
		return is(Problem, "unset HF_HUB_OFFLINE, or pull it where there is a network", "%s is not in the cache, and the network is not to be used", p.Source)
	case p.Fetch && f.Hub.Err != "":
		return is(Problem, "connect to the hub, set HF_ENDPOINT to a mirror, or copy the model here and name its folder", "%s is not in the cache, and the hub is not reached", p.Source)
	case p.Fetch:
		return is(Note, "vapp up downloads it; vapp pull does so ahead of time", "%s is not in the cache yet", p.Source)
	case p.Where != "checkpoint":
		return is(Note, "copy the weights there to serve it", "%s: planned from the %s; its weights are absent", p.Source, p.Where)
	}
	return is(OK, "", "%s is complete", p.Source)
}

func planned(f facts.Facts) []Finding {
	p := f.Profile
	switch p.Where {
	case "":
		return nil
	case facts.FromHub:
		return is(Note, "vapp up plans it before it downloads the weights", "unknown until its config is here")
	}
	found := fmt.Sprintf("%s on %s: %s", plan.Size(p.Needs), p.On, p.Carry)
	if p.Budget > 0 {
		found = fmt.Sprintf("%s of %s on %s: %s", plan.Size(p.Needs), plan.Size(p.Budget), p.On, p.Carry)
	}
	if p.Start != "" {
		return is(Problem, "change what the line names", "it cannot be started here: %s", p.Start)
	}
	return is(OK, "", "fits, %s", found)
}

func disk(f facts.Facts) []Finding {
	d := f.Disk
	switch {
	case d.Err != "":
		return is(Problem, "look at the disk and the permissions of the file", "%s cannot be read: %s", d.File, d.Err)
	case d.Rate <= 0:
		return nil
	}
	const patient = time.Minute
	takes := time.Duration(float64(d.Bytes) / d.Rate * float64(time.Second))
	found := fmt.Sprintf("%s is read at %s/s (%s of it): %s of weights take %s", filepath.Base(d.File), plan.Size(int64(d.Rate)), plan.Size(d.Read), plan.Size(d.Bytes), duration(takes))
	if takes > patient {
		return is(Note, "copy the model to a local disk (NVMe), or start it before it is needed", "%s", found)
	}
	return is(OK, "", "%s", found)
}

func duration(d time.Duration) string {
	if d < time.Second {
		return "under a second"
	}
	return d.Round(time.Second).String()
}

func packed(f facts.Facts) []Finding {
	d := f.Disk
	found := fmt.Sprintf("%s: %s free, %s needed", cmp.Or(d.Packed, "."), plan.Size(d.PackedFree), plan.Size(d.PackedNeeds))
	switch {
	case d.Packed == "":
		return nil
	case !d.PackedWritable:
		return is(Note, "make it writable, or set cpu.packedCache to another folder: every start packs the weights again", "%s: this user may not write there", d.Packed)
	case d.PackedFree >= 0 && d.PackedFree < d.PackedNeeds:
		return is(Note, "free disk space, or set cpu.packedCache to another folder: every start packs the weights again", "%s", found)
	}
	return is(OK, "", "%s", found)
}
