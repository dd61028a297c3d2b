# The service as an image, for machines where its sandboxes are containers of a Docker engine (docs/how-to/deploy.md).
#
#   docker build --tag agent-workspace .
#
# Needs no BuildKit. Other base images: --build-arg BUILD_IMAGE=… and RUNTIME_IMAGE=…, with Debian's package manager and
# the same release of glibc and OpenSSL, or a newer one at run time. Where the build is ended for want of memory (signal: 9):
# --build-arg PROFILE=release, which links crates as they are; the program is larger.
ARG BUILD_IMAGE=rust:1.95-bookworm
ARG RUNTIME_IMAGE=debian:bookworm-slim
# The stage with the program, or an image that has it already, as `cargo xtask package` makes one.
ARG PROGRAM=build

FROM ${BUILD_IMAGE} AS build
RUN apt-get update \
 && apt-get install --yes --no-install-recommends libssl-dev make pkg-config \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
ARG PROFILE=dist
RUN cargo build --locked --profile "${PROFILE}" --package server \
 && mkdir -p /agent-workspace/bin \
 && cp "target/${PROFILE}/agent-workspace" /agent-workspace/bin/

FROM ${PROGRAM} AS program

FROM ${RUNTIME_IMAGE}
RUN apt-get update \
 && apt-get install --yes --no-install-recommends ca-certificates libssl3 \
 && rm -rf /var/lib/apt/lists/* \
 && mkdir -p /data \
 && chown 10001:10001 /data \
 && chmod 0700 /data
COPY --from=program /agent-workspace /usr/local

# An unprivileged user. To let it use the engine, add the group of the socket:
# docker run --group-add "$(stat -c %g /var/run/docker.sock)".
USER 10001:10001
ENV HOME=/data \
    WORKSPACE_DATA_DIR=/data \
    WORKSPACE_HTTP__BIND=0.0.0.0:3000 \
    WORKSPACE_SANDBOX__BACKEND=docker
# The master key, the first API key, and the name of this installation, which marks its sandboxes.
VOLUME /data
EXPOSE 3000
HEALTHCHECK --interval=10s --timeout=6s --start-period=20s --retries=3 CMD ["agent-workspace", "healthcheck"]
ENTRYPOINT ["agent-workspace"]
CMD ["serve"]
