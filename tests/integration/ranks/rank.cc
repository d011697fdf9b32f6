// A rank that does what its arguments say, one action after the other, and reports each in one
// line: "ok ACTION ..." or "error ACTION CODE at SECONDS: TEXT", where SECONDS are of
// CLOCK_MONOTONIC. Exit code: 0 when the last action went well, else 3.
//
//   init, shutdown
//   steps:N:COUNT        N checked all-reduces of COUNT floats
//   timed:N:COUNT        the same; then "N steps took SECONDS", one step more before them
//   loop:COUNT           the same until one fails; then "inputs intact" or "inputs changed"
//   race:FLOATS:P,P,P,P:ROUNDS   four at a time with these priorities; says in which order they end
//   reduce:NAME:DTYPE:OP:SHAPE[:PRESCALE:POSTSCALE[:WIRE]]   one, such as reduce:w:float32:sum:3x4
//   broadcast:NAME:ROOT:COUNT, barrier:NAME
//   add_set:RANKS        such as add_set:0,2 or add_set:none; then "ok add_set:0,2 is ID of SIZE"
//   remove_set:ID, reduce_in:ID:NAME   the latter: a float of a set
//   sets:ROUNDS          overlapping sets of 4 ranks at once; each rank is a bit of every sum
//   uneven:STEPS,STEPS,...:FLOATS   so many steps by rank, then a join; "ok ... last RANK". Each
//   rank is
//                        a bit of every sum
//   join, join_async     the latter without waiting
//   twice:NAME:COUNT     submits a tensor again while it is in flight
//   submit:NAME:COUNT[:ID]   submits, to a set where one is named, and does not wait
//   then:CHAINS:N:COUNT  so many chains of N checked all-reduces of COUNT floats, each of which is
//                        begun by the callback of the one before (rueda_then)
//   told:NAME:COUNT      submits, and says "told NAME CODE: TEXT" when the callback is called
//   pause                sleeps until SIGUSR1
//   exit:CODE            ends at once
//   quit:CODE            the same, without what runs at a program's end: a sanitizer takes long
//                        there, with the connection closed already
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rueda/rueda.h>
#include <sched.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

namespace {

using Words = std::vector<std::string>;

Words split(const std::string& text, char separator) {
  Words words;
  std::istringstream stream(text);
  for (std::string word; std::getline(stream, word, separator);) words.push_back(word);
  return words;
}

int index_in(const std::string& word, const Words& names) {
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == word) return static_cast<int>(i);
  }
  // A number no list has: what a wrong program would send.
  return std::atoi(word.c_str());
}

double now_s() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

bool report(const std::string& action, int code) {
  if (code == RUEDA_OK) {
    std::printf("ok %s\n", action.c_str());
  } else {
    std::printf("error %s %s at %.6f: %s\n", action.c_str(), rueda_error_name(code), now_s(),
                rueda_last_error());
  }
  return code == RUEDA_OK;
}

// Holds floats in memory that the daemon reads where it is or, when rueda_alloc gives none because
// the job is over already, in ordinary memory.
class Floats {
 public:
  explicit Floats(size_t count)
      : shared_(static_cast<float*>(rueda_alloc(count * sizeof(float)))),
        own_(shared_ == nullptr ? count : 0),
        data_(shared_ == nullptr ? own_.data() : shared_),
        count_(count) {}
  ~Floats() { rueda_free(shared_); }
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;

  float* data() const { return data_; }
  void fill(float base) const {
    for (size_t i = 0; i < count_; ++i) data_[i] = base + static_cast<float>(i % 7);
  }
  // Returns whether element i is factor * (base + i % 7): small whole numbers, so exact.
  bool holds(float base, float factor) const {
    for (size_t i = 0; i < count_; ++i) {
      if (data_[i] != base + factor * static_cast<float>(i % 7)) return false;
    }
    return true;
  }

 private:
  float* shared_;
  std::vector<float> own_;
  float* data_;
  size_t count_;
};

int allreduce(const std::string& name, const Floats& in, const Floats& out, int64_t count) {
  const rueda_tensor tensor = {name.c_str(), in.data(), out.data(), &count, 1, RUEDA_FLOAT32};
  const rueda_reduce_options options = {sizeof(options), RUEDA_SUM, 1.0, 1.0, 0};
  return rueda_allreduce(&tensor, &options, -1);
}

// Makes so many steps, or steps without end for 0. Every rank contributes its number, so that the
// sum proves that all did.
bool run_steps(const std::string& action, int64_t steps, int64_t count) {
  const Floats in(static_cast<size_t>(count));
  const Floats out(static_cast<size_t>(count));
  const auto own = static_cast<float>(rueda_rank() + 1);
  const auto size = static_cast<float>(rueda_size());
  in.fill(own);
  int code = RUEDA_OK;
  for (int64_t step = 0; code == RUEDA_OK && (steps == 0 || step < steps); ++step) {
    code = allreduce("steps", in, out, count);
    if (code == RUEDA_OK && !out.holds(size * (size + 1) / 2, size)) {
      std::printf("error %s wrong result in step %ld\n", action.c_str(), static_cast<long>(step));
      return false;
    }
    if (step == 5) std::printf("looping\n");
  }
  const bool is_ok = report(action, code);
  if (!is_ok) std::printf("inputs %s\n", in.holds(own, 1) ? "intact" : "changed");
  return is_ok;
}

// All ranks have begun when the first step ends, and none of them polls for that.
bool run_timed(const std::string& action, int64_t steps, int64_t count) {
  if (!run_steps(action, 1, count)) return false;
  const double began_s = now_s();
  const bool is_ok = run_steps(action, steps, count);
  std::printf("%ld steps took %.6f\n", static_cast<long>(steps), now_s() - began_s);
  return is_ok;
}

bool reduce(const std::string& action, const Words& words) {
  const Words dtypes = {"float32", "float64", "float16", "bfloat16", "int32", "int64"};
  const Words ops = {"sum", "average", "min", "max", "product"};
  const Words wires = {"same", "float16", "bfloat16"};
  std::vector<int64_t> shape;
  size_t count = 1;
  for (const std::string& dim : split(words.at(4), 'x')) {
    shape.push_back(std::atoll(dim.c_str()));
    count *= static_cast<size_t>(shape.back());
  }
  const Floats in(2 * count);  // has room for the widest dtype
  const Floats out(2 * count);
  std::memset(in.data(), 0, 2 * count * sizeof(float));
  const rueda_tensor tensor = {words.at(1).c_str(),
                               in.data(),
                               out.data(),
                               shape.data(),
                               static_cast<int32_t>(shape.size()),
                               static_cast<rueda_dtype>(index_in(words.at(2), dtypes))};
  const bool has_scales = words.size() > 6;
  const rueda_reduce_options options = {
      sizeof(options),
      static_cast<rueda_op>(index_in(words.at(3), ops)),
      has_scales ? std::atof(words[5].c_str()) : 1.0,
      has_scales ? std::atof(words[6].c_str()) : 1.0,
      0,
      static_cast<rueda_wire_dtype>(index_in(words.size() > 7 ? words[7] : wires.front(), wires))};
  return report(action, rueda_allreduce(&tensor, &options, -1));
}

bool broadcast(const std::string& action, const Words& words) {
  const int64_t count = std::atoll(words.at(3).c_str());
  const Floats data(static_cast<size_t>(count));
  data.fill(static_cast<float>(rueda_rank()));
  const int root = std::atoi(words.at(2).c_str());
  const rueda_tensor tensor = {words.at(1).c_str(), data.data(), data.data(), &count, 1,
                               RUEDA_FLOAT32};
  const int code = rueda_broadcast(&tensor, root, -1);
  if (code == RUEDA_OK && !data.holds(static_cast<float>(root), 1)) {
    std::printf("error %s wrong result\n", action.c_str());
    return false;
  }
  return report(action, code);
}

// Leaves `count` floats in flight; they live as long as the process.
int submit(const Words& words, rueda_handle* handle) {
  const int64_t count = std::atoll(words.at(2).c_str());
  const auto set = static_cast<uint32_t>(words.size() > 3 ? std::atoi(words[3].c_str()) : 0);
  static auto& kept = *new std::vector<Floats*>;  // is not destroyed, being in use at exit
  const rueda_tensor tensor = [&] {
    kept.push_back(new Floats(static_cast<size_t>(count)));
    kept.back()->fill(0);
    return rueda_tensor{words.at(1).c_str(),
                        kept.back()->data(),
                        kept.back()->data(),
                        &count,
                        1,
                        RUEDA_FLOAT32,
                        set};
  }();
  return rueda_allreduce_async(&tensor, nullptr, handle);
}

// All-reduces one after the other, each of which is begun by the callback of the one before.
struct Chain {
  std::string name;
  int64_t left;
  int64_t count;
  Floats in{static_cast<size_t>(count)};
  Floats out{static_cast<size_t>(count)};
  std::promise<std::string> end{};  // gives the reason why it ended early, or ""

  void next() {
    const rueda_tensor tensor = {name.c_str(), in.data(), out.data(), &count, 1, RUEDA_FLOAT32};
    const rueda_reduce_options options = {sizeof(options), RUEDA_SUM, 1.0, 1.0, 0};
    rueda_handle handle = 0;
    if (rueda_allreduce_async(&tensor, &options, &handle) != RUEDA_OK ||
        rueda_then(handle, &Chain::on_end, this) != RUEDA_OK) {
      end.set_value(rueda_last_error());
    }
  }
  static void on_end(rueda_handle, int error, const rueda_result*, void* argument) {
    auto* chain = static_cast<Chain*>(argument);
    const auto size = static_cast<float>(rueda_size());
    if (error != RUEDA_OK) return chain->end.set_value(rueda_last_error());
    if (!chain->out.holds(size * (size + 1) / 2, size)) return chain->end.set_value("wrong result");
    if (--chain->left == 0) return chain->end.set_value("");
    chain->next();
  }
};

bool run_chains(const std::string& action, const Words& words) {
  // The last callback may not have returned when its chain has ended.
  static auto& kept = *new std::vector<std::unique_ptr<Chain>>;
  std::vector<Chain*> chains;
  for (int64_t i = 0; i < std::atoll(words.at(1).c_str()); ++i) {
    kept.emplace_back(new Chain{"chain" + std::to_string(i), std::atoll(words.at(2).c_str()),
                                std::atoll(words.at(3).c_str())});
    kept.back()->in.fill(static_cast<float>(rueda_rank() + 1));
    chains.push_back(kept.back().get());
  }
  for (Chain* chain : chains) chain->next();
  bool is_ok = true;
  for (Chain* chain : chains) {
    const std::string reason = chain->end.get_future().get();
    if (reason.empty()) continue;
    is_ok = false;
    std::printf("error %s %s at %.6f: %s\n", action.c_str(), chain->name.c_str(), now_s(),
                reason.c_str());
  }
  return is_ok && report(action, RUEDA_OK);
}

bool be_told(const std::string& action, const Words& words) {
  rueda_handle handle = 0;
  int code = submit(words, &handle);
  static auto& names = *new std::vector<std::unique_ptr<std::string>>;  // callbacks use them
  names.push_back(std::make_unique<std::string>(words.at(1)));
  const auto tell = [](rueda_handle, int error, const rueda_result*, void* name) {
    const std::string text = rueda_last_error();
    std::printf("told %s %s: %s\n", static_cast<std::string*>(name)->c_str(),
                rueda_error_name(error), text.c_str());
  };
  if (code == RUEDA_OK) code = rueda_then(handle, tell, names.back().get());
  return report(action, code);
}

// Has four tensors under way at once, of so many floats each, with these priorities; reports which
// is done when, in each of the rounds.
bool race(const std::string& action, const Words& words) {
  const int64_t count = std::atoll(words.at(1).c_str());
  const Words priorities = split(words.at(2), ',');
  const std::string names = "abcd";
  std::vector<std::unique_ptr<Floats>> data;
  for (size_t i = 0; i < names.size(); ++i) {
    data.push_back(std::make_unique<Floats>(static_cast<size_t>(count)));
  }
  for (int round = 0; round < std::atoi(words.at(3).c_str()); ++round) {
    std::vector<rueda_handle> handles(names.size());
    for (const auto& item : data) item->fill(0);
    // The first tensor must not be far when the last comes.
    if (const int code = rueda_barrier("start", -1); code != RUEDA_OK) return report(action, code);
    for (size_t i = 0; i < names.size(); ++i) {
      const std::string name(1, names[i]);
      const rueda_tensor tensor = {
          name.c_str(), data[i]->data(), data[i]->data(), &count, 1, RUEDA_FLOAT32, 0};
      const rueda_reduce_options options = {sizeof(options), RUEDA_SUM, 1.0, 1.0,
                                            std::atoi(priorities.at(i).c_str())};
      const int code = rueda_allreduce_async(&tensor, &options, &handles[i]);
      if (code != RUEDA_OK) return report(action, code);
    }
    std::string order;  // those seen done at one look stand between two bars
    for (size_t seen = 0; seen < names.size(); sched_yield()) {
      const size_t before = seen;
      for (size_t i = 0; i < names.size(); ++i) {
        int done = 0;
        if (order.find(names[i]) != std::string::npos) continue;
        if (rueda_test(handles[i], &done) != RUEDA_OK || done == 0) continue;
        order += names[i];
        ++seen;
      }
      if (seen > before) order += '|';
    }
    for (size_t i = 0; i < names.size(); ++i) {
      const int code = rueda_wait(handles[i], -1, nullptr);
      if (code != RUEDA_OK) return report(action, code);
      if (!data[i]->holds(0, static_cast<float>(rueda_size()))) {
        std::printf("error %s wrong sum\n", action.c_str());
        return false;
      }
    }
    std::printf("order %s\n", order.c_str());
  }
  return report(action, RUEDA_OK);
}

bool add_set(const std::string& action, const Words& words) {
  std::vector<int32_t> ranks;
  if (words.at(1) != "none") {
    for (const std::string& rank : split(words.at(1), ',')) {
      ranks.push_back(std::atoi(rank.c_str()));
    }
  }
  uint32_t id = 0;
  const int code = rueda_process_set_add(ranks.data(), static_cast<int32_t>(ranks.size()), &id);
  if (code != RUEDA_OK) return report(action, code);
  std::printf("ok %s is %u of %d\n", action.c_str(), id, rueda_process_set_size(id));
  return true;
}

// Holds one tensor of one set in one round: every rank gives 2 to the power of its number.
struct SetReduction {
  uint32_t set;
  float expected;
  std::string name;
  Floats data{100};
  rueda_handle handle = 0;
  int64_t count = 100;

  int submit() {
    const auto own = static_cast<float>(1 << rueda_rank());
    for (int64_t i = 0; i < count; ++i) data.data()[i] = own;
    const rueda_tensor tensor = {name.c_str(),  data.data(), data.data(), &count, 1,
                                 RUEDA_FLOAT32, set};
    const rueda_reduce_options options = {sizeof(options), RUEDA_SUM, 1.0, 1.0, 0};
    return rueda_allreduce_async(&tensor, &options, &handle);
  }
  bool is_right() const {
    for (int64_t i = 0; i < count; ++i) {
      if (data.data()[i] != expected) return false;
    }
    return true;
  }
};

bool use_sets(const std::string& action, const Words& words) {
  const std::vector<std::vector<int32_t>> members = {{0, 1}, {0, 2}, {1, 2, 3},
                                                     {3, 0}, {2, 3}, {1}};
  std::vector<uint32_t> sets = {0};
  std::vector<float> sums = {15};
  for (const std::vector<int32_t>& ranks : members) {
    uint32_t id = 0;
    const int code = rueda_process_set_add(ranks.data(), static_cast<int32_t>(ranks.size()), &id);
    if (code != RUEDA_OK) return report(action, code);
    int sum = 0;
    for (const int32_t rank : ranks) sum |= 1 << rank;
    sets.push_back(id);
    sums.push_back(static_cast<float>(sum));
  }
  // The sets come in another order on each rank, and each has two tensors.
  std::vector<std::unique_ptr<SetReduction>> all;
  for (size_t i = 0; i < 2 * sets.size(); ++i) {
    const size_t at = (i + static_cast<size_t>(rueda_rank()) * 3) % sets.size();
    if ((static_cast<int>(sums[at]) >> rueda_rank() & 1) == 0) continue;
    all.emplace_back(new SetReduction{sets[at], sums[at], i < sets.size() ? "same" : "other"});
  }
  const int64_t rounds = std::atoll(words.at(1).c_str());
  int code = RUEDA_OK;
  for (int64_t round = 0; code == RUEDA_OK && round < rounds; ++round) {
    for (auto& one : all) code = code == RUEDA_OK ? one->submit() : code;
    for (auto& one : all) code = code == RUEDA_OK ? rueda_wait(one->handle, -1, nullptr) : code;
    for (auto& one : all) {
      if (code != RUEDA_OK || one->is_right()) continue;
      std::printf("error %s wrong sum %g in set %u, not %g\n", action.c_str(),
                  static_cast<double>(one->data.data()[0]), one->set,
                  static_cast<double>(one->expected));
      return false;
    }
  }
  for (size_t i = 1; code == RUEDA_OK && i < sets.size(); ++i) {
    code = rueda_process_set_remove(sets[i]);
  }
  return report(action, code);
}

bool reduce_in(const std::string& action, const Words& words) {
  const Floats data(1);
  const int64_t count = 1;
  const rueda_tensor tensor = {words.at(2).c_str(),
                               data.data(),
                               data.data(),
                               &count,
                               1,
                               RUEDA_FLOAT32,
                               static_cast<uint32_t>(std::atoi(words.at(1).c_str()))};
  return report(action, rueda_allreduce(&tensor, nullptr, -1));
}

bool join(const std::string& action) {
  int32_t last = -1;
  const int code = rueda_join(-1, &last);
  if (code != RUEDA_OK) return report(action, code);
  std::printf("ok %s last %d\n", action.c_str(), last);
  return true;
}

// Rank r submits steps[r] times; the n-th reduction has the ranks that submit that often.
bool run_uneven(const std::string& action, const Words& words) {
  std::vector<int> steps;
  for (const std::string& count : split(words.at(1), ','))
    steps.push_back(std::atoi(count.c_str()));
  const int64_t count = std::atoll(words.at(2).c_str());
  const int own_steps = steps.at(static_cast<size_t>(rueda_rank()));
  const auto own = static_cast<float>(1 << rueda_rank());
  const Floats data[] = {Floats(static_cast<size_t>(count)), Floats(static_cast<size_t>(count)),
                         Floats(static_cast<size_t>(count))};
  for (int step = 0; step < own_steps; ++step) {
    float sum = 0;
    for (size_t rank = 0; rank < steps.size(); ++rank) {
      if (steps[rank] > step) sum += static_cast<float>(1 << rank);
    }
    rueda_handle handles[3] = {};
    for (int i = 0; i < 3; ++i) {
      const std::string name = "uneven" + std::to_string(i);
      std::fill_n(data[i].data(), count, own);
      const rueda_tensor tensor = {name.c_str(), data[i].data(), data[i].data(), &count, 1,
                                   RUEDA_FLOAT32};
      const rueda_reduce_options options = {sizeof(options), i == 2 ? RUEDA_AVERAGE : RUEDA_SUM,
                                            1.0, 1.0, 0};
      const int code = rueda_allreduce_async(&tensor, &options, &handles[i]);
      if (code != RUEDA_OK) return report(action, code);
    }
    for (int i = 0; i < 3; ++i) {
      const int code = rueda_wait(handles[i], -1, nullptr);
      if (code != RUEDA_OK) return report(action, code);
      const float expected = i == 2 ? sum / static_cast<float>(rueda_size()) : sum;
      const float* wrong = std::find_if(data[i].data(), data[i].data() + count,
                                        [&](float value) { return value != expected; });
      if (wrong == data[i].data() + count) continue;
      std::printf("error %s wrong result in step %d: %g, not %g\n", action.c_str(), step,
                  static_cast<double>(*wrong), static_cast<double>(expected));
      return false;
    }
  }
  return join(action);
}

bool twice(const std::string& action, const Words& words) {
  rueda_handle first = 0;
  rueda_handle second = 0;
  if (!report(action + " first", submit(words, &first))) return false;
  int code = submit(words, &second);
  if (code == RUEDA_OK) code = rueda_wait(second, -1, nullptr);
  report(action + " second", code);
  return report(action + " end", rueda_wait(first, -1, nullptr));
}

void sleep_until_signal() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  int got = 0;
  sigwait(&set, &got);
}

bool perform(const std::string& action) {
  const Words words = split(action, ':');
  const std::string& verb = words.at(0);
  if (verb == "init") return report(action, rueda_init(nullptr));
  if (verb == "shutdown") return report(action, rueda_shutdown());
  if (verb == "steps")
    return run_steps(action, std::atoll(words.at(1).c_str()), std::atoll(words.at(2).c_str()));
  if (verb == "timed") {
    const int64_t steps = std::atoll(words.at(1).c_str());
    return run_timed(action, steps, std::atoll(words.at(2).c_str()));
  }
  if (verb == "loop") return run_steps(action, 0, std::atoll(words.at(1).c_str()));
  if (verb == "reduce") return reduce(action, words);
  if (verb == "broadcast") return broadcast(action, words);
  if (verb == "barrier") return report(action, rueda_barrier(words.at(1).c_str(), -1));
  if (verb == "add_set") return add_set(action, words);
  if (verb == "remove_set") {
    const auto id = static_cast<uint32_t>(std::atoi(words.at(1).c_str()));
    return report(action, rueda_process_set_remove(id));
  }
  if (verb == "sets") return use_sets(action, words);
  if (verb == "race") return race(action, words);
  if (verb == "reduce_in") return reduce_in(action, words);
  if (verb == "uneven") return run_uneven(action, words);
  if (verb == "join") return join(action);
  if (verb == "join_async") {
    rueda_handle handle = 0;
    return report(action, rueda_join_async(&handle));
  }
  if (verb == "twice") return twice(action, words);
  if (verb == "submit") {
    rueda_handle handle = 0;
    return report(action, submit(words, &handle));
  }
  if (verb == "then") return run_chains(action, words);
  if (verb == "told") return be_told(action, words);
  if (verb == "pause") {
    std::printf("pausing\n");
    sleep_until_signal();
    return true;
  }
  if (verb == "exit") std::exit(std::atoi(words.at(1).c_str()));
  if (verb == "quit") {
    std::fflush(nullptr);
    std::_Exit(std::atoi(words.at(1).c_str()));
  }
  std::fprintf(stderr, "integration_rank: there is no action \"%s\"\n", action.c_str());
  std::_Exit(2);
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  std::printf("pid %d\n", getpid());
  // The code is that of the last action; a shutdown that goes well, as it does after any failure,
  // says nothing.
  bool is_ok = true;
  for (int i = 1; i < argc; ++i) {
    const bool has_succeeded = perform(argv[i]);
    if (!has_succeeded || std::string_view(argv[i]) != "shutdown") is_ok = has_succeeded;
  }
  return is_ok ? 0 : 3;
}
