"""The counts, as Prometheus reads them."""

import httpx
from prometheus_client.parser import text_string_to_metric_families

PATH = "/monitoring/prometheus/metrics"


def read(server):
    answer = httpx.get(server.url + PATH)
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return {
        family.name: family
        for family in text_string_to_metric_families(answer.text)
    }


def count(families, **labels):
    return sum(
        sample.value
        for sample in families["keras_transformer_requests"].samples
        if sample.name == "keras_transformer_requests_total"
        and labels.items() <= sample.labels.items()
    )


def test_prometheus_reads_every_number_under_a_conventional_name(server):
    families = read(server)
    kinds = {
        name.removeprefix("keras_transformer_"): family.type
        for name, family in families.items()
        if not name.endswith("_created")  # The client's own.
    }
    assert kinds == {
        "requests": "counter",
        "request_duration_seconds": "histogram",
        "batch_size": "histogram",
        "texts_held": "gauge",
        "model_version": "gauge",
    }
    assert all(family.documentation for family in families.values())


def test_requests_are_counted_by_interface_and_status(server):
    before = read(server)
    for path, status in (
        *(("/health", 200), ("/languages", 200), ("/suggest", 405)),
        *(("/v1/models/small", 200), ("/v1/models/other", 404), ("/x", 404)),
    ):
        assert httpx.get(server.url + path).status_code == status
    after = read(server)
    for interface, status, number in (
        ("libretranslate", "200", 2),
        ("libretranslate", "405", 1),
        ("tensorflow", "200", 1),
        ("tensorflow", "404", 1),
        ("other", "404", 1),
    ):
        labels = dict(interface=interface, status=status)
        assert count(after, **labels) - count(before, **labels) == number
