// Package chart tests the Helm chart with Helm's and kubeconform's own packages, and checks that the plain manifests
// in deploy/kubernetes match it.
package chart
