"""Counts for `/monitoring/prometheus/metrics`, without texts or addresses.

Names follow Prometheus's conventions: a unit at the end, `_total` for counters.
"""

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from starlette.requests import Request
from starlette.responses import Response

from keras_transformer.serving.service import Service

# The first part of a path says which interface it belongs to.
_INTERFACES = {
    "v1": "tensorflow",
    **dict.fromkeys(
        ["translate", "languages", "health", "frontend"]
        + ["detect", "suggest", "translate_file"],
        "libretranslate",
    ),
    "monitoring": "monitoring",
    **dict.fromkeys(["", "api", "explain"], "page"),
}


class Metrics:
    """Counts the requests of a server, and shows what its parts count."""

    def __init__(self, service: Service) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "keras_transformer_requests",
            "Requests that were answered, by interface and HTTP status.",
            ["interface", "status"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "keras_transformer_request_duration_seconds",
            "Seconds from the head of a request to the end of its answer.",
            ["interface"],
            registry=self._registry,
            buckets=(0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100),
        )
        self._registry.register(service.batcher.sizes)
        waiting = Gauge(
            "keras_transformer_texts_held",
            "Texts that wait or are being translated.",
            registry=self._registry,
        )
        waiting.set_function(lambda: service.batcher.taken)
        version = Gauge(
            "keras_transformer_model_version",
            "Version of the model that answers.",
            registry=self._registry,
        )
        version.set_function(lambda: service.versions.current.version)

    def count(self, path: str, status: int, seconds: float) -> None:
        """Count an answer; the status is 499 if the client left first."""
        first = path.lower().strip("/").partition("/")[0]
        interface = _INTERFACES.get(first, "other")
        self._requests.labels(interface, status).inc()
        self._seconds.labels(interface).observe(seconds)

    async def answer(self, request: Request) -> Response:
        """Serve all metrics in Prometheus's text format."""
        text = generate_latest(self._registry)
        return Response(text, media_type=CONTENT_TYPE_LATEST)
