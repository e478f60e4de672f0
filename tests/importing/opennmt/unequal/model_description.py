"""A small Transformer."""

import opennmt


def model():
    return opennmt.models.Transformer(
        num_layers=(3, 1),
        num_units=12,
        num_heads=3,
        ffn_inner_dim=19,
        share_embeddings=opennmt.models.EmbeddingsSharingLevel.ALL,
    )
