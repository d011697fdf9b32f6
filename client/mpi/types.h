// MPI's datatypes and operators, and those of librueda that they stand for.
#pragma once

#include <cstddef>
#include <optional>

#include <rueda/rueda.h>

#include "client/mpi/abi.h"

namespace rueda::mpi {

struct Type {
  rueda_dtype dtype;
  size_t bytes;  // of an element
  const char* name;
};

// Returns nullopt for a datatype that librueda has none for.
std::optional<Type> type_of(Handle datatype);

struct Operator {
  rueda_op op;
  const char* name;
};

// Returns nullopt for an operator that librueda does not have.
std::optional<Operator> operator_of(Handle op);

}  // namespace rueda::mpi
