// Package host tests deployments without a cluster: the compose file, the systemd unit and the packages.
package host
