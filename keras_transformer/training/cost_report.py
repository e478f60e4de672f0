"""The table of what a training would cost."""

from typing import NamedTuple

from keras_transformer.data import batching
from keras_transformer.runs.run_config import RunConfig
from keras_transformer.training import estimates
from keras_transformer.training.session import Session

# Section 5.2 and table 2: days on eight P100, at 9.5 TFLOPS each.
PAPER_FLOPS = {"base": 3.3e18, "big": 2.3e19, "big-en-fr": 2.3e19}


class Costs(NamedTuple):
    """Means over the batches of an epoch, and the largest of them.

    Attributes:
        source_tokens: Source tokens of a step, without padding.
        target_tokens: Target tokens of a step, without padding.
        flops: FLOPs of a step, padding included.
        largest: The (B, S, T) of one replica that needs most memory.
        memory: What it needs.
        graphs: Shapes of a replica's micro-batches in all, each of which XLA
            would compile.
    """

    source_tokens: float
    target_tokens: float
    flops: float
    largest: tuple[int, int, int]
    memory: estimates.Memory
    graphs: int


class Measured(NamedTuple):
    """A few training steps of one shape.

    Attributes:
        shape: Its (B, S, T) over all replicas.
        whole: Whether B is that of the training's batches.
        seconds: Median of the steps after the first.
        steps: How many those were.
    """

    shape: tuple[int, int, int]
    whole: bool
    seconds: float
    steps: int


def report(
    run: RunConfig,
    plan: batching.BatchPlan,
    costs: Costs,
    measured: Measured,
    session: Session,
    replicas: int = 1,
    xla: bool = False,
) -> str:
    """Write the table that the user reads."""
    model, recipe = run.model, run.training
    # What a step costs whatever its rows, such as Adam, is scaled too.
    share = costs.flops / estimates.step_flops(model, *measured.shape)
    seconds = measured.seconds * share
    steps = recipe.steps
    if session.minutes:
        steps = int(min(steps, max(1, 60 * session.minutes / seconds)))
    hours = seconds * steps / 3600
    total = costs.flops * steps
    paper = PAPER_FLOPS.get(run.preset)
    shape = "{} rows × {} source × {} target tokens".format
    rows = [
        f"{run.preset} on {run.corpus}: {recipe.precision}, replicas: "
        f"{replicas}, micro-batches: {session.accumulate}",
        ("vocabulary", f"{model.vocab_size:,}", "pieces"),
        ("parameters", f"{estimates.parameters(model):,}", ""),
        *(
            [("restriction", f"{model.restriction:,}", "positions")]
            if model.restriction is not None
            else []
        ),
        "",
        "A step, the mean of an epoch",
        ("source tokens", f"{costs.source_tokens:,.0f}", "without padding"),
        ("target tokens", f"{costs.target_tokens:,.0f}", "without padding"),
        ("padding", f"{100 * plan.padding_waste():.1f}", "% of positions"),
        ("batch shapes", f"{len(plan.shapes()):,}", ""),
        *(
            [("XLA compilations", f"{costs.graphs:,}", "at their first steps")]
            if xla
            else []
        ),
        ("FLOPs", f"{costs.flops:.2e}", "matrix products, padding included"),
        "",
        f"Memory of a replica at most, at {shape(*costs.largest)}, estimated",
        *(
            (name, f"{size / 1e6:,.0f}", "MB")
            for name, size in zip(
                (
                    "weights",
                    "gradients",
                    "Adam's moments",
                    "activations",
                    "logits and gradient",
                    "in all",
                ),
                (*costs.memory, costs.memory.total),
                strict=True,
            )
        ),
        "",
        f"Time, from {measured.steps} steps of {shape(*measured.shape)}"
        + ("" if measured.whole else ", scaled by FLOPs: at most"),
        ("seconds a step", f"{seconds:.3g}", ""),
        ("target tokens/s", f"{costs.target_tokens / seconds:,.0f}", ""),
        ("FLOPs/s", f"{costs.flops / seconds:.2e}", ""),
        "",
        f"The whole training, {steps:,} steps"
        + (f" in {session.minutes:g} minutes" if steps < recipe.steps else ""),
        ("hours", f"{hours:,.0f}" if hours >= 100 else f"{hours:.3g}", ""),
        ("FLOPs", f"{total:.2e}", "counted from shapes"),
    ]
    if paper:
        rows.append(
            ("the paper's", f"{paper:.1e}", "GPUs × seconds × 9.5 TFLOPS")
        )
    return "\n".join(
        row
        if isinstance(row, str)
        else "  {:<20}{:>14}  {}".format(*row).rstrip()
        for row in rows
    )
