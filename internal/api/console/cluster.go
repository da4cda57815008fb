package console

import (
	"slices"

	"github.com/waterclock/waterclock/internal/api"
)

// maxRows bounds a table of partitions.
const maxRows = 1000

type clusterPage struct {
	*api.Cluster
	Left int // partitions that are not shown
	Only string
}

func (c *Console) cluster(v *visit) error {
	p := &clusterPage{Cluster: &api.Cluster{}, Only: v.query("only")}
	if err := v.ask(call{path: []string{"cluster"}}, p.Cluster); err != nil {
		return err
	}
	if p.Only == "not-live" {
		p.Partitions = slices.DeleteFunc(p.Partitions, func(one api.OwnedPartition) bool { return one.State == "live" })
	}
	if n := len(p.Partitions); n > maxRows {
		p.Partitions, p.Left = p.Partitions[:maxRows], n-maxRows
	}
	return v.show(nil, "cluster", "Cluster", p)
}
