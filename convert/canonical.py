"""The passes in order: from a graph as it was exported to the one that is quantized."""

import onnx_ir as ir

from midge.convert.passes.base import Pass, PassRecord
from midge.convert.passes.canonical_activations import CanonicalActivations
from midge.convert.passes.canonical_gemm import CanonicalGemm
from midge.convert.passes.clamp_masks import ClampMasks
from midge.convert.passes.explicit_pads import ExplicitPads
from midge.convert.passes.fold_batch_norm import FoldBatchNorm
from midge.convert.passes.fold_constants import FoldConstants
from midge.convert.passes.fold_pads import FoldPads
from midge.convert.passes.global_pools import GlobalPools
from midge.convert.passes.infer_shapes import InferShapes
from midge.convert.passes.merge_moves import MergeMoves
from midge.convert.passes.remove_dead import RemoveDead
from midge.convert.passes.remove_identities import RemoveIdentities

PASSES: tuple[type[Pass], ...] = (
    FoldConstants,
    RemoveIdentities,
    RemoveDead,
    InferShapes,
    MergeMoves,
    ExplicitPads,
    GlobalPools,
    FoldPads,
    CanonicalGemm,
    CanonicalActivations,
    ClampMasks,
    FoldBatchNorm,
    RemoveDead,
    InferShapes,
)
MAX_ROUNDS = 8  # each round opens at most a few more chances; two or three are usual


def canonicalize(model: ir.Model) -> list[PassRecord]:
    """Run every pass until none changes the model, in place.

    Returns:
        A record for each node that was folded, or kept with a reason.
    """
    records: dict[str, PassRecord] = {}
    for _ in range(MAX_ROUNDS):
        modified = False
        for make in PASSES:
            result = make()(model)
            modified |= result.modified
            records.update((r.node, r) for r in result.records)
        if not modified:
            break
    return list(records.values())
