"""Helpers that handle the viewer and read what it shows."""

import re

import numpy as np

# Half of 1/255, and half of the last digit shown.
NEAR = 1 / 510 + 0.0005


def quantised(weights):
    """The weights as the page has them; it shows these exactly."""
    return np.rint(255 * weights.astype("float64")) / 255


def choose(page, label):
    page.locator("label", has_text=re.compile(f"^{label}$")).click()


def head(page, layer, number):
    page.locator(f'[data-layer="{layer}"][data-head="{number}"]').click()


def numbers(page):
    """Row labels, column labels and weights of the table of the large head."""
    rows = page.locator(".numbers tr").evaluate_all(
        "rows => rows.map(row => [...row.cells].map(cell => cell.innerText))"
    )
    weights = [[float(cell) for cell in row[1:]] for row in rows[1:]]
    return [row[0] for row in rows[1:]], rows[0][1:], np.array(weights)


def arrays(explanation, node):
    """The attention of the hypothesis that ends there, and its pieces."""
    nodes = [explanation.nodes[i] for i in explanation.path(node)]
    rows = [node.row for node in nodes]
    return {
        "Encoder": explanation.encoder,
        "Decoder": explanation.decoder[:, :, rows, : len(rows)],
        "Cross": explanation.cross[:, :, rows],
    }, [node.piece for node in nodes]
