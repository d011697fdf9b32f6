#include "client/mpi/types.h"

#include "client/mpi/constants.h"

namespace rueda::mpi {

std::optional<Type> type_of(Handle datatype) {
  struct Entry {
    Handle datatype;
    Type type;
  };
  static const Entry kTypes[] = {
      {MPIABI_BYTE, {RUEDA_UINT8, 1, "uint8"}},
      {MPIABI_INT8_T, {RUEDA_INT8, 1, "int8"}},
      {MPIABI_UINT8_T, {RUEDA_UINT8, 1, "uint8"}},
      {MPIABI_INT16_T, {RUEDA_INT16, 2, "int16"}},
      {MPIABI_UINT16_T, {RUEDA_UINT16, 2, "uint16"}},
      {MPIABI_INT32_T, {RUEDA_INT32, 4, "int32"}},
      {MPIABI_UINT32_T, {RUEDA_UINT32, 4, "uint32"}},
      {MPIABI_INT64_T, {RUEDA_INT64, 8, "int64"}},
      {MPIABI_UINT64_T, {RUEDA_UINT64, 8, "uint64"}},
      {MPIABI_FLOAT, {RUEDA_FLOAT32, 4, "float32"}},
      {MPIABI_DOUBLE, {RUEDA_FLOAT64, 8, "float64"}},
      {MPIABI_C_COMPLEX, {RUEDA_COMPLEX64, 8, "complex64"}},
      {MPIABI_C_DOUBLE_COMPLEX, {RUEDA_COMPLEX128, 16, "complex128"}},
  };
  for (const Entry& entry : kTypes) {
    if (entry.datatype == datatype) return entry.type;
  }
  return std::nullopt;
}

std::optional<Operator> operator_of(Handle op) {
  if (op == MPIABI_SUM) return Operator{RUEDA_SUM, "sum"};
  if (op == MPIABI_PROD) return Operator{RUEDA_PRODUCT, "product"};
  if (op == MPIABI_MIN) return Operator{RUEDA_MIN, "min"};
  if (op == MPIABI_MAX) return Operator{RUEDA_MAX, "max"};
  return std::nullopt;
}

}  // namespace rueda::mpi
