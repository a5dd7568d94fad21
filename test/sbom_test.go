//go:build sbom

package test

import (
	"debug/buildinfo"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
)

// make sbom writes what is looked at here.
func TestTheSBOMHasWhatIsInTheProgram(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"dispatcher", "enqueue"} {
		built, err := buildinfo.ReadFile("../bin/" + program)
		if err != nil {
			t.Fatal(err)
		}
		var bom struct {
			BOMFormat, SpecVersion string
			Metadata               struct {
				Component struct {
					Ref                 string `json:"bom-ref"`
					Type, Name, Version string
				}
			}
			Components []struct {
				Ref                       string `json:"bom-ref"`
				Type, Name, Version, PURL string
				Hashes                    []struct{ Alg, Content string }
			}
			Dependencies []struct {
				Ref       string
				DependsOn []string
			}
		}
		if err := json.Unmarshal([]byte(text(t, "../dist/"+program+".cdx.json")), &bom); err != nil {
			t.Fatalf("%s: %v", program, err)
		}
		if bom.BOMFormat != "CycloneDX" || bom.SpecVersion == "" || bom.Metadata.Component.Name != built.Main.Path || bom.Metadata.Component.Version == "" {
			t.Errorf("%s: it is a %s %s of %+v", program, bom.BOMFormat, bom.SpecVersion, bom.Metadata.Component)
		}
		want := map[string]string{"std": built.GoVersion}
		for _, m := range built.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			want[m.Path] = m.Version
		}
		got, refs := map[string]string{}, map[string]bool{bom.Metadata.Component.Ref: true}
		for _, c := range bom.Components {
			if got[c.Name] != "" || refs[c.Ref] || c.Type != "library" || !strings.HasPrefix(c.PURL, "pkg:golang/"+c.Name+"@"+c.Version) {
				t.Errorf("%s: the component %+v", program, c)
			}
			if c.Name != "std" && (len(c.Hashes) == 0 || c.Hashes[0].Alg != "SHA-256" || len(c.Hashes[0].Content) != 64) {
				t.Errorf("%s: %s has the digests %v", program, c.Name, c.Hashes)
			}
			got[c.Name], refs[c.Ref] = c.Version, true
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s has %d components, want %d:\n%v\n%v", program, len(got), len(want), got, want)
		}
		for _, d := range bom.Dependencies {
			if i := slices.IndexFunc(append(d.DependsOn, d.Ref), func(ref string) bool { return !refs[ref] }); i >= 0 {
				t.Errorf("%s: %s depends on what is not in it", program, d.Ref)
			}
		}
		if len(want) < 20 {
			t.Errorf("%s: %d modules in all", program, len(want))
		}
	}
}
