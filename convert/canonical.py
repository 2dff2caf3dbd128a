"""The passes in order: from a graph as it was exported to the one that is quantized."""

import onnx_ir as ir

from midge.convert.passes.base import Pass, PassRecord
from midge.convert.passes.canonical_activations import CanonicalActivations
from midge.convert.passes.canonical_gemm import CanonicalGemm
from midge.convert.passes.clamp_masks import ClampMasks
from midge.convert.passes.convolve_transposed import ConvolveTransposed
from midge.convert.passes.counted_pads import CountedPads
from midge.convert.passes.explicit_pads import ExplicitPads
from midge.convert.passes.flatten_depth import FlattenDepth
from midge.convert.passes.fold_batch_norm import FoldBatchNorm, FoldNormsAlone
from midge.convert.passes.fold_constants import FoldConstants
from midge.convert.passes.fold_pads import FoldPads
from midge.convert.passes.fuse_layer_norm import FuseLayerNorm
from midge.convert.passes.global_pools import GlobalPools
from midge.convert.passes.infer_shapes import InferShapes
from midge.convert.passes.merge_moves import MergeMoves
from midge.convert.passes.remove_dead import RemoveDead
from midge.convert.passes.remove_identities import RemoveIdentities
from midge.convert.passes.resolve_ifs import ResolveIfs
from midge.convert.passes.spell_einsum import SpellEinsum
from midge.convert.passes.split_matmul import SplitMatMul

PASSES: tuple[type[Pass], ...] = (
    ResolveIfs,
    FoldConstants,
    RemoveIdentities,
    RemoveDead,
    InferShapes,
    SpellEinsum,
    MergeMoves,
    ExplicitPads,
    FuseLayerNorm,
    CountedPads,
    GlobalPools,
    FoldPads,
    CanonicalGemm,
    CanonicalActivations,
    ClampMasks,
    FoldBatchNorm,
    RemoveDead,
    InferShapes,
)
# What training computes stays as it is, but for what changes no code.
TRAINED: tuple[type[Pass], ...] = tuple(
    FoldNormsAlone if p is FoldBatchNorm else p
    for p in PASSES
    if p not in (ClampMasks, RemoveIdentities, FuseLayerNorm)
)
# Rewritings into more nodes; they wait until there is nothing left to fold into the one.
LATE: tuple[type[Pass], ...] = (ConvolveTransposed, FlattenDepth, SplitMatMul)
MAX_ROUNDS = 8  # each round opens at most a few more chances; two or three are usual


def canonicalize(
    model: ir.Model,
    requested: tuple[type[Pass], ...] = (),
    passes: tuple[type[Pass], ...] = PASSES,
) -> list[PassRecord]:
    """Run every pass until none changes the model, in place.

    Args:
        model: as read.
        requested: passes that users ask for, run once when the others have settled.
        passes: that are run until none changes the model.

    Returns:
        A record for each node that was folded, or kept with a reason.
    """
    records: dict[str, PassRecord] = {}
    _settle(model, records, passes)
    for more in (requested, LATE):
        if _run(more, model, records):
            _settle(model, records, passes)
    return list(records.values())


def _settle(
    model: ir.Model, records: dict[str, PassRecord], passes: tuple[type[Pass], ...]
) -> None:
    for _ in range(MAX_ROUNDS):
        if not _run(passes, model, records):
            break


def _run(passes: tuple[type[Pass], ...], model: ir.Model, records: dict[str, PassRecord]) -> bool:
    """Run passes once, in order, and tell whether any changed the model."""
    modified = False
    for make in passes:
        result = make()(model)
        modified |= result.modified
        records.update((r.node, r) for r in result.records)
    return modified
