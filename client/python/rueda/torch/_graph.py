"""Walks a backward graph before it runs, to tell in which order gradients will be there.

The algorithm is that of Horovod-TOPO (Pumma et al., "Alleviating Load Imbalance in Data Processing for Large-Scale Deep Learning",
CCGrid 2020, IV-D): a depth-first search from what is fetched, here the loss, back to where the graph begins, in O(V + E); what depends
on another has the larger number, and what runs in parallel is numbered by its depth."""

from __future__ import annotations

from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Set, Tuple

import torch


class Walk(NamedTuple):
    """What was found in a graph.

    Attributes:
        leaves: the tensors whose gradients the graph computes, in the order in which they are expected to be ready.
        nodes: the number of nodes of the graph.
        edges: the number of edges between them.
        hides_some: gradients will be computed that are not in this graph, because parts of the network run anew in backward().
        has_sparse: a gradient may be sparse, so that its size is known only when it is computed.
    """

    leaves: List[torch.Tensor]
    nodes: int
    edges: int
    hides_some: bool
    has_sparse: bool


def _following(node: Any) -> List[Any]:
    return [following for following, _ in node.next_functions if following is not None]


def _with_ends_first(roots: Iterable[torch.Tensor]) -> List[Any]:
    """Returns the nodes that the roots lead to, each after all nodes that it leads to itself."""
    found: List[Any] = []
    seen: Set[Any] = set()
    for root in roots:
        if root.grad_fn is None or root.grad_fn in seen:
            continue
        seen.add(root.grad_fn)
        path: List[Tuple[Any, Iterator[Any]]] = [(root.grad_fn, iter(_following(root.grad_fn)))]
        while path:
            node, rest = path[-1]
            unseen = next((following for following in rest if following not in seen), None)
            if unseen is None:
                found.append(node)
                path.pop()
            else:
                seen.add(unseen)
                path.append((unseen, iter(_following(unseen))))
    return found


def walk(roots: Iterable[torch.Tensor]) -> Walk:
    """Walks the graph from its roots, which backward() is about to be called for.

    The depth of a node is that of the longest way to it, because a gradient is there when all that adds to it has been computed.
    Nodes of the same depth keep the order in which the search found them, which is the same on all ranks that built the same
    graph."""
    found = _with_ends_first(roots)
    depths: Dict[Any, int] = dict.fromkeys(found, 0)
    leaves: List[Tuple[int, torch.Tensor]] = []
    edges = 0
    hides_some = has_sparse = False
    for node in reversed(found):
        kind = type(node).__name__
        if kind == "AccumulateGrad":
            leaves.append((depths[node], node.variable))
        hides_some = hides_some or kind == "CheckpointFunctionBackward"
        has_sparse = has_sparse or (kind.startswith("Embedding") and bool(getattr(node, "_saved_sparse", False)))
        following = _following(node)
        edges += len(following)
        for other in following:
            depths[other] = max(depths[other], depths[node] + 1)
    leaves.sort(key=lambda leaf: leaf[0])
    return Walk([leaf for _, leaf in leaves], len(found), edges, hides_some, has_sparse)
