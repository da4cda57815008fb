// Package host tests what runs without a cluster: the compose file, the systemd unit and the packages.
package host
