package node_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/waterclock/waterclock/internal/api/route"
	"github.com/waterclock/waterclock/internal/kafkatest"
	"github.com/waterclock/waterclock/internal/kafkatest/await"
	"github.com/waterclock/waterclock/internal/node"
	"github.com/waterclock/waterclock/test/rig"
)

// An instance that has left the group because it cannot read a changelog says so over the API, too. It does not say
// that no broker answers, however long ago it left.
func TestAResignedInstanceSaysWhy(t *testing.T) {
	t.Parallel()
	c := fake(t, "resigned")
	cfg := rig.Config(t, c.ListenAddrs(), requests)
	cfg.SessionTimeout = time.Second
	first := rig.Serve(t, cfg, node.Options{})
	first.Ready(2, limit)
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}
	cl := kafkatest.Client(t, kgo.SeedBrokers(cfg.Brokers...))
	rig.Send(t, cl, &kgo.Record{Topic: requests + ".waterclock.changelog", Key: []byte{4},
		Value: []byte("of a newer version")})
	var o node.Options
	get := withAPI(t, cfg, &o)
	in, _ := rig.ServeLogged(t, cfg, o)
	await.Until(t, limit, "it has left", func() bool {
		_, body := in.Readyz()
		return strings.Contains(body, "left the group")
	})
	left := time.Now()
	await.Until(t, limit, "two session timeouts are over",
		func() bool { return time.Since(left) > 2*cfg.SessionTimeout })
	var is struct {
		Asked     string           `json:"asked"`
		Instances []route.Instance `json:"instances"`
	}
	if status := get("/v1/cluster", &is); status != 200 {
		t.Fatal(status)
	}
	i := slices.IndexFunc(is.Instances, func(i route.Instance) bool { return i.Name == is.Asked })
	if i < 0 || !strings.HasPrefix(is.Instances[i].Problem, "left the group: ") ||
		!strings.HasSuffix(is.Instances[i].Problem, "run a version that can read it") {
		t.Errorf("%+v", is)
	}
}
