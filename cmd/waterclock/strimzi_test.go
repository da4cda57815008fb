package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// strimziResource is what deploy/strimzi uses of Strimzi's KafkaTopic and KafkaUser. Decoding is strict.
type strimziResource struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string
	Metadata   struct {
		Name   string
		Labels map[string]string
	}
	Spec struct {
		Partitions, Replicas int               // of a topic
		Config               map[string]string // of a topic
		Authentication       struct{ Type string }
		Authorization        struct {
			Type string
			ACLs []struct {
				Resource struct {
					Type, Name string
					Pattern    string `yaml:"patternType"`
				}
				Operations []string
			} `yaml:"acls"`
		}
	}
}

// strimzi returns the topics and the rights of the example, a line each.
func strimzi(t *testing.T) (topics, rights []string) {
	t.Helper()
	f, err := os.Open(rootDir + "deploy/strimzi/waterclock.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for d := yaml.NewDecoder(f, yaml.Strict()); ; {
		var r strimziResource
		if err := d.Decode(&r); errors.Is(err, io.EOF) {
			return topics, rights
		} else if err != nil {
			t.Fatal(err)
		}
		if r.APIVersion != "kafka.strimzi.io/v1" || r.Metadata.Labels["strimzi.io/cluster"] == "" {
			t.Errorf("%s %s is of no cluster of Strimzi", r.Kind, r.Metadata.Name)
		}
		if r.Kind == "KafkaTopic" {
			topics = append(topics, r.Metadata.Name)
		}
		for _, acl := range r.Spec.Authorization.ACLs {
			for _, op := range acl.Operations {
				rights = append(rights, strings.Join([]string{
					r.Metadata.Name, acl.Resource.Type, acl.Resource.Name, acl.Resource.Pattern, op,
				}, " "))
			}
		}
	}
}

// TestStrimziExample holds the users of the example against what "topics acls" prints for the values beside it: the
// same rights, neither more nor fewer.
func TestStrimziExample(t *testing.T) {
	var values struct {
		Config map[string]any
		API    struct{ Enabled bool }
	}
	parseFile(t, "deploy/strimzi/values.yaml", &values)
	settings, err := yaml.Marshal(values.Config)
	if err != nil {
		t.Fatal(err)
	}
	dir := secretFiles(t)
	file := filepath.Join(dir, "waterclock.yaml")
	if err := os.WriteFile(file, settings, 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{
		"topics", "acls", "--config", file, "--sasl-password-file", filepath.Join(dir, "sasl-password-file"),
		"--producers", "User:shop", "--consumers", "User:billing", "--consumer-group", "billing",
	}
	if values.API.Enabled {
		args = append(args, "--api", "127.0.0.1:8681")
	}
	var c calls
	code, printed, stderr := runWith(&c, nil, "", args...)
	if code != exitOK {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	grant := regexp.MustCompile(
		`--allow-principal User:(\S+)((?: --operation \S+)+) --(group|topic|transactional-id) (\S+)(.*)`)
	kinds := map[string]string{"group": "group", "topic": "topic", "transactional-id": "transactionalId"}
	var want []string
	for _, g := range grant.FindAllStringSubmatch(printed, -1) {
		if g[1] == "operator" { // the example has none: operators use the API
			continue
		}
		pattern := "literal"
		if strings.Contains(g[5], "prefixed") {
			pattern = "prefix"
		}
		for _, op := range strings.Split(g[2], " --operation ")[1:] {
			want = append(want, strings.Join([]string{g[1], kinds[g[3]], g[4], pattern, op}, " "))
		}
	}
	topics, got := strimzi(t)
	slices.Sort(want)
	slices.Sort(got)
	if len(want) < 20 || !slices.Equal(got, want) {
		t.Errorf("deploy/strimzi grants\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if !slices.Equal(topics, []string{"timers", "orders"}) {
		t.Errorf("the topics are %v", topics)
	}
}
