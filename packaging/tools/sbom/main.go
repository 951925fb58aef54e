// Command sbom writes what is in a vapp binary as SPDX 2.3 in JSON: the Go modules that the
// binary itself lists, the Rust crates of the text library and the scripts of the page. It must not import packages of
// vapp. Start reading at main.
//
//	sbom -binary vapp -version V -epoch SECONDS -crates cargo-metadata.json -scripts scripts/page-libs.sh > vapp.spdx.json
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"sort"
	"strings"
	"time"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"
)

func main() {
	binary := flag.String("binary", "", "the binary")
	version := flag.String("version", "", "its version")
	epoch := flag.Int64("epoch", 0, "the time of the document, in seconds since 1970")
	crates := flag.String("crates", "", "the output of cargo metadata; empty: the binary has no crates")
	scripts := flag.String("scripts", "", "the list of the page's npm packages: a line for each file ends with its SHA-256")
	flag.Parse()
	if err := write(os.Stdout, *binary, *version, time.Unix(*epoch, 0).UTC(), *crates, *scripts); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

// component is a module, a crate or an npm package.
type component struct {
	kind, name, version, licence, purl string
}

// write writes the document.
func write(w io.Writer, binary, version string, at time.Time, crates, scripts string) error {
	list, err := modules(binary)
	if err != nil {
		return err
	}
	if crates != "" {
		more, err := crateList(crates)
		if err != nil {
			return err
		}
		list = append(list, more...)
	}
	if scripts != "" {
		more, err := scriptList(scripts)
		if err != nil {
			return err
		}
		list = append(list, more...)
	}
	sort.Slice(list, func(i, j int) bool { return list[i].purl < list[j].purl })
	b, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	sum := fmt.Sprintf("%x", sha256.Sum256(b))
	doc := &spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT",
		DocumentName: "vapp-" + version, DocumentNamespace: "https://vapp.dev/spdx/vapp-" + version + "-" + sum,
		CreationInfo: &spdx.CreationInfo{
			Created:  at.Format(time.RFC3339),
			Creators: []common.Creator{{CreatorType: "Organization", Creator: "The vapp authors"}},
		},
	}
	root := common.ElementID("vapp")
	doc.Packages = append(doc.Packages, &spdx.Package{
		PackageName: "vapp", PackageSPDXIdentifier: root, PackageVersion: version, PackageDownloadLocation: "NOASSERTION",
		PackageLicenseConcluded: "Apache-2.0", PackageLicenseDeclared: "Apache-2.0", PackageCopyrightText: "NOASSERTION",
		PackageChecksums: []common.Checksum{{Algorithm: common.SHA256, Value: sum}}, PrimaryPackagePurpose: "APPLICATION",
	})
	relate := func(a, b common.ElementID, how string) {
		doc.Relationships = append(doc.Relationships, &spdx.Relationship{
			RefA: common.MakeDocElementID("", string(a)), RefB: common.MakeDocElementID("", string(b)), Relationship: how,
		})
	}
	relate("DOCUMENT", root, "DESCRIBES")
	for _, c := range list {
		id := common.ElementID(notInID.ReplaceAllString(c.kind+"-"+c.name+"-"+c.version, "-"))
		doc.Packages = append(doc.Packages, &spdx.Package{
			PackageName: c.name, PackageSPDXIdentifier: id, PackageVersion: c.version, PackageDownloadLocation: "NOASSERTION",
			PackageLicenseConcluded: "NOASSERTION", PackageLicenseDeclared: c.licence, PackageCopyrightText: "NOASSERTION",
			PackageExternalReferences: []*spdx.PackageExternalReference{{Category: "PACKAGE-MANAGER", RefType: "purl", Locator: c.purl}},
		})
		relate(root, id, "CONTAINS")
	}
	return spdxjson.Write(doc, w, spdxjson.Indent("  "), spdxjson.EscapeHTML(false))
}

// notInID matches what an SPDX identifier must not contain.
var notInID = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

// modules returns the Go modules that the binary lists, and Go itself.
func modules(binary string) ([]component, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", binary, err)
	}
	out := []component{{"go", "stdlib", strings.TrimPrefix(info.GoVersion, "go"), "BSD-3-Clause", "pkg:golang/stdlib@" + strings.TrimPrefix(info.GoVersion, "go")}}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		out = append(out, component{"go", m.Path, m.Version, "NOASSERTION", "pkg:golang/" + m.Path + "@" + m.Version})
	}
	return out, nil
}

// scriptLine matches package, version, licence, two paths and a SHA-256.
var scriptLine = regexp.MustCompile(`(?m)^(\S+) (\S+) (\S+) \S+ \S+ [0-9a-f]{64}$`)

// scriptList returns the npm packages whose files are part of the page.
func scriptList(file string) ([]component, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var out []component
	for _, m := range scriptLine.FindAllStringSubmatch(string(b), -1) {
		out = append(out, component{"npm", m[1], m[2], m[3], "pkg:npm/" + strings.Replace(m[1], "@", "%40", 1) + "@" + m[2]})
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: lists no packages", file)
	}
	return out, nil
}

// crateList returns the crates that cargo resolved for the text library.
func crateList(file string) ([]component, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var meta struct {
		Packages []struct {
			Name, Version, License string
			Source                 *string
		}
	}
	if err := json.Unmarshal(b, &meta); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	var out []component
	for _, p := range meta.Packages {
		if p.Source == nil {
			continue // the text library, a part of vapp
		}
		licence := strings.ReplaceAll(p.License, "/", " OR ") // the old form of cargo
		if licence == "" {
			licence = "NOASSERTION"
		}
		out = append(out, component{"crate", p.Name, p.Version, licence, "pkg:cargo/" + p.Name + "@" + p.Version})
	}
	return out, nil
}
