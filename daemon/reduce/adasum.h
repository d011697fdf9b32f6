// Adasum (Maleki et al. 2021, "Scaling Distributed Training with Adaptive Summation"): a sum in
// which what two vectors have in common counts once.
//
//   Adasum(a, b) = (1 - a.b / 2|a|^2) a + (1 - a.b / 2|b|^2) b
//
// Of orthogonal vectors that is the sum, of equal ones the average; of more than two, a binary tree
// of it. Each step scales its two vectors, so the result is a weighted sum of all of them; and the
// weights follow from their dot products alone, because those of sums are sums of theirs.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace rueda::reduce {

// The groups in which vectors meet: those of a group first, then the groups. n in a row are halved,
// the first half having one more if n is odd, and each half is done before the two meet.
using AdasumTree = std::vector<std::vector<size_t>>;

// By vector: what it is multiplied by. `products`: as add_dot_products() gives them, of as many
// vectors. Every vector is in the tree once.
//
// Nothing can be in common with a zero vector: with one, Adasum is the sum. A vector that came to
// be by cancellation counts as zero, too, when rounding in float64 may be all that is left of it:
// below 2^-46 of what its square would be had nothing been cancelled. If a product is infinite or
// NaN, so that nothing can be said, the weights are NaN.
std::vector<double> adasum_weights(std::span<const double> products, const AdasumTree& tree);

}  // namespace rueda::reduce
