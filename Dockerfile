# waterclock in an image of its own: one static binary, no shell, not root.
#
#   docker build -t waterclock .
#   docker run --read-only waterclock serve --brokers kafka:9092 --requests timers --targets '*'
#
# For several architectures at once, each cross-compiled on the builder's own:
#
#   docker buildx build --platform linux/amd64,linux/arm64 -t REGISTRY/waterclock --push .
#
# Nobody publishes an image: REGISTRY is your own, and the chart has to be told (image.repository).

FROM --platform=$BUILDPLATFORM golang:1.26 AS build
ARG TARGETOS TARGETARCH
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -ldflags='-s -w' -o /out/waterclock ./cmd/waterclock \
 && mkdir /out/data

FROM scratch
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
EXPOSE 8680
# Whether it answers, not whether it is ready: a restart would not help that. Kubernetes has probes
# of its own. Asks WATERCLOCK_HTTP: change the address there, not with --http.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=6 CMD ["/waterclock", "health"]
ENTRYPOINT ["/waterclock"]
CMD ["serve"]
