// Runs a rank that trains by a schedule: every step it submits the same tensors and waits for them,
// until it is told to leave the schedule in some way, or to stop. Every sum is checked.
//
//  integration_schedule_rank TENSORS COMMANDS
//
// TENSORS is "resnet50", or "12x1000" for twelve of a thousand elements. COMMANDS is a FIFO from
// which rank 0 reads, a line a step; all ranks obey in the step after. "KIND SEED" leaves the
// schedule; where and on which ranks follows from the seed. "alternate 0" makes every third step
// have one more tensor from then on, and every fourth one less. "calm STEPS" keeps it; "stop 0"
// ends the program.
//
// Rank r contributes 2^r times a factor that names tensor, step and turn: so a sum says whose
// values are in it, and from when. With more than 32 ranks, elements take turns: element i has
// ranks 32 g to 32 g + 31, where g is i modulo the number of such groups. Prints "started",
// "deviated KIND" (rank 0), and what is wrong. Exit code 0 means that nothing was.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <fcntl.h>
#include <rueda/rueda.h>
#include <unistd.h>

#include "bench/base/models.h"

namespace {

// The ways to leave a schedule (rule L6), as they are called on the command line.
enum Kind : int {
  kNone,
  kShape,      // a tensor has another shape
  kUnknown,    // a tensor has a name that is not in the schedule
  kSkip,       // a tensor does not come
  kAgain,      // a name comes again before what is next in the schedule
  kWait,       // some ranks wait for a late tensor before they submit any other
  kPoll,       // some ranks poll a late tensor before they submit any other
  kLack,       // some ranks poll the last tensor when an early one is all that they lack
  kAlternate,  // steps are of four kinds in turn from then on (rule L9)
  kCalm,
  kStop,
};
constexpr const char* kKinds[] = {"none", "shape", "unknown",   "skip", "again", "wait",
                                  "poll", "lack",  "alternate", "calm", "stop"};

// A sum must be exact: this number of digits and a factor below 64 fit into a float64.
constexpr int kRanksInElement = 32;

[[noreturn]] void give_up(const std::string& what) {
  std::printf("error %s\n", what.c_str());
  std::_Exit(3);
}

void check(int code, const std::string& what) {
  if (code == RUEDA_OK) return;
  give_up(what + ": " + rueda_error_name(code) + ": " + rueda_last_error());
}

uint64_t mixed(uint64_t x) {  // splitmix64's finalizer
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

struct Order {
  Kind kind = kNone;
  uint64_t seed = 0;
  uint64_t draw(uint64_t number, uint64_t below) const { return mixed(seed * 16 + number) % below; }
  // Returns whether this rank deviates, where not all need to: at least one does.
  bool is_for(int rank, int size) const {
    return draw(2, static_cast<uint64_t>(size)) == static_cast<uint64_t>(rank) ||
           mixed(seed + static_cast<uint64_t>(rank) * 131) % 3 == 0;
  }
};

// Reads lines of a FIFO as they come, without waiting for them.
class Commands {
 public:
  explicit Commands(const char* path) : fd_(open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {
    if (fd_ < 0) give_up(std::string("cannot open ") + path);
  }

  Order next() {
    if (calm_steps_ > 0) {
      --calm_steps_;
      return {};
    }
    char block[4096];
    ssize_t got = 0;
    while ((got = read(fd_, block, sizeof(block))) > 0) {
      text_.append(block, static_cast<size_t>(got));
    }
    const size_t end = text_.find('\n');
    if (end == std::string::npos) return {};
    std::istringstream line(text_.substr(0, end));
    text_.erase(0, end + 1);
    std::string name;
    Order order;
    line >> name >> order.seed;
    const auto* const found = std::find(std::begin(kKinds), std::end(kKinds), name);
    if (found == std::end(kKinds)) give_up("no such command: " + name);
    order.kind = static_cast<Kind>(found - std::begin(kKinds));
    if (order.kind != kCalm) return order;
    calm_steps_ = order.seed;
    return {};
  }

 private:
  int fd_;
  std::string text_;
  uint64_t calm_steps_ = 0;
};

// Holds one tensor of the schedule, with memory for its input and output.
template <class Element>
class Tensor {
 public:
  Tensor(std::string name, size_t index, size_t count)
      : name_(std::move(name)), index_(index), count_(count) {
    input_ = allocate();
    output_ = allocate();
  }

  const std::string& name() const { return name_; }
  // Submits the tensor. `turn` is how often the tensor was there in this step before; `more` is the
  // number of elements beyond the usual, 0 or 1.
  void submit(uint64_t step, uint64_t turn, size_t more) {
    factor_ = 1 + static_cast<double>(mixed(step * 1'000'003 + index_ * 1009 + turn) % 64);
    elements_ = count_ + more;
    const double own = std::ldexp(factor_, rueda_rank() % kRanksInElement);
    for_sample([&](size_t i) {
      input_[i] = static_cast<Element>(group_of(i) == rueda_rank() / kRanksInElement ? own : 0);
      output_[i] = -1;
    });
    const auto dim = static_cast<int64_t>(elements_);
    const rueda_tensor tensor = {name_.c_str(), input_, output_, &dim, 1, dtype()};
    const rueda_reduce_options options = {sizeof(options), RUEDA_SUM, 1.0, 1.0, 0};
    check(rueda_allreduce_async(&tensor, &options, &handle_), "submitting " + name_);
  }
  void wait(uint64_t step) {
    check(rueda_wait(handle_, -1, nullptr), "waiting for " + name_);
    handle_ = 0;
    for_sample([&](size_t i) {
      const double sum = factor_ * (std::ldexp(1.0, ranks_in(i)) - 1);
      if (static_cast<double>(output_[i]) != sum) describe_wrong(step, i);
    });
  }
  void poll_until_done() const {
    int done = 0;
    while (done == 0) {
      check(rueda_test(handle_, &done), "polling " + name_);
      if (done == 0) usleep(200);
    }
  }
  bool is_in_flight() const { return handle_ != 0; }

 private:
  static rueda_dtype dtype() { return sizeof(Element) == 4 ? RUEDA_FLOAT32 : RUEDA_FLOAT64; }
  Element* allocate() const {
    void* const memory = rueda_alloc((count_ + 1) * sizeof(Element));
    if (memory == nullptr) give_up(std::string("rueda_alloc: ") + rueda_last_error());
    std::memset(memory, 0, (count_ + 1) * sizeof(Element));
    return static_cast<Element*>(memory);
  }
  // Visits a sample of the elements of large tensors, because the test is about order, not
  // arithmetic.
  template <class Visit>
  void for_sample(Visit visit) const {
    const size_t stride = elements_ <= 4096 ? 1 : 61;
    for (size_t i = 0; i < elements_; i += stride) visit(i);
    visit(elements_ - 1);
  }
  static int group_of(size_t i) {
    const int groups = (rueda_size() + kRanksInElement - 1) / kRanksInElement;
    return static_cast<int>(i % static_cast<size_t>(groups));
  }
  static int ranks_in(size_t i) {
    return std::min(kRanksInElement, rueda_size() - group_of(i) * kRanksInElement);
  }
  [[noreturn]] void describe_wrong(uint64_t step, size_t i) const {
    const double value = static_cast<double>(output_[i]) / factor_;
    give_up("wrong sum: " + name_ + " in step " + std::to_string(step) + ", element " +
            std::to_string(i) + ": " + std::to_string(value) +
            " times this step's factor; contributors are its binary digits, of " +
            std::to_string(ranks_in(i)) + " from rank " +
            std::to_string(group_of(i) * kRanksInElement) + " on");
  }

  std::string name_;
  size_t index_;
  size_t count_;
  size_t elements_ = 0;
  Element* input_ = nullptr;  // lives until the process ends
  Element* output_ = nullptr;
  double factor_ = 0;
  rueda_handle handle_ = 0;
};

std::vector<size_t> sizes_of(const std::string& text) {
  std::vector<size_t> sizes;
  if (const auto model = rueda::bench::model_by_name(text)) {
    for (auto parameter = model->rbegin(); parameter != model->rend(); ++parameter) {
      sizes.push_back(static_cast<size_t>(parameter->elements()));
    }
    return sizes;
  }
  const size_t x = text.find('x');
  if (x == std::string::npos) give_up("TENSORS is a model or COUNTxELEMENTS, not " + text);
  sizes.assign(std::stoull(text.substr(0, x)), std::stoull(text.substr(x + 1)));
  return sizes;
}

// Sends what rank 0 has read to all, in a tensor of the schedule itself.
class Control {
 public:
  Control() : word_(static_cast<double*>(rueda_alloc(2 * sizeof(double)))) {
    if (word_ == nullptr) give_up(std::string("rueda_alloc: ") + rueda_last_error());
  }
  void submit(const Order& order) {
    word_[0] = order.kind;
    word_[1] = static_cast<double>(order.seed);
    const int64_t dim = 2;
    const rueda_tensor tensor = {"control", word_, word_, &dim, 1, RUEDA_FLOAT64};
    const rueda_reduce_options options = {sizeof(options), RUEDA_SUM, 1.0, 1.0, 0};
    check(rueda_allreduce_async(&tensor, &options, &handle_), "submitting control");
  }
  Order wait() {
    check(rueda_wait(handle_, -1, nullptr), "waiting for control");
    return {static_cast<Kind>(static_cast<int>(word_[0])), static_cast<uint64_t>(word_[1])};
  }

 private:
  double* word_;
  rueda_handle handle_ = 0;
};

template <class Element>
class Rank {
 public:
  explicit Rank(const std::vector<size_t>& sizes) {
    for (size_t i = 0; i < sizes.size(); ++i) {
      tensors_.emplace_back("layer" + std::to_string(i), i, sizes[i]);
    }
  }

  void run(Commands* commands) {
    Order order;
    while (order.kind != kStop) {
      ++step_;
      const Order next = commands != nullptr ? commands->next() : Order{};
      perform(order);
      control_.submit(next);
      for (auto& tensor : tensors_) {
        if (tensor.is_in_flight()) tensor.wait(step_);
      }
      if (extra_) extra_->wait(step_);
      extra_.reset();
      if (order.kind != kNone && commands != nullptr)
        std::printf("deviated %s\n", kKinds[order.kind]);
      order = control_.wait();
    }
  }

 private:
  // Submits the step's tensors.
  void perform(const Order& order) {
    const size_t half = tensors_.size() / 2;
    const bool is_one_of_some = order.is_for(rueda_rank(), rueda_size());
    switch (order.kind) {
      case kWait:
      case kPoll:
        if (is_one_of_some) return submit_early(half + order.draw(1, half), order.kind == kPoll);
        return submit_all();
      case kLack:
        if (is_one_of_some) return submit_late(order.draw(1, half));
        return submit_all();
      case kAgain:
        // The first tensor is left out: where the step begins with it, its second turn is merely
        // early.
        return submit_but(1 + order.draw(1, tensors_.size() - 1), order);
      case kAlternate: alternates_ = true; return submit_usual();
      case kNone: return submit_usual();
      default: return submit_but(order.draw(1, tensors_.size()), order);
    }
  }

  void submit_usual() {
    const bool lacks_one = alternates_ && step_ % 4 == 3;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (i != 1 || !lacks_one) tensors_[i].submit(step_, 0, 0);
    }
    if (alternates_ && step_ % 3 == 2) submit_extra(0);
  }

  void submit_all() {
    for (auto& tensor : tensors_) tensor.submit(step_, 0, 0);
  }

  void submit_early(size_t place, bool polls) {
    tensors_[place].submit(step_, 0, 0);
    if (polls) tensors_[place].poll_until_done();
    tensors_[place].wait(step_);
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (i != place) tensors_[i].submit(step_, 0, 0);
    }
  }

  void submit_late(size_t place) {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (i != place) tensors_[i].submit(step_, 0, 0);
    }
    tensors_.back().poll_until_done();
    tensors_[place].submit(step_, 0, 0);
  }

  // Submits all tensors except the one at `place`, which is special.
  void submit_but(size_t place, const Order& order) {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      const bool here = i == place;
      if (here && order.kind == kSkip) continue;
      if (here && order.kind == kUnknown) submit_extra(order.seed);
      tensors_[i].submit(step_, 0, here && order.kind == kShape ? 1 : 0);
      if (here && order.kind == kAgain) {
        tensors_[i].wait(step_);
        tensors_[i].submit(step_, 1, 0);
      }
    }
  }

  void submit_extra(uint64_t seed) {
    extra_ =
        std::make_unique<Tensor<Element>>("extra" + std::to_string(seed), tensors_.size(), 100);
    extra_->submit(step_, 0, 0);
  }

  std::vector<Tensor<Element>> tensors_;
  std::unique_ptr<Tensor<Element>> extra_;
  Control control_;
  uint64_t step_ = 0;
  bool alternates_ = false;
};

template <class Element>
void run(const char* tensors, Commands* commands) {
  Rank<Element> rank(sizes_of(tensors));
  std::printf("started\n");
  rank.run(commands);
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (argc != 3) give_up("usage: integration_schedule_rank TENSORS COMMANDS");
  check(rueda_init(nullptr), "init");
  std::unique_ptr<Commands> commands;
  if (rueda_rank() == 0) commands = std::make_unique<Commands>(argv[2]);
  constexpr int kMaxRanksInFloat32 = 16;
  if (rueda_size() <= kMaxRanksInFloat32) {
    run<float>(argv[1], commands.get());
  } else {
    run<double>(argv[1], commands.get());
  }
  check(rueda_shutdown(), "shutdown");
  return 0;
}
