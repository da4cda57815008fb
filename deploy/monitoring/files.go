package monitoring

// Files returns the files that come from the list, by their path in the repository.
func Files() (map[string][]byte, error) {
	rules, err := Rules()
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{"deploy/prometheus/rules.yaml": rules}
	for _, d := range Dashboards() {
		if files["deploy/grafana/"+d.Name+".json"], err = d.JSON(); err != nil {
			return nil, err
		}
	}
	return files, nil
}
