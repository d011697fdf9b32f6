#include "client/tensorflow/attributes.h"

#include <bit>
#include <cstddef>

namespace rueda::tensorflow {

Attributes::Attributes(TF_OpKernelConstruction* context)
    : context_(context), status_(TF_NewStatus()) {}

Attributes::~Attributes() { TF_DeleteStatus(status_); }

bool Attributes::is_readable() const { return TF_GetCode(status_) == TF_OK; }

int64_t Attributes::integer(const char* attribute) {
  int64_t value = 0;
  if (is_readable()) TF_OpKernelConstruction_GetAttrInt64(context_, attribute, &value, status_);
  return value;
}

double Attributes::real(const char* attribute) { return std::bit_cast<double>(integer(attribute)); }

std::string Attributes::string(const char* attribute) {
  int32_t unused = 0;
  int32_t length = 0;
  if (is_readable()) {
    TF_OpKernelConstruction_GetAttrSize(context_, attribute, &unused, &length, status_);
  }
  if (!is_readable() || length <= 0) return {};
  std::string value(static_cast<size_t>(length), '\0');
  TF_OpKernelConstruction_GetAttrString(context_, attribute, value.data(), value.size(), status_);
  return value;
}

std::vector<std::string> Attributes::strings(const char* attribute) {
  int32_t count = 0;
  int32_t bytes = 0;
  if (is_readable()) {
    TF_OpKernelConstruction_GetAttrSize(context_, attribute, &count, &bytes, status_);
  }
  if (!is_readable() || count <= 0) return {};
  std::vector<char*> begins(static_cast<size_t>(count), nullptr);
  std::vector<size_t> lengths(static_cast<size_t>(count), 0);
  std::string storage(static_cast<size_t>(bytes), '\0');
  TF_OpKernelConstruction_GetAttrStringList(context_, attribute, begins.data(), lengths.data(),
                                            count, storage.data(), storage.size(), status_);
  std::vector<std::string> values;
  for (size_t i = 0; i < begins.size() && is_readable(); ++i) {
    values.emplace_back(begins[i], lengths[i]);
  }
  return values;
}

rueda_reduce_options Attributes::reduce_options() {
  rueda_reduce_options options{};
  options.struct_bytes = sizeof(options);
  options.op = static_cast<rueda_op>(integer("reduce_op"));
  options.prescale = real("prescale");
  options.postscale = real("postscale");
  return options;
}

bool Attributes::finish() {
  if (is_readable()) return true;
  TF_OpKernelConstruction_Failure(context_, status_);
  return false;
}

}  // namespace rueda::tensorflow
