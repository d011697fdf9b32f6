// Trains a small network on all ranks at once: ruedarun -np 4 rueda_example_train
//
// Each rank has an equal share of the rows. A gradient is submitted as soon as it is computed, and
// is reduced while the next gradient is computed; the step waits for all of them. As averages are
// over equal shares, every rank makes the step that one process would make with all rows.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include <rueda/rueda.hpp>

namespace {

constexpr int kRows = 240;  // over all ranks
constexpr int kHidden = 24;
constexpr int kSteps = 2000;
constexpr double kLearningRate = 0.03;
constexpr double kRequiredLoss = 0.01;

struct Row {
  double x, y, target;
};

// The function to be learnt: a ridge over x and y in [-1, 1].
std::vector<Row> make_rows() {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::vector<Row> rows(kRows);
  for (Row& row : rows) {
    row.x = uniform(random);
    row.y = uniform(random);
    row.target = std::exp(-4 * (row.x - row.y) * (row.x - row.y));
  }
  return rows;
}

// Parameters, and their gradients, both in memory that the daemon reads and writes where it is.
struct Layer {
  explicit Layer(size_t size) : values(size), gradient(size) {}
  void step() {
    for (size_t i = 0; i < values.size(); ++i) values[i] -= kLearningRate * gradient[i];
  }
  rueda::Buffer<double> values;
  rueda::Buffer<double> gradient;
};

class Trainer {
 public:
  explicit Trainer(const rueda::Context& context) : input_(3 * kHidden), output_(kHidden + 1) {
    const std::vector<Row> rows = make_rows();
    for (int i = context.rank(); i < kRows; i += context.size()) rows_.push_back(rows[i]);
    // Every rank begins with other values; the broadcast makes them equal.
    std::mt19937 random(static_cast<unsigned>(context.rank()));
    std::normal_distribution<double> normal;
    for (double& value : input_.values) value = 2 * normal(random);
    for (double& value : output_.values) value = 0.1 * normal(random);
    rueda::broadcast("input", input_.values, 0);
    rueda::broadcast("output", output_.values, 0);
  }

  // Makes one step. Returns the mean squared error over all ranks' rows before the step.
  double step() {
    std::vector<double> errors(rows_.size());
    loss_[0] = 0;
    for (size_t i = 0; i < rows_.size(); ++i) {
      errors[i] = predict(rows_[i]) - rows_[i].target;
      loss_[0] += errors[i] * errors[i] / static_cast<double>(rows_.size());
    }
    fill_output_gradient(errors);
    rueda::Handle output = rueda::allreduce_async("output.gradient", output_.gradient);
    fill_input_gradient(errors);  // runs while the output's gradient is reduced
    rueda::Handle input = rueda::allreduce_async("input.gradient", input_.gradient);
    rueda::Handle loss = rueda::allreduce_async("loss", loss_);
    output.wait();
    input.wait();
    loss.wait();
    output_.step();
    input_.step();
    return loss_[0];
  }

 private:
  double activation(const Row& row, int unit) const {
    const double* const w = &input_.values[3 * unit];
    return std::tanh(w[0] * row.x + w[1] * row.y + w[2]);
  }
  double predict(const Row& row) const {
    double sum = output_.values[kHidden];
    for (int k = 0; k < kHidden; ++k) sum += output_.values[k] * activation(row, k);
    return sum;
  }
  void fill_output_gradient(const std::vector<double>& errors) {
    std::fill(output_.gradient.begin(), output_.gradient.end(), 0.0);
    for (size_t i = 0; i < rows_.size(); ++i) {
      const double scaled = 2 * errors[i] / static_cast<double>(rows_.size());
      for (int k = 0; k < kHidden; ++k) {
        output_.gradient[k] += scaled * activation(rows_[i], k);
      }
      output_.gradient[kHidden] += scaled;
    }
  }
  void fill_input_gradient(const std::vector<double>& errors) {
    std::fill(input_.gradient.begin(), input_.gradient.end(), 0.0);
    for (size_t i = 0; i < rows_.size(); ++i) {
      const double scaled = 2 * errors[i] / static_cast<double>(rows_.size());
      for (int k = 0; k < kHidden; ++k) {
        const double a = activation(rows_[i], k);
        const double slope = scaled * output_.values[k] * (1 - a * a);
        input_.gradient[3 * k] += slope * rows_[i].x;
        input_.gradient[3 * k + 1] += slope * rows_[i].y;
        input_.gradient[3 * k + 2] += slope;
      }
    }
  }

  std::vector<Row> rows_;
  Layer input_;   // two weights and a bias for each hidden unit
  Layer output_;  // one weight for each hidden unit, and a bias
  rueda::Buffer<double> loss_{1};
};

}  // namespace

int main() try {
  rueda::Context context;
  if (kRows % context.size() != 0) {
    std::fprintf(stderr, "%d rows cannot be dealt evenly to %d ranks\n", kRows, context.size());
    return 2;
  }
  Trainer trainer(context);
  double loss = 0;
  for (int step = 0; step < kSteps; ++step) {
    loss = trainer.step();
    if (context.rank() == 0 && step % 500 == 0) std::printf("step %d: loss %.6f\n", step, loss);
  }
  std::printf("rank %d of %d: loss %.9f after %d steps\n", context.rank(), context.size(), loss,
              kSteps);
  return loss < kRequiredLoss ? 0 : 1;
} catch (const rueda::Error& error) {
  std::fprintf(stderr, "%s: %s\n", rueda_error_name(error.code()), error.what());
  return 1;
}
