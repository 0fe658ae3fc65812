# The CPU image. Weights stay outside: mount a folder and set LEAPJSON_MODEL, or name a model on
# the Hub. Without either the embedded demo model is served.
#   docker build -t leapjson .
#   docker run -p 8000:8000 leapjson
FROM python:3.11-slim AS build
WORKDIR /src
RUN python -m venv /opt/leapjson
ENV PATH=/opt/leapjson/bin:$PATH
COPY constraints.txt ./
# The CPU build of torch; pass another index for a CUDA build.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN pip install --no-cache-dir -c constraints.txt torch --index-url ${TORCH_INDEX} \
        --extra-index-url https://pypi.org/simple
COPY pyproject.toml README.md ./
COPY app ./app
RUN pip install --no-cache-dir -c constraints.txt .

FROM python:3.11-slim
RUN useradd --create-home --uid 10001 leapjson
COPY --from=build /opt/leapjson /opt/leapjson
ENV PATH=/opt/leapjson/bin:$PATH \
    OMP_WAIT_POLICY=PASSIVE \
    NUMBA_CACHE_DIR=/home/leapjson/.cache/numba \
    HF_HOME=/home/leapjson/.cache/huggingface \
    LEAPJSON_HOST=0.0.0.0
USER leapjson
WORKDIR /home/leapjson
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=120s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/health')"]
ENTRYPOINT ["leapjson"]
CMD ["serve"]
