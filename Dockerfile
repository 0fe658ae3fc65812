# docker/README.md says how to build and run it, and what it needs of whoever runs it.
#   docker build -t leapjson .
#   docker build -t leapjson:cuda --build-arg ACCELERATOR=cuda .
#   docker build -t leapjson:smollm2 --build-arg MODEL=smollm2 .
FROM python:3.11-slim-bookworm AS base

FROM base AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
RUN python -m venv /opt/leapjson
ENV PATH=/opt/leapjson/bin:$PATH
COPY pyproject.toml constraints.txt docker/triton/build.sh docker/triton/cc ./

# torch alone comes from PyTorch's CPU index. What it depends on follows in the next step from the
# ordinary registry, where torch itself would be the CUDA build.
ARG ACCELERATOR=cpu
ARG TORCH_CPU_INDEX=https://download.pytorch.org/whl/cpu
RUN case "$ACCELERATOR" in \
        cpu) pip install --no-deps --index-url "$TORCH_CPU_INDEX" -c constraints.txt torch ;; \
        cuda) pip install -c constraints.txt torch ;; \
        *) echo "ACCELERATOR is cpu or cuda, not '$ACCELERATOR'" >&2; exit 1 ;; \
    esac

# The dependencies in a layer of their own: a change to the code does not install them again. pip
# leaves the torch that is there.
ARG EXTRAS="otel store"
RUN python -c "import sys, tomllib; project = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
extras = [package for name in sys.argv[1:] for package in project['optional-dependencies'][name]]; \
print(*project['dependencies'], *extras, sep='\n')" $EXTRAS \
    > requirements.txt \
    && pip install -c constraints.txt -r requirements.txt

# Triton builds one C module, its link to the CUDA driver, on first use. It is built here, and where
# Triton looks for a compiler ($CC below) it finds a script that hands out this module: no
# compiler in the final image.
# hadolint ignore=DL3008
RUN install -D -m 755 cc /opt/leapjson/lib/triton/cc \
    && if [ "$ACCELERATOR" = cuda ]; then \
        apt-get update \
        && apt-get install --yes --no-install-recommends gcc libc6-dev \
        && rm -rf /var/lib/apt/lists/* \
        && sh build.sh /opt/leapjson/lib/triton; \
    fi

COPY README.md LICENSE leapjson.py ./
COPY app ./app
# smollm2 is fetched here, so that the image serves it without a network.
ARG MODEL=demo
RUN pip install --no-deps . \
    && case "$MODEL" in \
        demo) ;; \
        smollm2) python -m app.demo.smollm2 /opt/leapjson/share/leapjson ;; \
        *) echo "MODEL is demo or smollm2, not '$MODEL'" >&2; exit 1 ;; \
    esac \
    && pip uninstall --yes pip
# Loops for the kinds of processors that this one can stand for: a new container compiles none. Not
# from /src, as numba keeps them by the folder of their sources.
RUN cd / && python -m app.server.compile_ahead "$MODEL"

FROM base
ARG MODEL=demo
# libgomp1: numba's parallel loops start quicker on OpenMP (16 us, without it 55). tini: as process 1 Python would ignore SIGTERM
# while the model loads, before the server has its handler.
# Versions are not pinned: Debian's mirrors drop a package's version when they get a newer one.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libgomp1 tini \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --no-create-home --home-dir /cache --shell /usr/sbin/nologin leapjson \
    # Group 0 too: a user id that the platform picks has no other group.
    && install -d -o leapjson -g 0 -m 775 /cache
COPY --from=build /opt/leapjson /opt/leapjson
# LD_LIBRARY_PATH: where GKE mounts the driver's libcuda.so.1. Elsewhere the folder does not exist,
# and the container toolkit has told the linker's cache.
ENV PATH=/opt/leapjson/bin:$PATH \
    HOME=/cache \
    HF_HOME=/cache/huggingface \
    NUMBA_CACHE_DIR=/cache/numba \
    TRITON_CACHE_DIR=/cache/triton \
    CC=/opt/leapjson/lib/triton/cc \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    LD_LIBRARY_PATH=/usr/local/nvidia/lib64 \
    LEAPJSON_HOST=0.0.0.0 \
    LEAPJSON_PORT=8000 \
    LEAPJSON_MODEL=$MODEL
VOLUME /cache
EXPOSE 8000
USER 10001:10001
# /health: a container that fails it wants to be restarted. The start period is for large models.
HEALTHCHECK --interval=10s --timeout=5s --start-period=10m \
    CMD ["python", "-c", "import os, urllib.request as request; \
request.urlopen(f'http://127.0.0.1:{os.environ[\"LEAPJSON_PORT\"]}/health', timeout=4)"]
ENTRYPOINT ["tini", "--", "leapjson"]
CMD ["serve"]
