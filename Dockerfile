# editloupe for the CPU. Build: docker build -t editloupe .   Use: docker run --rm -v "$PWD:/data" editloupe check edits
FROM python:3.12-slim

COPY pyproject.toml README.md LICENSE /src/
COPY editloupe /src/editloupe
RUN pip install --no-cache-dir "/src[google,mcp,prices,serve]" && rm -rf /src

# Whoever runs it needs no rights; models and caches go where that user may write.
RUN useradd --create-home judge && mkdir /data && chown judge /data
USER judge
ENV HOME=/tmp/home
WORKDIR /data
ENTRYPOINT ["editloupe"]
CMD ["--help"]
