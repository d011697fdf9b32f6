#include "bench/cli/options.h"

#include <algorithm>
#include <iterator>

#include <CLI/CLI.hpp>

#include "bench/base/models.h"
#include "bench/values/elements.h"

namespace rueda::bench {
namespace {

// Holds values as they were typed. They are converted once the whole command line has been read.
struct Texts {
  std::vector<std::string> dtypes;
  std::vector<std::string> ops;
  std::string wire = "same";
  std::vector<std::string> sizes;
  std::string begin = "4K";
  std::string end = "64M";
};

std::string check_size(const std::string& text) {
  if (parse_size(text)) return {};
  return "'" + text + "' is no size: write bytes (4096, 4K, 64M, 1G) or elements (13e)";
}

std::string check_model(const std::string& text) {
  if (model_by_name(text)) return {};
  std::string names;
  for (const std::string& name : network_names()) names += name + ", ";
  return "'" + text + "' is no model: take " + names + "or smallN with N tensors";
}

template <class Parse>
auto check_name(Parse parse, const char* choices) {
  return [parse, choices](const std::string& text) -> std::string {
    if (text == "all" || parse(text)) return {};
    return "'" + text + "' is not known: take " + choices + " or all";
  };
}

void add_json(CLI::App* app, Options* options) {
  app->add_option("--json", options->json_path, "Write one JSON object a line to this file");
}

void add_loop(CLI::App* app, Options* options) {
  app->add_option("--iters", options->iters, "Measured iterations; 0: by size (200, 50 or 20)")
      ->check(CLI::Range(0, 1'000'000));
  app->add_option("--warmup", options->warmup, "Iterations before, not measured")
      ->capture_default_str()
      ->check(CLI::Range(0, 1'000'000));
  app->add_option("--timeout-ms", options->timeout_ms, "Longest wait for one operation")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  add_json(app, options);
}

void add_dtype(CLI::App* app, Texts* texts) {
  app->add_option("--dtype", texts->dtypes, "Element types, separated by commas, or all (float32)")
      ->delimiter(',')
      ->check(check_name(dtype_from_string,
                         "float32, float64, float16, bfloat16, int32, int64, int8, uint8, int16, "
                         "uint16, uint32, uint64, complex64, complex128"));
}

void add_op(CLI::App* app, Texts* texts, const char* help) {
  app->add_option("--op", texts->ops, help)
      ->delimiter(',')
      ->check(check_name(op_from_string, "sum, average, min, max, product"));
}

void add_wire(CLI::App* app, Texts* texts) {
  app->add_option("--wire", texts->wire,
                  "Round float32 where it crosses the network to float16 or bfloat16")
      ->capture_default_str()
      ->check(CLI::IsMember({"same", "float16", "bfloat16"}));
}

void add_places(CLI::App* app, Options* options) {
  app->add_option("--tcp-congestion", options->tcp_congestion,
                  "Congestion control of the TCP streams; else the system's");
  app->add_option("--places", options->places,
                  "Where the nodes are: ADDRESS@NAMESPACE-FILE, separated by commas (loopback)");
}

void add_sizes(CLI::App* app, Options* options, Texts* texts) {
  app->add_option(
         "-b,--begin", texts->begin,
         "First size: bytes (4096, 4K, 1M, 1G), or elements (13e). After 0 comes one "
         "element. Sizes are those of the larger side, rounded down to whole elements, and "
         "to equal parts where ranks have parts")
      ->capture_default_str()
      ->check(check_size);
  app->add_option("-e,--end", texts->end, "Last size")->capture_default_str()->check(check_size);
  app->add_option("-f,--factor", options->factor, "From one size to the next")
      ->capture_default_str()
      ->check(CLI::Range(uint64_t{2}, uint64_t{1} << 32));
  app->add_option("--sizes", texts->sizes, "These sizes instead: 0,4,1K,13e")
      ->delimiter(',')
      ->check(check_size);
}

void add_foreign(CLI::App* app, Options* options) {
  app->add_flag("--foreign", options->foreign,
                "Use ordinary memory, which is copied, instead of rueda_alloc's");
}

CLI::App* add_work(CLI::App* app, Options* options, Work work, const char* help) {
  CLI::App* sub = app->add_subcommand(to_string(work), help);
  sub->callback([options, work] { options->work = work; });
  return sub;
}

// Adds the options that only this collective has.
void add_sized(CLI::App* app, Options* options, Texts* texts, Work work, const char* help) {
  CLI::App* sub = add_work(app, options, work, help);
  add_dtype(sub, texts);
  if (reduces(work)) {
    add_op(sub, texts, "Operators, separated by commas, or all (sum)");
    add_wire(sub, texts);
  }
  add_sizes(sub, options, texts);
  add_foreign(sub, options);
  if (work != Work::kAlltoall) {
    sub->add_flag("--inplace", options->in_place,
                  has_parts(work) ? "The smaller side is this rank's part of the larger one"
                                  : "The input is the output");
  }
  if (has_root(work)) {
    sub->add_option("--root", options->root, "The rank that has what others have a copy or part of")
        ->check(CLI::NonNegativeNumber);
  }
  add_loop(sub, options);
}

void define(CLI::App* app, Options* options, Texts* texts) {
  app->require_subcommand(1);
  add_sized(app, options, texts, Work::kAllreduce, "Reduce a buffer over all ranks");
  add_sized(app, options, texts, Work::kBroadcast, "Copy a buffer to all ranks");
  add_sized(app, options, texts, Work::kReduce, "Reduce a buffer to one rank");
  add_sized(app, options, texts, Work::kAllgather, "Join the parts of all ranks, on all ranks");
  add_sized(app, options, texts, Work::kReduceScatter, "Reduce a buffer, a part to each rank");
  add_sized(app, options, texts, Work::kAlltoall, "Exchange parts, every rank with every rank");
  add_sized(app, options, texts, Work::kGather, "Join the parts of all ranks, on one rank");
  add_sized(app, options, texts, Work::kScatter, "Give each rank its part of one rank's buffer");
  add_loop(add_work(app, options, Work::kBarrier, "Wait for all ranks"), options);

  CLI::App* step = add_work(app, options, Work::kStep, "Reduce a model's whole gradient set");
  step->add_option("--model", options->model, "Whose gradients")
      ->capture_default_str()
      ->check(check_model);
  add_dtype(step, texts);
  add_op(step, texts, "Operators, separated by commas, or all (average)");
  add_wire(step, texts);
  step->add_flag("--foreign", options->foreign,
                 "Gradients in ordinary memory, which is copied, instead of rueda_alloc's");
  step->add_flag("--plan", options->plan,
                 "Measure the first steps of new schedules, too: in turn with and without a plan "
                 "that is declared ahead");
  step->add_option("--compute-ms", options->compute_ms,
                   "Sleep as if a GPU computed for so long: each gradient is handed over when the "
                   "backward pass would have it ready. 0: all of them at once")
      ->check(CLI::Range(0.0, 1e6));
  add_loop(step, options);

  CLI::App* limits = add_work(app, options, Work::kLimits,
                              "Measure what this machine can do at most (needs no job)");
  add_places(limits, options);
  add_json(limits, options);

  CLI::App* floor = add_work(app, options, Work::kFloor,
                             "Measure the least that an allreduce costs here (needs no job)");
  floor->add_option("--np", options->nranks, "Ranks")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  floor->add_option("--nodes", options->nnodes, "Nodes that they are dealt to")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  add_sizes(floor, options, texts);
  floor->add_option("--iters", options->iters, "Measured iterations; 0: by size (200, 50 or 20)")
      ->check(CLI::Range(0, 1'000'000));
  add_places(floor, options);
  add_json(floor, options);

  CLI::App* models =
      add_work(app, options, Work::kModels, "List models and their shapes (needs no job)");
  models->add_option("--model", options->models, "These, separated by commas")
      ->delimiter(',')
      ->check(check_model);
  add_json(models, options);
  // The help sets apart what only measurements of Rueda itself need.
  for (CLI::App* sub : app->get_subcommands({})) {
    for (const char* flag : {"--tcp-congestion", "--places", "--foreign", "--wire", "--plan"}) {
      if (CLI::Option* option = sub->get_option_no_throw(flag)) option->group("Advanced");
    }
  }
}

template <class Value, class Range, class Parse>
std::vector<Value> expand(const std::vector<std::string>& names, const Range& all, Parse parse,
                          Value fallback) {
  if (names.empty()) return {fallback};
  std::vector<Value> values;
  for (const std::string& name : names) {
    if (name == "all") return {std::begin(all), std::end(all)};
    values.push_back(*parse(name));
  }
  return values;
}

}  // namespace

std::vector<uint64_t> Options::sizes(rueda_dtype dtype, int parts) const {
  const size_t unit = element_bytes(dtype);
  const size_t whole = unit * static_cast<size_t>(parts);
  if (explicit_sizes.empty()) {
    return size_ladder(begin.bytes(unit), end.bytes(unit), factor, whole);
  }
  std::vector<uint64_t> sizes;
  for (const SizeText& size : explicit_sizes) sizes.push_back(size.bytes(unit) / whole * whole);
  return sizes;
}

std::optional<Options> parse_options(int argc, const char* const* argv, int* exit_code) {
  Options options;
  Texts texts;
  CLI::App app(
      "Measures and checks Rueda's collectives. Run it as a rank:\n"
      "  ruedarun -np 4 --virtual-nodes 2 rueda-bench allreduce -b 4K -e 64M -f 4",
      "rueda-bench");
  app.set_version_flag("--version", RUEDA_VERSION);
  define(&app, &options, &texts);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    *exit_code = app.exit(error);
    return std::nullopt;
  }
  const rueda_op fallback = options.work == Work::kStep ? RUEDA_AVERAGE : RUEDA_SUM;
  options.dtypes = expand(texts.dtypes, kAllDTypes, dtype_from_string, RUEDA_FLOAT32);
  options.ops = expand(texts.ops, kAllOps, op_from_string, fallback);
  options.wire = *wire_from_string(texts.wire);
  options.begin = *parse_size(texts.begin);
  options.end = *parse_size(texts.end);
  for (const std::string& text : texts.sizes) options.explicit_sizes.push_back(*parse_size(text));
  return options;
}

}  // namespace rueda::bench
