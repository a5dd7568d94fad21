FROM golang:1.26.9@sha256:f1f0bcc2c524a3ced375fcb4d1ecb7aa371aa7070e112599aaca45cc02d0101b AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# What --version says: docker build --build-arg VERSION="$(git describe --tags --always --dirty)" .
ARG VERSION=""
RUN CGO_ENABLED=0 go build -trimpath -ldflags="-s -w -X spillway/internal/cli.built=$VERSION" -o /out/ ./cmd/dispatcher ./cmd/enqueue && mkdir /out/state

# Nothing but the two programs and the certificates that payment gateways are checked against: no shell, no package manager.
FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/dispatcher /dispatcher
COPY --from=build /out/enqueue /enqueue
# What the dispatchers of this machine have seen of Redis: give it a volume, or a restored snapshot is noticed only by those that run.
COPY --from=build --chown=65532:65532 /out/state /var/lib/spillway
ENV STATE_DIRECTORY=/var/lib/spillway
USER 65532:65532
EXPOSE 9400
ENTRYPOINT ["/dispatcher"]
