package chart

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/yannh/kubeconform/pkg/validator"
	"sigs.k8s.io/yaml"
)

// Where the schemas come from. The modules are downloaded and not imported: they would bring
// hundreds of others. A sum is what go.sum would have.
const (
	kubernetes    = "k8s.io/kubernetes@v1.37.2"
	kubernetesSum = "h1:A2VDEiObzkYqFTKhSsn0ZEb0RlLEXpHWj93gi2HqEwE="
	keda          = "github.com/kedacore/keda/v2@v2.21.0"
	kedaSum       = "h1:R6z2HZvstK4RLUMxroNACzBj74xGxt3kG59b5Xc+Xps="
	gateway       = "sigs.k8s.io/gateway-api@v1.6.0"
	gatewaySum    = "h1:735YBRj5NXFrOGX0GoSjwzUIzbz8kiEOfADsqHFmHgE="
	gatewayRoutes = "config/crd/standard/gateway.networking.k8s.io_httproutes.yaml"
)

// moduleDir returns the folder of a module, which it downloads once.
func moduleDir(t *testing.T, module, sum string) string {
	t.Helper()
	cmd := exec.Command("go", "mod", "download", "-json", module)
	cmd.Dir = t.TempDir() // outside of this module, whose go.sum stays as it is
	out, err := cmd.Output()
	var m struct{ Dir, Sum, Error string }
	if jsonErr := json.Unmarshal(out, &m); err != nil || jsonErr != nil {
		t.Fatalf("%s: %v, %v: %s", module, err, jsonErr, m.Error)
	}
	if m.Sum != sum {
		t.Fatalf("%s has the sum %s, want %s", module, m.Sum, sum)
	}
	return m.Dir
}

type object = map[string]any

// closed has every object of a schema that lists its fields refuse others, as an API server does that
// is asked with --validate=strict.
func closed(v any) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			closed(e)
		}
	case object:
		for _, e := range v {
			closed(e)
		}
		_, isSchema := v["properties"].(object)
		_, open := v["additionalProperties"]
		if isSchema && !open && v["x-kubernetes-preserve-unknown-fields"] != true {
			v["additionalProperties"] = false
		}
	}
}

func writeSchema(t *testing.T, dir, kind, suffix string, schema any) {
	t.Helper()
	data, err := json.Marshal(schema)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, strings.ToLower(kind)+suffix+".json"), data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// kubernetesSchemas writes the schemas of one group's kinds, from what the API server itself publishes.
func kubernetesSchemas(t *testing.T, dir, file, group, version string, kinds ...string) {
	t.Helper()
	data := readFile(t,
		filepath.Join(moduleDir(t, kubernetes, kubernetesSum), "api/openapi-spec/v3", file+"_openapi.json"))
	var spec struct{ Components struct{ Schemas object } }
	if err := json.Unmarshal(data, &spec); err != nil {
		t.Fatal(err)
	}
	closed(spec.Components.Schemas)
	suffix := "-" + version
	if group != "" {
		suffix = "-" + strings.Split(group, ".")[0] + suffix
	}
	for _, kind := range kinds {
		found := false
		for name, schema := range spec.Components.Schemas {
			for _, gvk := range asList(schema.(object)["x-kubernetes-group-version-kind"]) {
				g := gvk.(object)
				if g["group"] == group && g["version"] == version && g["kind"] == kind {
					found = true
					writeSchema(t, dir, kind, suffix, object{"$ref": "#/components/schemas/" + name,
						"components": object{"schemas": spec.Components.Schemas}})
				}
			}
		}
		if !found {
			t.Fatalf("%s has no %s", file, kind)
		}
	}
}

func asList(v any) []any {
	list, _ := v.([]any)
	return list
}

// crdSchema writes the schema of a CustomResourceDefinition.
func crdSchema(t *testing.T, dir, file string) {
	t.Helper()
	var crd struct {
		Spec struct {
			Group    string
			Names    struct{ Kind string }
			Versions []struct {
				Name   string
				Schema struct{ OpenAPIV3Schema any }
			}
		}
	}
	if err := yaml.Unmarshal(readFile(t, file), &crd); err != nil {
		t.Fatal(err)
	}
	for _, v := range crd.Spec.Versions {
		closed(v.Schema.OpenAPIV3Schema)
		writeSchema(t, dir, crd.Spec.Names.Kind, "-"+strings.Split(crd.Spec.Group, ".")[0]+"-"+v.Name,
			v.Schema.OpenAPIV3Schema)
	}
}

// operatorKinds are those of Prometheus Operator, whose module has Go types and no schemas.
func operatorKinds() map[string]func() any {
	return map[string]func() any{
		"PodMonitor":     func() any { return &monitoring.PodMonitor{} },
		"ServiceMonitor": func() any { return &monitoring.ServiceMonitor{} },
		"PrometheusRule": func() any { return &monitoring.PrometheusRule{} },
	}
}

// check says what is wrong with an object; "" if nothing.
func check(t *testing.T, v validator.Validator, doc string) string {
	t.Helper()
	var o struct{ Kind string }
	if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
		return err.Error()
	}
	if into := operatorKinds()[o.Kind]; into != nil {
		if err := yaml.UnmarshalStrict([]byte(doc), into()); err != nil {
			return err.Error()
		}
		return ""
	}
	for _, r := range v.Validate("", io.NopCloser(strings.NewReader(doc))) {
		if r.Status != validator.Valid {
			return o.Kind + ": " + r.Err.Error()
		}
	}
	return ""
}

func newValidator(t *testing.T) validator.Validator {
	t.Helper()
	dir := t.TempDir()
	kubernetesSchemas(t, dir, "api__v1", "", "v1", "ConfigMap", "Service", "ServiceAccount")
	kubernetesSchemas(t, dir, "apis__apps__v1", "apps", "v1", "StatefulSet")
	kubernetesSchemas(t, dir, "apis__policy__v1", "policy", "v1", "PodDisruptionBudget")
	kubernetesSchemas(t, dir, "apis__networking.k8s.io__v1", "networking.k8s.io", "v1", "NetworkPolicy", "Ingress")
	crdSchema(t, dir, filepath.Join(moduleDir(t, keda, kedaSum), "config/crd/bases/keda.sh_scaledobjects.yaml"))
	crdSchema(t, dir, filepath.Join(moduleDir(t, gateway, gatewaySum), gatewayRoutes))
	v, err := validator.New([]string{dir + "/{{ .ResourceKind }}{{ .KindSuffix }}.json"}, validator.Opts{Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestKubernetesTakesIt checks every object of every release against the schemas of the API server,
// of KEDA, of the Gateway API and of Prometheus Operator. Unknown fields are errors.
func TestKubernetesTakesIt(t *testing.T) {
	v := newValidator(t)
	kinds := map[string]string{}
	for _, r := range releases() {
		for _, doc := range objects(t, r) {
			if wrong := check(t, v, doc); wrong != "" {
				t.Errorf("%s: %s\n%s", r.values, wrong, doc)
			}
			var o struct{ Kind string }
			_ = yaml.Unmarshal([]byte(doc), &o)
			kinds[o.Kind] = doc
		}
	}
	if len(kinds) != 12 {
		t.Errorf("%d kinds of objects, want 12", len(kinds))
	}
	// What is wrong is seen, in each kind.
	for kind, doc := range kinds {
		wrong := strings.Replace(doc, "\nspec:", "\nspec:\n  unheardOf: 1", 1)
		if wrong == doc { // it has no spec
			wrong = strings.Replace(doc, "\nmetadata:", "\nunheardOf: 1\nmetadata:", 1)
		}
		if check(t, v, wrong) == "" {
			t.Errorf("a %s with an unknown field passes", kind)
		}
	}
	for _, c := range [][2]string{
		{"StatefulSet", "periodSeconds: 10|periodSeconds: often"},
		{"StatefulSet", "podManagementPolicy: Parallel|podManagementPolicies: Parallel"},
		{"ScaledObject", "pollingInterval: 60|pollingInterval: often"},
		{"Ingress", "pathType: Prefix|pathType: [Prefix]"},
		{"HTTPRoute", "port: 8681|port: api"},
		{"PodMonitor", "interval: 15s|interval: [15s]"},
	} {
		from, to, _ := strings.Cut(c[1], "|")
		if doc := strings.Replace(kinds[c[0]], from, to, 1); doc == kinds[c[0]] || check(t, v, doc) == "" {
			t.Errorf("a %s with %q passes", c[0], to)
		}
	}
}
