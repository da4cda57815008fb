package apply

import (
	"encoding/json"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	_ "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1" // controller-gen reads it
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

const (
	chartDir = "../helm/waterclock"
	// KEDA, as deploy/check has it: downloaded, and not imported, because it would bring hundreds of modules.
	keda    = "github.com/kedacore/keda/v2@v2.21.0"
	kedaSum = "h1:R6z2HZvstK4RLUMxroNACzBj74xGxt3kG59b5Xc+Xps="
	// The Gateway API, likewise.
	gateway    = "sigs.k8s.io/gateway-api@v1.6.0"
	gatewaySum = "h1:735YBRj5NXFrOGX0GoSjwzUIzbz8kiEOfADsqHFmHgE="

	gatewayRoutes = "config/crd/standard/gateway.networking.k8s.io_httproutes.yaml"
)

// Helm logs each time that it follows the links to the rules and dashboards.
func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

// A release is what one set of values makes of the chart, as in deploy/check.
type release struct {
	name, namespace, values string
	set                     string // name of the StatefulSet
	pods                    int    // at first
	size                    string // of a volume claim; "": none
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// documents reads the objects of a file.
func documents(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	var docs []*unstructured.Unstructured
	for doc := range strings.SplitSeq("\n"+text, "\n---") {
		data, err := yaml.YAMLToJSONStrict([]byte(doc + "\n"))
		if err != nil {
			t.Fatalf("%v\n%s", err, doc)
		}
		if string(data) == "null" {
			continue
		}
		o := new(unstructured.Unstructured)
		if err := o.UnmarshalJSON(data); err != nil {
			t.Fatalf("%v\n%s", err, doc)
		}
		docs = append(docs, o)
	}
	return docs
}

// render returns the objects of a release after a change of its values, which nil leaves as they are.
func (r release) render(t *testing.T, change func(values map[string]any)) []*unstructured.Unstructured {
	t.Helper()
	values := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(readFile(t, r.values)), &values); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(values)
	}
	c, err := loader.Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	all, err := util.ToRenderValues(c, values, common.ReleaseOptions{Name: r.name, Namespace: r.namespace},
		common.DefaultCapabilities)
	if err != nil {
		t.Fatal(err)
	}
	files, err := engine.Render(c, all)
	if err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(files, func(name, _ string) bool { return strings.HasSuffix(name, "NOTES.txt") })
	return documents(t, strings.Join(slices.Collect(maps.Values(files)), "\n---\n"))
}

// find returns the first object of a kind, or nil.
func find(docs []*unstructured.Unstructured, kind string) *unstructured.Unstructured {
	for _, o := range docs {
		if o.GetKind() == kind {
			return o
		}
	}
	return nil
}

// moduleDir returns the folder of a module, which it downloads once.
func moduleDir(t *testing.T, module, sum string) string {
	t.Helper()
	download := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", module)
	download.Dir = t.TempDir() // outside of this module, whose go.sum stays as it is
	out, err := download.Output()
	var m struct{ Dir, Sum, Error string }
	if jsonErr := json.Unmarshal(out, &m); err != nil || jsonErr != nil || m.Sum != sum {
		t.Fatalf("%s: %v, %v, %s: sum %s, want %s", module, err, jsonErr, m.Error, m.Sum, sum)
	}
	return m.Dir
}

// definitions returns the CustomResourceDefinitions that the chart's objects need. Those of Prometheus
// Operator are made of its types with the program that it uses itself.
func definitions(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	dir := t.TempDir()
	generate := exec.CommandContext(t.Context(), "go", "tool", "controller-gen", "crd:maxDescLen=0",
		"paths=github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1", "output:crd:dir="+dir)
	if out, err := generate.CombinedOutput(); err != nil {
		t.Fatalf("make the definitions of Prometheus Operator: %v\n%s", err, out)
	}
	var docs []*unstructured.Unstructured
	for _, file := range []string{
		filepath.Join(dir, "monitoring.coreos.com_podmonitors.yaml"),
		filepath.Join(dir, "monitoring.coreos.com_servicemonitors.yaml"),
		filepath.Join(dir, "monitoring.coreos.com_prometheusrules.yaml"),
		filepath.Join(moduleDir(t, keda, kedaSum), "config/crd/bases/keda.sh_scaledobjects.yaml"),
		filepath.Join(moduleDir(t, gateway, gatewaySum), gatewayRoutes),
	} {
		docs = append(docs, documents(t, readFile(t, file))...)
	}
	return docs
}
