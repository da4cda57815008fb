package localkafka

import (
	"maps"
	"os"
	"testing"
)

func TestJavaMajor(t *testing.T) {
	for _, tc := range []struct {
		name, out string
		want      int
	}{
		{"seventeen", `openjdk version "17.0.15" 2025-04-15`, 17},
		{"early access", `openjdk version "26-ea" 2026-03-17`, 26},
		{"eight", `java version "1.8.0_392"`, 8},
		{"none", "command not found", 0},
		{"absurd", `version "99999999999999999999"`, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := javaMajor(tc.out); got != tc.want {
				t.Errorf("javaMajor = %d, want %d", got, tc.want)
			}
		})
	}
}

func TestProperties(t *testing.T) {
	const group, rf, isr = "group.min.session.timeout.ms", "offsets.topic.replication.factor", "min.insync.replicas"
	one, three := []string{"127.0.0.1:1"}, []string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"}
	for _, tc := range []struct {
		name    string
		opts    []Option
		brokers []string
		want    map[string]string // "" means not there
	}{
		{"quick", nil, one, map[string]string{group: "1000", rf: "1", isr: "", "node.id": "0"}},
		{"apache", []Option{ApacheDefaults()}, one,
			map[string]string{group: "", "group.initial.rebalance.delay.ms": ""}},
		{"apache, but", []Option{WithProperty(group, "7"), ApacheDefaults()}, one, map[string]string{group: "7"}},
		{"three", nil, three, map[string]string{rf: "3", isr: "2", "transaction.state.log.min.isr": "2"}},
		{"override", []Option{WithProperty(isr, "1")}, three, map[string]string{isr: "1", rf: "3"}},
		{"listener", []Option{WithListener("SECURE", "SASL_SSL")}, one, map[string]string{
			"listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL",
			"advertised.listeners":           "PLAINTEXT://" + one[0] + ",SECURE://127.0.0.1:7",
		}},
		{"proxied listener", []Option{WithProxiedListener("PROXIED", "127.0.0.2")}, one, map[string]string{
			"listeners":            "PLAINTEXT://" + one[0] + ",CONTROLLER://" + one[0] + ",PROXIED://127.0.0.1:7",
			"advertised.listeners": "PLAINTEXT://" + one[0] + ",PROXIED://127.0.0.2:7",
		}},
		{"own", []Option{WithProperty("node.id", "9")}, one, map[string]string{"node.id": "0"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := newSettings(tc.opts).properties(0, tc.brokers, tc.brokers, []string{"127.0.0.1:7"}, "data")
			for k, want := range tc.want {
				if got[k] != want {
					t.Errorf("%s=%s, want %q", k, got[k], want)
				}
			}
			if again := parseProperties(string(formatProperties(got))); !maps.Equal(again, got) {
				t.Errorf("written and read again: %v, want %v", again, got)
			}
		})
	}
}

func TestBrokerLogShown(t *testing.T) {
	b := &Broker{dir: t.TempDir()}
	const before, info = "[2026-11-21] WARN of the test before\n", "[2026-11-21] INFO all is well (kafka.Log)\n"
	const wrong = "[2026-11-21] ERROR no disk (kafka.Log)\njava.io.IOException: INFO \n\tat Log.write\n"
	if err := os.WriteFile(b.logPath(), []byte(before+info+wrong+info), 0o600); err != nil {
		t.Fatal(err)
	}
	for all, want := range map[bool]string{true: info + wrong + info, false: wrong} {
		if got := string(b.Log(int64(len(before)), all)); got != want {
			t.Errorf("all %v: %q, want %q", all, got, want)
		}
	}
}

// What one test was given and has not used yet no other test is given.
func TestFreeAddrsDoesNotRepeatItself(t *testing.T) {
	given := make(map[string]bool)
	for range portShare / 2 {
		addrs, err := FreeAddrs(1)
		if err != nil {
			t.Fatal(err)
		}
		if given[addrs[0]] {
			t.Fatalf("%s was given before, %d addresses ago at most", addrs[0], len(given))
		}
		given[addrs[0]] = true
	}
}
