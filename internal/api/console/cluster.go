package console

import (
	"net/http"

	"github.com/waterclock/waterclock/internal/api"
)

// maxRows bounds a table of partitions.
const maxRows = 1000

type clusterPage struct {
	*api.Cluster
	Left int // partitions that are not shown
	Only string
}

func (c *Console) cluster(v *visit) {
	p := &clusterPage{Cluster: &api.Cluster{}, Only: v.query("only")}
	if err := v.ask(call{path: []string{"v1", "cluster"}}, p.Cluster); err != nil {
		v.fail(asProblem(err))
		return
	}
	if p.Only == "not-live" {
		some := p.Partitions[:0:0]
		for _, one := range p.Partitions {
			if one.State != "live" {
				some = append(some, one)
			}
		}
		p.Partitions = some
	}
	if n := len(p.Partitions); n > maxRows {
		p.Partitions, p.Left = p.Partitions[:maxRows], n-maxRows
	}
	v.show(http.StatusOK, "cluster", "Cluster", p)
}
