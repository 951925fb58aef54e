package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"vapp.dev/engine/backend/cuda/driver"
	"vapp.dev/kernels/cpu/isa"
	"vapp.dev/schema"
)

// versionFacts is the output of vapp version --json.
type versionFacts struct {
	Version  string   `json:"version"`
	Commit   string   `json:"commit,omitempty"`
	Modified bool     `json:"modified,omitempty"` // built from changed files
	Go       string   `json:"go"`
	Platform string   `json:"platform"`
	Cgo      bool     `json:"cgo"`
	Tags     []string `json:"tags"`
	Backends []string `json:"backends"` // that this binary can plan for
	Serves   []string `json:"serves"`   // that it can serve with
	CPU      struct {
		Variant  string   `json:"variant"` // of the C kernels, "" without them
		Variants []string `json:"variants"`
	} `json:"cpu"`
	CUDA struct {
		Built   bool     `json:"built"`
		Driver  string   `json:"driver,omitempty"` // the CUDA version of the driver
		Devices []string `json:"devices,omitempty"`
		Error   string   `json:"error,omitempty"` // why there is no device
	} `json:"cuda"`
	Schema string `json:"schema"` // hash of the definitions of profiles
}

func newVersion() *cobra.Command {
	var json bool
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version and the devices that a driver finds",
		Args:  needArgs(0, 0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error {
			if json {
				return asJSON(c.OutOrStdout(), readVersion())
			}
			_, err := fmt.Fprintf(c.OutOrStdout(), "vapp %s\n%s\n", buildVersion(), driverLine())
			return err
		},
	}
	c.Flags().BoolVar(&json, "json", false, "print JSON, with commit, build, backends, CPU variant, driver and schema")
	return c
}

func readVersion() versionFacts {
	v := versionFacts{Version: buildVersion(), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Cgo: withCgo, Tags: []string{}, Serves: []string{}, Schema: schema.VersionHash()}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				v.Commit = s.Value
			case "vcs.modified":
				v.Modified = s.Value == "true"
			case "-tags":
				v.Tags = strings.Split(s.Value, ",")
			}
		}
	}
	for _, op := range backends() {
		v.Backends = append(v.Backends, op.Name())
		if op.Name() == "ref" && withCgo || op.Name() == "cpu" && native || op.Name() == "cuda" && driver.Built {
			v.Serves = append(v.Serves, op.Name())
		}
	}
	if v.CPU.Variants = []string{}; native {
		v.CPU.Variants = isa.Variants()
		v.CPU.Variant = v.CPU.Variants[0] // generic is always last
	}
	v.CUDA.Built = driver.Built
	list, err := driver.Devices()
	if err != nil {
		v.CUDA.Error = err.Error()
		return v
	}
	v.CUDA.Driver = list[0].CUDA()
	for _, d := range list {
		v.CUDA.Devices = append(v.CUDA.Devices, d.String())
	}
	return v
}
