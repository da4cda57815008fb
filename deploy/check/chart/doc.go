// Package chart tests the Helm chart with Helm's and kubeconform's own packages, and holds the plain
// manifests in deploy/kubernetes in step with it.
package chart
