package chart

import (
	"bytes"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/yaml"
)

const (
	chartDir = "../../helm/waterclock"
	// rewrite, set to 1, has the tests write snapshots and manifests instead of comparing them.
	rewrite = "WATERCLOCK_REWRITE"
)

// A release is what one set of values makes of the chart.
type release struct {
	name, namespace string
	values          string // file
	snapshot        string // file
}

func releases() []release {
	return []release{
		{"waterclock", "waterclock", "../../kubernetes/values.yaml", "../../kubernetes/waterclock.yaml"},
		{"timers", "shop", chartDir + "/ci/full-values.yaml", "testdata/full.yaml"},
		{"waterclock", "dev", chartDir + "/ci/least-values.yaml", "testdata/least.yaml"},
	}
}

// Helm logs each time that it follows the links to the rules and dashboards.
func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func readValues(t *testing.T, name string) map[string]any {
	t.Helper()
	values := map[string]any{}
	if err := yaml.UnmarshalStrict(readFile(t, name), &values); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return values
}

// template is "helm template": it returns the objects by the file that they come from.
func template(name, namespace string, values map[string]any) (map[string]string, error) {
	c, err := loader.Load(chartDir)
	if err != nil {
		return nil, err
	}
	options := common.ReleaseOptions{Name: name, Namespace: namespace, Revision: 1, IsInstall: true}
	all, err := util.ToRenderValues(c, values, options, common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(c, all)
}

// objects returns the documents of a rendered release, in the order of their files.
func objects(t *testing.T, r release) []string {
	t.Helper()
	files, err := template(r.name, r.namespace, readValues(t, r.values))
	if err != nil {
		t.Fatal(err)
	}
	var docs []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, "NOTES.txt") {
			if !strings.Contains(files[name], "rollout status statefulset/") {
				t.Errorf("the notes say %q", files[name])
			}
			continue
		}
		for doc := range strings.SplitSeq("\n"+files[name], "\n---") {
			if strings.TrimSpace(doc) != "" {
				docs = append(docs, strings.Trim(doc, "\n")+"\n")
			}
		}
	}
	return docs
}

// TestLint is "helm lint", which also evaluates the schema.
func TestLint(t *testing.T) {
	for _, r := range releases() {
		result := lint.RunAll(chartDir, readValues(t, r.values), r.namespace)
		for _, m := range result.Messages {
			if m.Severity > support.InfoSev {
				t.Errorf("%s: %v", r.values, m)
			}
		}
	}
}

// TestSnapshots compares what the chart makes with what is committed. One of the files is the plain
// manifests that people apply without Helm.
func TestSnapshots(t *testing.T) {
	for _, r := range releases() {
		var b bytes.Buffer
		b.WriteString("# Made from deploy/helm/waterclock by the test in deploy/check/chart with " +
			filepath.Base(r.values) + ".\n" +
			"# Rewrite it: WATERCLOCK_REWRITE=1 go -C deploy/check test ./chart\n")
		for _, doc := range objects(t, r) {
			if shown, ok := shorten(t, doc); ok {
				doc = shown
			}
			b.WriteString("---\n" + doc)
		}
		if os.Getenv(rewrite) != "" {
			if err := os.WriteFile(r.snapshot, b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if got := b.String(); got != string(readFile(t, r.snapshot)) {
			t.Errorf("%s is not what the chart makes: %s=1 go -C deploy/check test ./chart, and read the difference",
				r.snapshot, rewrite)
		}
	}
}

// shorten replaces rules and dashboards by their names, once they are what deploy/ has.
func shorten(t *testing.T, doc string) (string, bool) {
	t.Helper()
	var o struct {
		Kind     string
		Metadata struct{ Name string }
		Data     map[string]string
		Spec     map[string]any
	}
	if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
		t.Fatalf("%v\n%s", err, doc)
	}
	switch {
	case o.Kind == "PrometheusRule":
		var want map[string]any
		if err := yaml.Unmarshal(readFile(t, "../../prometheus/rules.yaml"), &want); err != nil {
			t.Fatal(err)
		}
		got, err1 := yaml.Marshal(o.Spec)
		all, err2 := yaml.Marshal(want)
		if err1 != nil || err2 != nil || !bytes.Equal(got, all) {
			t.Errorf("%s does not have the rules of deploy/prometheus: %v, %v", o.Metadata.Name, err1, err2)
		}
		head, _, _ := strings.Cut(doc, "\nspec:")
		return head + "\n# spec: deploy/prometheus/rules.yaml\n", true
	case o.Kind == "ConfigMap" && o.Data["waterclock.yaml"] == "":
		for name, text := range o.Data {
			file := strings.TrimPrefix(name, "waterclock-")
			if len(o.Data) != 1 || text != string(readFile(t, "../../grafana/"+file)) {
				t.Errorf("%s does not have deploy/grafana/%s", o.Metadata.Name, file)
			}
			head, _, _ := strings.Cut(doc, "\ndata:")
			return head + "\n# data: deploy/grafana/" + file + "\n", true
		}
	}
	return "", false
}

// TestRunbook looks at where the alerts send people: to the document's name, or to the address of its copy.
func TestRunbook(t *testing.T) {
	values := readValues(t, releases()[1].values)
	for address, want := range map[string]string{
		"":                                 "docs/RUNBOOK.md",
		"https://wiki.example.org/runbook": "https://wiki.example.org/runbook",
	} {
		values["rules"] = map[string]any{"enabled": true, "runbook": address}
		files, err := template("waterclock", "waterclock", values)
		if err != nil {
			t.Fatal(err)
		}
		all := strings.Join(slices.Collect(maps.Values(files)), "")
		alerts := strings.Count(all, "- alert: ")
		if n := strings.Count(all, `runbook_url: "`+want+"#waterclock"); alerts < 20 || n != alerts {
			t.Errorf("%q: %d of %d alerts name %s", address, n, alerts, want)
		}
	}
}

// TestDashboardsAreAllThere holds the chart's dashboards against deploy/grafana.
func TestDashboardsAreAllThere(t *testing.T) {
	files, err := filepath.Glob("../../grafana/*.json")
	if err != nil || len(files) < 5 {
		t.Fatalf("%v, %v", files, err)
	}
	all := strings.Join(objects(t, releases()[1]), "---\n")
	for _, f := range files {
		if !strings.Contains(all, "\n  waterclock-"+filepath.Base(f)+": |") {
			t.Errorf("the chart has no %s", filepath.Base(f))
		}
	}
}

// TestRefused gives the chart values that would make instances that do not start, or that do harm.
func TestRefused(t *testing.T) {
	type object = map[string]any
	for name, c := range map[string]struct {
		change func(v object)
		want   string
	}{
		"no brokers":          {func(v object) { delete(v["config"].(object), "brokers") }, "brokers"},
		"nothing served":      {func(v object) { delete(v["config"].(object), "requests") }, "requests"},
		"unknown setting":     {func(v object) { v["config"].(object)["target"] = "orders" }, "target"},
		"the chart's setting": {func(v object) { v["config"].(object)["data-dir"] = "/tmp" }, "data-dir"},
		"a secret as text": {func(v object) { v["secrets"] = object{"sasl-password-file": "hunter2"} },
			"sasl-password-file"},
		"unknown secret": {func(v object) { v["secrets"] = object{"password": object{"name": "a", "key": "b"}} },
			"password"},
		"half a certificate": {func(v object) { v["secrets"] = object{"tls-cert": object{"name": "a", "key": "b"}} },
			"tls-key"},
		"unknown value": {func(v object) { v["replica"] = 2 }, "replica"},
		"no image":      {func(v object) { delete(v, "image") }, "nobody publishes an image"},
		"no instances":  {func(v object) { v["replicas"] = 0 }, "replicas"},
		"left in a file": {func(v object) { v["config"].(object)["accept-lost-changelog"] = true },
			"for one start and no value"},
		"too little memory": {func(v object) { v["memory"] = 128 }, "memory"},
		"GOMEMLIMIT": {func(v object) { v["env"] = []any{object{"name": "GOMEMLIMIT", "value": "1GiB"}} },
			"env"},
		"API without callers": {func(v object) { v["api"] = object{"enabled": true} }, "api"},
		"API without a key":   {func(v object) { v["api"] = object{"enabled": true, "open": true} }, "api-key-file"},
		"scaled to 0": {func(v object) {
			v["autoscaling"] = object{"enabled": true, "prometheus": "http://p", "max": 4, "min": 0}
		}, "min"},
		"scaled without limit": {func(v object) {
			v["autoscaling"] = object{"enabled": true, "prometheus": "http://p"}
		}, "max"},
		"scaled by nothing": {func(v object) { v["autoscaling"] = object{"enabled": true, "max": 4} },
			"prometheus"},
		"a host with a port":    {func(v object) { v["api"] = object{"hosts": []any{"timers:443"}} }, "hosts"},
		"an Ingress for nobody": {func(v object) { v["ingress"] = object{"enabled": true} }, "hosts"},
		"a route to no API": {func(v object) {
			gateways := []any{object{"name": "public"}}
			v["httpRoute"] = object{"enabled": true, "parentRefs": gateways, "hostnames": []any{"timers.example.org"}}
		}, "set api.enabled"},
		"an Ingress that may not enter": {func(v object) {
			v["ingress"] = object{"enabled": true, "hosts": []any{"timers.example.org"}}
			v["api"] = object{"enabled": true}
			secret := object{"name": "a", "key": "b"}
			v["secrets"] = object{"api-users": secret, "api-key-file": secret}
		}, "networkPolicy.apiFrom"},
		"a container without a name": {func(v object) {
			v["extraContainers"] = []any{object{"image": "a:1"}}
		}, "extraContainers"},
		"scraped too seldom": {func(v object) {
			v["monitor"] = object{"kind": "PodMonitor", "interval": "1m"}
		}, "interval"},
	} {
		t.Run(name, func(t *testing.T) {
			values := readValues(t, releases()[0].values)
			c.change(values)
			if _, err := template("waterclock", "waterclock", values); err == nil ||
				!strings.Contains(err.Error(), c.want) {
				t.Errorf("want an error that names %q, have %v", c.want, err)
			}
		})
	}
}

// TestOpenHosts looks at the names under which an open API answers: those by which callers inside and outside of the
// cluster know it. An API with users answers under any.
func TestOpenHosts(t *testing.T) {
	values := readValues(t, releases()[1].values) // which have ways from outside
	args := func() string {
		files, err := template("timers", "shop", values)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(slices.Collect(maps.Values(files)), "")
	}
	if strings.Contains(args(), "--api-host") {
		t.Error("an API with users has hosts")
	}
	delete(values["secrets"].(map[string]any), "api-users")
	values["api"] = map[string]any{"enabled": true, "open": true, "hosts": []any{"proxy.internal"}}
	const want = "            - --api-host=timers-waterclock,timers-waterclock.shop,timers-waterclock.shop.svc," +
		"timers-waterclock.shop.svc.cluster.local,timers.example.org,*.timers.example.org,proxy.internal\n"
	if !strings.Contains(args(), "            - --api-open\n"+want) {
		t.Errorf("want %q", want)
	}
}

// TestStop looks at what a pod does before it is stopped. With the API it goes on for 5 s, until callers know.
func TestStop(t *testing.T) {
	for _, x := range []struct {
		api      bool
		drain    any
		standbys int
		want     string
	}{
		{false, 0, 1, ""},
		{false, nil, 0, ""},
		{false, nil, 1, `"--within=40s"]`},
		{true, 0, 1, "preStop:\n              sleep:\n                seconds: 5\n"},
		{false, 40, 0, `command: ["/waterclock", "drain", "--data-dir=/data", "--within=40s"]`},
		{true, 40, 0, `command: ["/waterclock", "drain", "--data-dir=/data", "--after=5s", "--within=40s"]`},
	} {
		values := readValues(t, releases()[1].values) // which have what the API needs
		delete(values, "ingress")
		delete(values, "httpRoute")
		values["api"], values["drainSeconds"] = map[string]any{"enabled": x.api}, x.drain
		values["config"].(map[string]any)["standbys"] = x.standbys
		files, err := template("waterclock", "waterclock", values)
		if err != nil {
			t.Fatal(err)
		}
		all := strings.Join(slices.Collect(maps.Values(files)), "")
		if strings.Contains(all, "preStop:") != (x.want != "") || !strings.Contains(all, x.want) {
			t.Errorf("API %v, drainSeconds %v, %d standbys: want %q", x.api, x.drain, x.standbys, x.want)
		}
	}
}

// TestStrimziValues renders the values for Strimzi, and looks for the secrets that Strimzi makes for the cluster and
// the user of the resources beside them.
func TestStrimziValues(t *testing.T) {
	values := readValues(t, "../../strimzi/values.yaml")
	if _, err := template("waterclock", "kafka", values); err != nil {
		t.Fatal(err)
	}
	resources := string(readFile(t, "../../strimzi/waterclock.yaml"))
	for setting, want := range map[string]string{
		"tls-ca":             "strimzi.io/cluster: %-cluster-ca-cert",
		"sasl-password-file": "kind: KafkaUser\nmetadata:\n  name: %",
	} {
		name := values["secrets"].(map[string]any)[setting].(map[string]any)["name"].(string)
		before, after, _ := strings.Cut(want, "%")
		if !strings.Contains(resources, before+strings.TrimSuffix(name, after)) || !strings.HasSuffix(name, after) {
			t.Errorf("%s is from the secret %s, which nothing makes", setting, name)
		}
	}
}

// TestDocumentedValues renders the values that docs/DEPLOY.md shows, each block with those before it.
func TestDocumentedValues(t *testing.T) {
	blocks := strings.Split(string(readFile(t, "../../../docs/DEPLOY.md")), "\n```yaml\n")[1:]
	adds := []string{"", "Ingress", "ServiceAccount", "ScaledObject"} // one kind by each block
	if len(blocks) != len(adds) {
		t.Fatalf("docs/DEPLOY.md has %d blocks of values, want %d", len(blocks), len(adds))
	}
	values := map[string]any{}
	for i, b := range blocks {
		text, _, _ := strings.Cut(b, "\n```")
		var said map[string]any
		if err := yaml.UnmarshalStrict([]byte(text), &said); err != nil {
			t.Fatal(err)
		}
		maps.Copy(values, said)
		files, err := template("waterclock", "waterclock", values)
		if err != nil {
			t.Fatal(err)
		}
		all := strings.Join(slices.Collect(maps.Values(files)), "")
		want := append([]string{"StatefulSet", "PodMonitor", "PrometheusRule"}, adds[1:i+1]...)
		for _, kind := range append(adds[1:], want...) {
			if wanted := slices.Contains(want, kind); strings.Contains("\n"+all, "\nkind: "+kind+"\n") != wanted {
				t.Errorf("values %d make a %s: %v", i, kind, !wanted)
			}
		}
	}
}
