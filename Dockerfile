# waterclock in an image of its own: one static binary, no shell, not root.
#
#   docker build -t waterclock .
#   docker run --read-only waterclock serve --brokers kafka:9092 --requests timers --targets '*'
#
# For several architectures at once, each cross-compiled on the builder's own, and with a version:
#
#   docker buildx build --platform linux/amd64,linux/arm64 --build-arg VERSION=0.1.0 \
#     --build-arg REVISION="$(git rev-parse HEAD)" -t REGISTRY/waterclock:0.1.0 --push .
#
# Nobody publishes an image: REGISTRY is your own, and the chart has to be told (image.repository).

# For another Go, or from a mirror: --build-arg GO_IMAGE=...
ARG GO_IMAGE=golang:1.26.8@sha256:0f063af2d465d8dcae54cce04278ada488b96f77b42449c8d071e47d016cc65a
FROM --platform=$BUILDPLATFORM ${GO_IMAGE} AS build
ARG TARGETOS TARGETARCH
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    mkdir -p /out/data \
 && CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags='-s -w' -o /out/waterclock ./cmd/waterclock

FROM scratch
ARG VERSION=unreleased
ARG REVISION=unknown
LABEL org.opencontainers.image.title="waterclock" \
      org.opencontainers.image.description="An exactly-once timer service inside Kafka" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION"
# Authorities for TLS, time zones for calendars.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /usr/local/go/lib/time/zoneinfo.zip /usr/share/zoneinfo.zip
COPY --from=build /out/waterclock /waterclock
COPY --from=build --chown=65532:65532 /out/data /data
USER 65532:65532
ENV ZONEINFO=/usr/share/zoneinfo.zip
ENV WATERCLOCK_DATA_DIR=/data
ENV WATERCLOCK_HTTP=:8680
VOLUME /data
# Metrics and readiness; the API, if --api is :8681.
EXPOSE 8680 8681
# Whether it answers, not whether it is ready: a restart would not help that. Kubernetes has probes
# of its own. Asks WATERCLOCK_HTTP: change the address there, not with --http.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=6 CMD ["/waterclock", "health"]
ENTRYPOINT ["/waterclock"]
CMD ["serve"]
