package importtest

import (
	"slices"
	"testing"
)

const mod = "example.org/m"

func pkg(directory string, deps ...string) Package {
	p := Package{ImportPath: mod, Name: "p", Imports: deps, Deps: deps}
	if directory != "" {
		p.ImportPath += "/" + directory
	}
	return p
}

// Every rule has a planted import that it finds, and a lawful one beside it.
func TestCheckFindsPlantedImports(t *testing.T) {
	all := []string{
		mod + "/intake", mod + "/internal/kafka/topics", mod + "/statestore", mod + "/emitter",
		mod + "/internal/node/config", mod + "/internal/ownership/membership", mod + "/internal/node/ops",
	}
	behind := pkg("cmd/waterclock", mod+"/internal/node")
	behind.Deps = append(behind.Deps, kafka+"/pkg/kgo", pebble+"/v2")
	mainPkg := pkg("tools/gen")
	mainPkg.Name = "main"

	for _, tc := range []struct {
		name string
		pkg  Package
		want []string // imports found, "" is the directory itself
	}{
		{"command with Kafka", pkg("cmd/waterclock", kafka+"/pkg/kgo"), []string{kafka + "/pkg/kgo"}},
		{"command with Pebble", pkg("cmd/waterclock", pebble+"/v2"), []string{pebble + "/v2"}},
		{"command with both behind the service", behind, nil},
		{"intake with Pebble", pkg("intake", pebble+"/v2/vfs", kafka+"/pkg/kgo"), []string{pebble + "/v2/vfs"}},
		{"below intake", pkg("intake/track", mod+"/emitter"), []string{mod + "/emitter"}},
		{"intake with its own", pkg("intake", mod+"/intake/track", mod+"/internal/timer"), nil},
		{"topics with the memtable", pkg("internal/kafka/topics", mod+"/internal/partition/memtable"), []string{mod + "/internal/partition/memtable"}},
		{"topics with a name alike", pkg("internal/kafka/topics", mod+"/internal/memtables"), nil},
		{"store with Kafka", pkg("statestore", kafka+"/pkg/kmsg", pebble+"/v2"), []string{kafka + "/pkg/kmsg"}},
		{"store with topics", pkg("statestore", mod+"/internal/kafka/topics"), []string{mod + "/internal/kafka/topics"}},
		{"transactions with Pebble", pkg("emitter", pebble+"/v2"), []string{pebble + "/v2"}},
		{"transactions with the store", pkg("emitter", mod+"/statestore"), []string{mod + "/statestore"}},
		{"repair with transactions", pkg("emitter/repair", mod+"/emitter/targets", mod+"/emitter"), []string{mod + "/emitter"}},
		{"targets with repair", pkg("emitter/targets", mod+"/emitter/repair", mod+"/internal/timer"), []string{mod + "/emitter/repair"}},
		{"timer with anything", pkg("internal/timer", mod+"/internal/partition/memtable", "time"), []string{mod + "/internal/partition/memtable"}},
		{"timer with the root", pkg("internal/timer", mod), []string{mod}},
		{"memtable with timer", pkg("internal/partition/memtable", mod+"/internal/timer"), nil},
		{"memtable with plans", pkg("internal/partition/memtable", mod+"/internal/partition/planner"), []string{mod + "/internal/partition/planner"}},
		{"memtable with Kafka", pkg("internal/partition/memtable", kafka+"/pkg/kgo"), []string{kafka + "/pkg/kgo"}},
		{"calendar with timers", pkg("internal/timer/calendar", mod+"/internal/timer", "time"), nil},
		{"calendar with requests", pkg("internal/timer/calendar", mod+"/intake"), []string{mod + "/intake"}},
		{"membership with plans", pkg("internal/ownership/membership", mod+"/internal/partition/planner"), []string{mod + "/internal/partition/planner"}},
		{"ownership that knows who owns", pkg("internal/ownership", mod+"/statestore", mod+"/internal/partition"), []string{mod + "/internal/partition"}},
		{"partition with settings", pkg("internal/partition", mod+"/internal/node/config", "github.com/spf13/pflag"), []string{mod + "/internal/node/config", "github.com/spf13/pflag"}},
		{"questions with those who plan", pkg("internal/partition/questions", mod+"/internal/partition/planner", mod+"/internal/partition"), []string{mod + "/internal/partition"}},
		{"delays with settings", pkg("delaytopics", mod+"/internal/node/config", mod+"/internal/partition"), []string{mod + "/internal/node/config"}},
		{"memory of what was counted with the console", pkg("internal/api/recent", mod+"/internal/api/console", "time"), []string{mod + "/internal/api/console"}},
		{"root with the service", pkg("", mod+"/internal/node", mod+"/internal/timer"), []string{mod + "/internal/node"}},
		{"product with test code", pkg("bench", mod+"/internal/kafkatest"), []string{mod + "/internal/kafkatest"}},
		{"product with instances for tests", pkg("bench", mod+"/test/rig"), []string{mod + "/test/rig"}},
		{"a new public directory", pkg("util"), []string{""}},
		{"a new command", mainPkg, nil},
		{"a second service", pkg("internal/simulator", all...), []string{""}},
		{"the service", pkg("internal/node", all...), nil},
		{"nearly all", pkg("internal/simulator", all[1:]...), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, v := range (checker{mod}).check([]Package{tc.pkg}) {
				got = append(got, v.Import)
				if v.Why == "" {
					t.Errorf("%s has no reason", v)
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("found %q, want %q", got, tc.want)
			}
		})
	}
}
