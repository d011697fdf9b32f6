#include "daemon/session/submissions/intern.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "daemon/session/records/text.h"

namespace rueda::session {
namespace {

using core::TensorDescriptor;

// Returns true for the kinds that are interned as tensors, and for joins, which have a name of
// their own.
bool is_interned(uint8_t kind) {
  const auto known = static_cast<CollectiveKind>(kind);
  return kind < kCollectiveKindCount && !is_transfer(known) &&
         (moves_data(known) || known == CollectiveKind::kJoin);
}

// The most counts that one client may make the daemon keep.
constexpr size_t kMaxCountsOfTensors = 64 * limits::kMaxCounts;
// The most words that one client may make the daemon keep of a plan that is not complete, and of
// all plans that are.
constexpr size_t kMaxPlanWords = 1 << 20;
constexpr size_t kMaxWordsOfPlans = 4 * kMaxPlanWords;

Status invalid(const std::string& name, const std::string& what) {
  return Status(Code::kInvalidArgument, "tensor '" + name + "' " + what);
}

Status check_text(std::span<const char> field, const char* what, std::string& out) {
  std::optional<std::string_view> text = field_text(field);
  if (!text) {
    return Status(Code::kInvalidArgument,
                  std::string("a ") + what + " of 256 bytes or more: use " + "at most 255");
  }
  if (!is_printable_utf8(*text)) {
    return Status(Code::kInvalidArgument,
                  std::string("a ") + what +
                      " that is not UTF-8 or has control characters: " + "use printable UTF-8");
  }
  out = *text;
  return Status::ok();
}

Status check_enums(const rueda_abi_intern& abi, TensorDescriptor& out) {
  if (!is_interned(abi.kind)) {
    return invalid(out.name, "asks for collective " + std::to_string(abi.kind) +
                                 ": known are 0 to 2, and 6 to " +
                                 std::to_string(static_cast<int>(CollectiveKind::kScatter)));
  }
  if (abi.dtype >= kDTypeCount) {
    return invalid(out.name, "has dtype " + std::to_string(abi.dtype) + ": known are 0 to " +
                                 std::to_string(kDTypeCount - 1));
  }
  if (abi.op >= kReduceOpCount) {
    return invalid(out.name, "asks for op " + std::to_string(abi.op) + ": known are 0 to " +
                                 std::to_string(kReduceOpCount - 1));
  }
  out.kind = static_cast<CollectiveKind>(abi.kind);
  out.dtype = static_cast<DType>(abi.dtype);
  out.op = static_cast<ReduceOp>(abi.op);
  out.process_set = abi.process_set;  // The job checks that the set exists.
  if (out.kind == CollectiveKind::kJoin && (out.name != core::kJoinName || abi.process_set != 0)) {
    return invalid(out.name, std::string("is no name of a join: it is '") + core::kJoinName +
                                 "', in process set 0");
  }
  return Status::ok();
}

Status check_shape(const rueda_abi_intern& abi, TensorDescriptor& out) {
  if (abi.ndim > limits::kMaxDims) {
    return invalid(out.name, "has " + std::to_string(abi.ndim) + " dimensions: at most " +
                                 std::to_string(limits::kMaxDims) + " are possible");
  }
  if ((out.kind == CollectiveKind::kBarrier || !moves_data(out.kind)) && abi.ndim != 0) {
    return invalid(out.name, std::string("is a ") + to_string(out.kind) +
                                 ", which has no shape: send 0 dimensions");
  }
  // A dimension of 0 empties the tensor, but the product of the other dimensions must not overflow
  // either: code that multiplies the dimensions in order meets that product before the 0.
  uint64_t bytes = element_bytes(out.dtype);
  for (int i = 0; i < abi.ndim; ++i) {
    int64_t dim = abi.dims[i];
    if (dim < 0) {
      return invalid(out.name, "has dimension " + std::to_string(i) + " of " + std::to_string(dim) +
                                   " elements: it must be 0 or more");
    }
    uint64_t factor = std::max<uint64_t>(dim, 1);
    if (factor > limits::kMaxTensorBytes / bytes) {
      return invalid(out.name, "is larger than " + std::to_string(limits::kMaxTensorBytes) +
                                   " bytes: split it");
    }
    bytes *= factor;
    out.shape.push_back(dim);
  }
  return Status::ok();
}

Status check_root(const rueda_abi_intern& abi, TensorDescriptor& out) {
  const std::string what = "has root rank " + std::to_string(abi.root);
  if (has_root(out.kind) && (abi.root < 0 || abi.root >= limits::kMaxRanks)) {
    return invalid(out.name, what + ": give a rank of the job");
  }
  if (!has_root(out.kind) && abi.root != -1) {
    return invalid(out.name, what + ", which no " + to_string(out.kind) + " has: send -1");
  }
  out.root = Rank(abi.root);
  return Status::ok();
}

Status check_places(const rueda_abi_intern& abi, TensorDescriptor& out) {
  const bool has_some = has_parts(out.kind);
  const bool is_place = has_some ? abi.places > 0 && abi.places <= limits::kMaxRanks &&
                                       abi.place >= 0 && abi.place < abi.places
                                 : abi.places == 0 && abi.place == 0;
  if (!is_place || (!has_some && !out.counts.empty())) {
    return invalid(out.name, "has place " + std::to_string(abi.place) + " of " +
                                 std::to_string(abi.places) + " and " +
                                 std::to_string(out.counts.size()) + " counts, as no " +
                                 to_string(out.kind) + " can");
  }
  return check_parts(out.parted(), abi.places);
}

Status check_group(const rueda_abi_intern& abi, TensorDescriptor& out) {
  if (Status status = check_text(abi.group, "group name", out.group); !status.is_ok()) {
    return invalid(out.name, "has " + status.message());
  }
  if (out.group.empty() != (abi.group_size == 0)) {
    return invalid(out.name, "has group '" + out.group + "' of " + std::to_string(abi.group_size) +
                                 " tensors: a group needs both a name and a size");
  }
  if (!out.group.empty() && out.kind != CollectiveKind::kAllreduce) {
    return invalid(out.name, std::string("is a ") + to_string(out.kind) + " in group '" +
                                 out.group + "': only allreduces can be grouped");
  }
  if (abi.group_size > limits::kMaxTensorsPerSession) {
    return invalid(out.name, "has a group of " + std::to_string(abi.group_size) +
                                 " tensors: at most " +
                                 std::to_string(limits::kMaxTensorsPerSession) + " are possible");
  }
  out.group_size = abi.group_size;
  return Status::ok();
}

Status check_scales(const rueda_abi_intern& abi, TensorDescriptor& out) {
  if (!std::isfinite(abi.prescale) || !std::isfinite(abi.postscale)) {
    return invalid(out.name, "has a prescale or postscale factor that is not finite");
  }
  out.prescale = abi.prescale;
  out.postscale = abi.postscale;
  const bool is_arithmetic =
      out.op == ReduceOp::kAverage || out.prescale != 1.0 || out.postscale != 1.0;
  if (out.dtype == DType::kBool && is_arithmetic) {
    return invalid(out.name,
                   "is bool, which has no average and no scale: ask for the sum or the "
                   "maximum (or), the product or the minimum (and)");
  }
  return Status::ok();
}

Status check_operator(const rueda_abi_intern&, TensorDescriptor& out) {
  if (has_operator(out.dtype, out.op)) return Status::ok();
  return invalid(out.name, std::string("is ") + to_string(out.dtype) +
                               ", which has no order, and so no " + to_string(out.op) +
                               ": ask for the sum, the average or the product");
}

Status check_adasum(const rueda_abi_intern&, TensorDescriptor& out) {
  if (out.op != ReduceOp::kAdasum || can_be_adasum(out.kind, out.dtype)) return Status::ok();
  return invalid(out.name, std::string("is a ") + to_string(out.kind) + " of " +
                               to_string(out.dtype) +
                               " with op adasum: only allreduces of floating point can have it");
}

Status check_wire(const rueda_abi_intern& abi, TensorDescriptor& out) {
  if (abi.wire_dtype >= kWireDTypeCount) {
    return invalid(out.name, "has wire dtype " + std::to_string(abi.wire_dtype) +
                                 ": known are 0 to " + std::to_string(kWireDTypeCount - 1));
  }
  out.wire_dtype = static_cast<WireDType>(abi.wire_dtype);
  if (out.wire_dtype != WireDType::kSame && !can_be_rounded(out.kind, out.dtype)) {
    return invalid(out.name, std::string("is a ") + to_string(out.kind) + " of " +
                                 to_string(out.dtype) + " with wire dtype " +
                                 to_string(out.wire_dtype) +
                                 ": only what reduces float32 can have one");
  }
  return Status::ok();
}

Status check_memory(const rueda_abi_intern& abi, TensorDescriptor& out) {
  if (abi.memory > static_cast<uint32_t>(MemorySpace::kDevice) || abi.reserved != 0) {
    return invalid(out.name, "is in memory " + std::to_string(abi.memory) +
                                 ", or has a reserved field that is not 0: known are 0 and 1");
  }
  out.memory = static_cast<MemorySpace>(abi.memory);
  if (out.memory == MemorySpace::kHost || can_be_on_device(out.kind, out.op)) return Status::ok();
  return invalid(out.name, std::string("is in device memory, and asks for ") +
                               (out.op == ReduceOp::kAdasum ? "an adasum" : to_string(out.kind)) +
                               ": only all-reduces, without adasum, and broadcasts are done there; "
                               "copy it to the host first");
}

// Returns a key that is equal for equal descriptors only: names hold no NUL, and the numbers follow
// at fixed widths.
std::string identity(const TensorTable::Tensor& interned) {
  const TensorDescriptor& tensor = *interned.descriptor;
  std::string key = tensor.name + '\0' + tensor.group + '\0';
  auto add = [&key](const auto& number) {
    key.append(reinterpret_cast<const char*>(&number), sizeof(number));
  };
  add(tensor.kind);
  add(tensor.dtype);
  add(tensor.op);
  add(tensor.root.value);
  add(tensor.process_set);
  add(tensor.prescale);
  add(tensor.postscale);
  add(tensor.wire_dtype);
  add(tensor.memory);
  add(tensor.group_size);
  add(interned.place);
  add(interned.places);
  add(tensor.shape.size());
  for (int64_t dim : tensor.shape) add(dim);
  for (int64_t count : tensor.counts) add(count);
  for (const core::PlannedTensor& planned : tensor.plan) {
    // The address is unique, because the table keeps tensors that a plan contains.
    add(planned.tensor.get());
    add(planned.after.size());
    for (const uint32_t before : planned.after) add(before);
  }
  return key;
}

// Returns the bytes that the daemon keeps for a tensor: its descriptor, its id, and what the engine
// remembers by its name.
size_t kept_bytes(const std::string& key, const TensorDescriptor& tensor) {
  constexpr size_t kBeside = 1024;
  size_t bytes = kBeside + key.size() + 2 * tensor.name.size() + tensor.group.size() +
                 sizeof(int64_t) * (tensor.shape.size() + tensor.counts.size()) +
                 sizeof(core::PlannedTensor) * tensor.plan.size();
  for (const core::PlannedTensor& planned : tensor.plan) {
    bytes += sizeof(uint32_t) * planned.after.size();
  }
  return bytes;
}

}  // namespace

Result<TensorDescriptor> descriptor_from_abi(const rueda_abi_intern& abi,
                                             std::vector<int64_t> counts) {
  TensorDescriptor tensor;
  tensor.counts = std::move(counts);
  if (Status status = check_text(abi.name, "tensor's name", tensor.name); !status.is_ok()) {
    return Status(Code::kInvalidArgument, "a client sent " + status.message());
  }
  if (tensor.name.empty()) {
    return Status(Code::kInvalidArgument, "a tensor without a name: give every tensor one");
  }
  for (auto check : {check_enums, check_shape, check_root, check_places, check_group, check_scales,
                     check_operator, check_adasum, check_wire, check_memory}) {
    if (Status status = check(abi, tensor); !status.is_ok()) return status;
  }
  return tensor;
}

Result<TensorDescriptor> descriptor_from_abi(const rueda_abi_process_set& abi) {
  TensorDescriptor change;
  change.name = core::kProcessSetsName;
  change.op = ReduceOp::kSum;
  if (abi.change == RUEDA_ABI_SET_REMOVE) {
    change.kind = CollectiveKind::kRemoveProcessSet;
    change.process_set = abi.process_set;
    return change;
  }
  if (abi.change != RUEDA_ABI_SET_ADD || abi.rank_count > RUEDA_ABI_MAX_SET_RANKS) {
    return Status(Code::kInvalidArgument, "a process set of more than " +
                                              std::to_string(RUEDA_ABI_MAX_SET_RANKS) +
                                              " ranks, or neither added nor removed");
  }
  change.kind = CollectiveKind::kAddProcessSet;
  change.shape.assign(abi.ranks, abi.ranks + abi.rank_count);
  return change;
}

Result<uint32_t> TensorTable::intern(const rueda_abi_intern& abi, Rank rank) {
  std::vector<int64_t> counts = std::exchange(counts_, {});
  if (abi.count_count != counts.size()) {
    return Status(Code::kInvalidArgument, "a tensor with " + std::to_string(abi.count_count) +
                                              " counts, of which " + std::to_string(counts.size()) +
                                              " were sent before");
  }
  Result<TensorDescriptor> checked = descriptor_from_abi(abi, std::move(counts));
  if (!checked.is_ok()) return checked.status();
  Tensor tensor;
  tensor.descriptor = std::make_shared<const TensorDescriptor>(std::move(checked).value());
  tensor.place = abi.place;
  tensor.places = abi.places;
  tensor.extent = extent_of(tensor.descriptor->parted(), abi.place, abi.places,
                            tensor.descriptor->root == rank);
  return add(std::move(tensor));
}

Status TensorTable::take_counts(const rueda_abi_counts& abi) {
  std::vector<int64_t> counts = std::exchange(counts_, {});
  if (abi.reserved != 0 || abi.count > RUEDA_ABI_MAX_COUNTS ||
      counts.size() + abi.count > limits::kMaxCounts) {
    return Status(Code::kInvalidArgument,
                  "a tensor with more than " + std::to_string(limits::kMaxCounts) +
                      " counts, or a broken part of them: exchange among fewer ranks");
  }
  counts.insert(counts.end(), abi.counts, abi.counts + abi.count);
  counts_ = std::move(counts);
  return Status::ok();
}

Result<uint32_t> TensorTable::intern(const rueda_abi_process_set& abi) {
  return add(descriptor_from_abi(abi));
}

Result<uint32_t> TensorTable::intern(const rueda_abi_plan& abi) {
  std::vector<uint32_t> words = std::exchange(plan_words_, {});
  const size_t count = std::min<size_t>(abi.word_count, RUEDA_ABI_MAX_PLAN_WORDS);
  if (abi.word_count != count || abi.is_last > 1 || words.size() + count > kMaxPlanWords) {
    return Status(Code::kInvalidArgument,
                  "a declared plan of more than " + std::to_string(kMaxPlanWords) +
                      " numbers, or a broken part of one: declare less of it");
  }
  words.insert(words.end(), abi.words, abi.words + count);
  if (abi.is_last == 0) {
    plan_words_ = std::move(words);
    return 0;
  }
  if (words_of_plans_ + words.size() > kMaxWordsOfPlans) {
    return Status(Code::kResourceExhausted, "the declared plans of this process have more than " +
                                                std::to_string(kMaxWordsOfPlans) +
                                                " numbers in all: declare fewer");
  }
  const size_t before = ids_.size();
  Result<uint32_t> id = add(plan_of(words));
  if (ids_.size() > before) words_of_plans_ += words.size();
  return id;
}

Result<TensorDescriptor> TensorTable::plan_of(const std::vector<uint32_t>& words) {
  TensorDescriptor declared;
  declared.name = core::kPlanName;
  declared.kind = CollectiveKind::kDeclarePlan;
  declared.op = ReduceOp::kSum;
  for (size_t at = 0; at < words.size();) {
    core::PlannedTensor& planned = declared.plan.emplace_back();
    if (const Tensor* found = find(words[at])) planned.tensor = found->descriptor;
    const bool has_count = at + 1 < words.size();
    const size_t count = has_count ? words[at + 1] : 0;
    if (!planned.tensor || !has_count || count > words.size() - at - 2) {
      return Status(Code::kInvalidArgument, "a declared plan with an unknown tensor, or cut off");
    }
    // A tensor with counts can be forgotten, and the plan would keep it.
    if (!planned.tensor->counts.empty()) {
      return Status(Code::kInvalidArgument,
                    "a declared plan with '" + planned.tensor->name + "', which has counts");
    }
    // A plan may not contain plans: walking through plans of plans has no bound on its depth.
    if (!moves_data(planned.tensor->kind)) {
      return Status(Code::kInvalidArgument,
                    "a declared plan with '" + planned.tensor->name + "', which is no tensor");
    }
    const auto first = words.begin() + static_cast<std::ptrdiff_t>(at) + 2;
    planned.after.assign(first, first + static_cast<std::ptrdiff_t>(count));
    for (const uint32_t before : planned.after) {
      if (before < declared.plan.size() - 1) continue;
      return Status(Code::kInvalidArgument, "tensor '" + planned.tensor->name +
                                                "' comes after one that the declared plan lists "
                                                "later: list it before");
    }
    at += 2 + count;
  }
  for (size_t at = 0; at < words.size(); at += 2 + words[at + 1]) {
    tensors_[words[at]].is_planned = true;
  }
  return declared;
}

Result<uint32_t> TensorTable::add(Result<TensorDescriptor> tensor) {
  if (!tensor.is_ok()) return tensor.status();
  return add({std::make_shared<const TensorDescriptor>(std::move(tensor).value()), {}, 0, 0});
}

Result<uint32_t> TensorTable::add(Tensor tensor) {
  std::string key = identity(tensor);
  auto known = ids_.find(key);
  if (known != ids_.end()) return known->second;
  const std::string& name = tensor.descriptor->name;
  if (ids_.size() >= capacity_) {
    return Status(Code::kResourceExhausted, "tensor '" + name + "' is one more than the " +
                                                std::to_string(capacity_) +
                                                " different ones that a process may use; names and "
                                                "shapes tell them apart: give tensors names, and "
                                                "the same ones again");
  }
  if (counts_of_tensors_ + tensor.descriptor->counts.size() > kMaxCountsOfTensors) {
    return Status(Code::kResourceExhausted, "tensor '" + name + "' has counts beyond the " +
                                                std::to_string(kMaxCountsOfTensors) +
                                                " that a process may use in all: reuse names");
  }
  if (Status paid = memory_.add(kept_bytes(key, *tensor.descriptor)); !paid.is_ok()) return paid;
  counts_of_tensors_ += tensor.descriptor->counts.size();
  if (free_ids_.empty()) {
    free_ids_.push_back(static_cast<uint32_t>(tensors_.size()));
    tensors_.emplace_back();
  }
  const uint32_t id = free_ids_.back();
  free_ids_.pop_back();
  tensors_[id] = std::move(tensor);
  ids_.emplace(std::move(key), id);
  return id;
}

Status TensorTable::forget(uint32_t id) {
  const Tensor* known = find(id);
  if (!known) {
    return Status(Code::kNotFound,
                  "tensor id " + std::to_string(id) + " to be forgotten was never interned");
  }
  if (known->is_planned || !moves_data(known->descriptor->kind)) {
    return Status(Code::kInvalidArgument, "'" + known->descriptor->name +
                                              "' is no tensor, or one of a declared plan, and is "
                                              "not forgotten");
  }
  const std::string key = identity(*known);
  ids_.erase(key);
  memory_.remove(kept_bytes(key, *known->descriptor));
  counts_of_tensors_ -= known->descriptor->counts.size();
  tensors_[id] = {};
  free_ids_.push_back(id);
  return Status::ok();
}

const TensorTable::Tensor* TensorTable::find(uint32_t id) const {
  return id < tensors_.size() && tensors_[id].descriptor ? &tensors_[id] : nullptr;
}

}  // namespace rueda::session
