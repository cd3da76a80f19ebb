# Alone, a container is a whole installation, but serves only itself. For others:
#   docker run --restart unless-stopped -p 127.0.0.1:4222:4222 -v leaf:/data --stop-timeout 60 \
#     -v ./secrets:/secrets:ro -e LEAF_LISTEN=0.0.0.0:4222 -e LEAF_USER=leaf \
#     -e LEAF_PASSWORD_FILE=/secrets/nats -e LEAF_TAG=order leafbus
# (files that user 65532 can read); and for HTTP too: -p 127.0.0.1:8080:8080 -e LEAF_HTTP=0.0.0.0:8080
#     -e LEAF_HTTP_TOKEN_FILE=/secrets/http
# docker-compose.yml has generators that share a NATS.

# The root of a container may be read-only (--read-only): all state is in /data. Another base needs certificate
# authorities, and nothing else: docker build --build-arg BASE=…
ARG BASE=gcr.io/distroless/static-debian12:nonroot

# build needs git, which -alpine has not: the program's version comes from .git.
FROM --platform=$BUILDPLATFORM golang:1.26-bookworm AS build
ARG TARGETOS TARGETARCH
WORKDIR /src
# These first, so that a change of the sources downloads no module again.
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -ldflags='-s -w' -o /out/leaf ./cmd/leaf
# A new volume takes its owner from the image's folder.
RUN mkdir /out/data

FROM ${BASE}
ARG VERSION=unknown REVISION=unknown
LABEL org.opencontainers.image.title="Leafbus" \
      org.opencontainers.image.description="Distributed 64-bit IDs over NATS" \
      org.opencontainers.image.source="https://github.com/leafbus/leafbus" \
      org.opencontainers.image.documentation="https://github.com/leafbus/leafbus/tree/main/docs" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /out/leaf /leaf
COPY --from=build --chown=65532:65532 /out/data /data
USER 65532:65532
ENV LEAF_DATA_DIR=/data
VOLUME /data
# NATS and HTTP: Leaf's API, dashboard, metrics, health.
EXPOSE 4222 8080
# It asks this container's generator alone, by HTTP, whether it is alive. It knows where by
# LEAF_HTTP (and LEAF_HTTP_TLSCERT) in the environment, not by arguments of serve; whoever
# turns HTTP off turns this off, too (--no-healthcheck).
HEALTHCHECK --interval=10s --timeout=5s --start-period=15s CMD ["/leaf", "health"]
# No shell between, so that SIGTERM drains the generator.
ENTRYPOINT ["/leaf"]
CMD ["serve"]
