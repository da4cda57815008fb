// Package apply installs the chart with a real etcd, kube-apiserver and kube-controller-manager, which it builds from
// modules: make apply. There is no kubelet, so no pod runs; the test reports them as ready instead. The package and
// the programs it starts (controlplane) are modules of their own, so that Kubernetes is built with exactly the
// versions that it is released with.
package apply
