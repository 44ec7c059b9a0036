# syntax=docker/dockerfile:1
# The launcher on a Dynamo runtime image: one image for the deployment, the model job and the benchmark job.
#
#   docker build -t gpt-oss-launcher:vllm-1.3.1 .
#   docker build -t gpt-oss-launcher:trtllm-1.2.1 --build-arg ENGINE=trtllm .
#   docker buildx build --platform linux/amd64,linux/arm64 ...                     (GB200 nodes are arm64)
#
# The launcher has an environment of its own, /opt/launcher/.venv, installed from uv.lock; its children run under the
# base image's interpreter. So no package of the base image changes, and the launcher runs on the versions that it was
# tested with. Installed into the base with --no-deps instead, it would run on whatever versions that image has.

ARG REGISTRY=nvcr.io/nvidia/ai-dynamo
# The releases that the targets are validated with; a digest can follow, as in 1.3.1@sha256:...
ARG VLLM_TAG=1.3.1
ARG TRTLLM_TAG=1.2.1
ARG ENGINE=vllm
ARG UV=ghcr.io/astral-sh/uv:0.13.9

FROM ${UV} AS uv

FROM ${REGISTRY}/vllm-runtime:${VLLM_TAG} AS base-vllm

FROM ${REGISTRY}/tensorrtllm-runtime:${TRTLLM_TAG} AS base-trtllm

# hadolint ignore=DL3006
FROM base-${ENGINE} AS base

FROM base AS build
# hadolint ignore=DL3002
USER 0
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
COPY --from=uv /uv /usr/local/bin/uv
ENV UV_PYTHON_DOWNLOADS=never UV_LINK_MODE=copy
# What the base image has, for the comparison at the end.
RUN mkdir /base \
    && uv pip freeze --python "$(command -v python3)" > /base/packages \
    && { uv pip check --python "$(command -v python3)" 2>&1 | grep -Ev '^(Using|Checked) ' > /base/conflicts || true; }
WORKDIR /opt/launcher
# Dependencies first: they change less often than the code. Dynamo itself is the base image's, so it and what only it
# needs are left out. Every file is checked against its hash in the lock.
# BENCH=1 adds AIPerf (some 800 MB) for the benchmark job; amd64 only, since one of its packages has no arm64 wheel.
ARG BENCH=
RUN --mount=type=bind,source=pyproject.toml,target=/lock/pyproject.toml \
    --mount=type=bind,source=uv.lock,target=/lock/uv.lock \
    --mount=type=cache,target=/root/.cache/uv \
    extra=--no-dev && if [ -n "${BENCH}" ]; then extra=--extra=bench; fi \
    && uv export --quiet --project /lock --locked --no-default-groups "$extra" --no-emit-project \
        --prune ai-dynamo --output-file /base/requirements.txt \
    && uv venv --quiet --python "$(command -v python3)" .venv \
    && uv pip install --quiet --python .venv/bin/python --require-hashes --no-deps --only-binary :all: \
        -r /base/requirements.txt \
    && echo /opt/launcher > "$(.venv/bin/python -c 'import site; print(site.getsitepackages()[0])')/launcher.pth" \
    && .venv/bin/python -m compileall -q --invalidation-mode unchecked-hash .venv \
    && find . -exec touch --no-dereference --date=@0 {} +
COPY launcher /code/launcher
COPY configs/targets /code/configs/targets
COPY entrypoints /code/entrypoints
# Compiled without time stamps, so that the same sources make the same bytes; a read-only root cannot compile later.
RUN .venv/bin/python -m compileall -q --invalidation-mode unchecked-hash -s /code -p /opt/launcher /code/launcher \
    && chmod -R a+rX,go-w /code \
    && find /code -exec touch --no-dereference --date=@0 {} +

FROM base AS launcher
ARG ENGINE
ARG VERSION=0.1.0
ARG REVISION=unknown
USER 0
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
COPY --from=build /opt/launcher/.venv /opt/launcher/.venv
COPY --from=build /code /opt/launcher
# Nothing of the base changed, Dynamo is there, and the launcher starts as an unknown user without a home.
RUN --mount=type=bind,from=uv,source=/uv,target=/run/uv \
    --mount=type=bind,from=build,source=/base,target=/run/base \
    diff /run/base/packages <(/run/uv pip freeze --python "$(command -v python3)") \
    && diff /run/base/conflicts <(/run/uv pip check --python "$(command -v python3)" 2>&1 | grep -Ev '^(Using|Checked) ' || true) \
    && python3 -c 'from importlib.metadata import version; print("ai-dynamo", version("ai-dynamo"))' \
    && ! python3 -I -c 'import launcher' 2> /dev/null \
    && /opt/launcher/entrypoints/launcher --version \
    && /opt/launcher/entrypoints/launcher plan --target sim > /dev/null \
    && ln -s /opt/launcher/entrypoints/launcher /usr/local/bin/launcher \
    && install -d -o 1000 -g 0 -m 2775 /model-cache
# A home that any user may write to, also with a read-only root; the model cache is a volume in practice.
ENV HOME=/tmp \
    HF_HOME=/model-cache \
    LAUNCHER_PYTHON=python3
WORKDIR /tmp
# The base images' own user, by number so that runAsNonRoot can be checked; its group 0 is what OpenShift gives.
USER 1000:0
EXPOSE 8000 9000
HEALTHCHECK --interval=10s --timeout=5s --start-period=30m --start-interval=2s --retries=3 \
    CMD ["/opt/launcher/entrypoints/healthcheck"]
LABEL org.opencontainers.image.title="gpt-oss-launcher" \
    org.opencontainers.image.description="Serves gpt-oss-120b on NVIDIA Dynamo (${ENGINE})" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}"
# In place of the base's nvidia_entrypoint.sh, which prints a banner and would stand between the runtime and PID 1.
# No CMD: without words the launcher serves LAUNCHER_TARGET, or says that no target was named.
ENTRYPOINT ["/opt/launcher/entrypoints/launcher"]
