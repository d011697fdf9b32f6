"""Implements tf.GradientTape whose gradients are reduced over all ranks."""

from __future__ import annotations

from typing import Any, List, Optional

import tensorflow as tf

from .._core._operations import Average
from .._core._process_sets import ProcessSet, global_process_set
from ._collectives import plain
from ._compression import Compression
from ._gradients import GradientReducer


class _DistributedGradientTape(tf.GradientTape):  # type: ignore[misc]
    """Takes the place of a tape, recording or not, whose state it takes over."""

    def __init__(self, gradtape: Any, reducer: GradientReducer) -> None:
        self.__dict__.update(gradtape.__dict__)
        self._rueda_reducer = reducer

    def register_local_source(self, source: Any) -> None:
        """Has the gradient of a variable stay this rank's own."""
        self._rueda_reducer.add_local(source)

    @plain
    def gradient(self, target: Any, sources: Any, output_gradients: Any = None, use_generic_names: bool = False) -> Any:
        """Returns the gradients of `target`, reduced over all ranks, in the structure of `sources`.

        Args:
            target, sources, output_gradients: as for tf.GradientTape.
            use_generic_names: if True, ranks meet under numbers, and not under the names of the sources.

        Raises:
            HorovodInternalError: ranks disagree, or a rank is lost. In a graph that is tf.errors.AbortedError when the graph runs.
        """
        gradients = super().gradient(target, sources, output_gradients)
        flat = tf.nest.flatten(sources)
        reduced = self._rueda_reducer.reduce(tf.nest.flatten(gradients, expand_composites=False), flat, not use_generic_names)
        return tf.nest.pack_sequence_as(sources, reduced) if tf.nest.is_nested(sources) else reduced[0]


def DistributedGradientTape(gradtape: Any, device_dense: str = '', device_sparse: str = '', compression: Any = Compression.none,
                            sparse_as_dense: bool = False, op: int = Average, gradient_predivide_factor: float = 1.0,
                            num_groups: int = 0, groups: Optional[Any] = None,
                            process_set: ProcessSet = global_process_set, scale_local_gradients: bool = True) -> Any:
    """Returns a tape that takes the place of `gradtape`, and whose gradient() reduces over all ranks.

    Args:
        gradtape: a tf.GradientTape, before, while or after it records.
        device_dense, device_sparse: not used.
        compression: the Compression of the gradients that travel.
        sparse_as_dense: if True, a tf.IndexedSlices is made dense and reduced; otherwise all ranks get the slices of all.
        op: Average, Sum or Adasum.
        gradient_predivide_factor: the sum's contributions are divided by it before, and the average is made up for it after.
        num_groups: the number of ops that the gradients are spread over; 0 means one op for each in a graph, and one for all
            without.
        groups: lists of variables whose gradients go into one op, or what `num_groups` is.
        process_set: the ranks that take part.
        scale_local_gradients: if True, gradients of sources of register_local_source() are divided by the number of ranks.

    Returns:
        A tf.GradientTape.

    Raises:
        ValueError: an argument is wrong.
    """
    reducer = GradientReducer("DistributedGradientTape", compression, sparse_as_dense, op, gradient_predivide_factor, num_groups,
                              groups, process_set, scale_local_gradients)
    return _DistributedGradientTape(gradtape, reducer)


def PartialDistributedGradientTape(gradtape: Any, device_dense: str = '', device_sparse: str = '', compression: Any = Compression.none,
                                   sparse_as_dense: bool = False, op: int = Average, gradient_predivide_factor: float = 1.0,
                                   num_groups: int = 0, groups: Optional[Any] = None,
                                   process_set: ProcessSet = global_process_set, local_layers: Any = None,
                                   scale_local_gradients: bool = True) -> Any:
    """Returns what DistributedGradientTape() returns, with the variables of some layers as local sources.

    Args:
        local_layers: a layer, or a list of layers, whose gradients stay this rank's own.
        gradtape, device_dense, device_sparse, compression, sparse_as_dense, op, gradient_predivide_factor, num_groups, groups,
            process_set, scale_local_gradients: as for DistributedGradientTape().

    Returns:
        A tf.GradientTape.

    Raises:
        ValueError: an argument is wrong.
    """
    tape = DistributedGradientTape(gradtape, device_dense, device_sparse, compression, sparse_as_dense, op,
                                   gradient_predivide_factor, num_groups, groups, process_set, scale_local_gradients)
    layers: List[Any] = [] if local_layers is None else list(local_layers) if isinstance(local_layers, (list, tuple)) else [local_layers]
    for layer in layers:
        for variable in layer.trainable_weights:
            tape.register_local_source(variable)
    return tape
