// Adasum (Maleki et al. 2021, "Scaling Distributed Training with Adaptive Summation"): a sum in
// which what two vectors have in common counts once.
//
//   Adasum(a, b) = (1 - a.b / 2|a|^2) a + (1 - a.b / 2|b|^2) b
//
// For orthogonal vectors that is the sum, for equal ones the average; for more than two vectors it
// is a binary tree of it. Each step scales its two vectors, so the result is a weighted sum of all
// of them; and the weights follow from their dot products alone, because the dot products of sums
// are sums of dot products.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace rueda::reduce {

// The groups in which vectors meet: first the vectors of each group meet, then the groups do. Of n
// in a row, the first half meets and the second half meets before the two halves meet; the first
// half has one more if n is odd.
using AdasumTree = std::vector<std::vector<size_t>>;

// Returns the factor by which each vector is multiplied. `products` are those that
// add_dot_products() gives, of as many vectors. Every vector must be in the tree once.
//
// Nothing can be in common with a zero vector: with one, Adasum is the sum. A vector that came to
// be by cancellation counts as zero, too, when rounding in float64 may be all that is left of it:
// below 2^-46 of what its square would be had nothing been cancelled. If a product is infinite or
// NaN, so that nothing can be said, the weights are NaN.
std::vector<double> adasum_weights(std::span<const double> products, const AdasumTree& tree);

}  // namespace rueda::reduce
