# waterclock in an image of its own: one static binary, no shell, not root.
#
#   docker build -t waterclock .
#   docker run waterclock serve --brokers kafka:9092 --requests timers --targets '*'

FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o /out/waterclock ./cmd/waterclock \
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
ENTRYPOINT ["/waterclock"]
CMD ["serve"]
