#include "model/worker_sizes.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <vector>

#include "core/error.h"
#include "core/text.h"

namespace rubato {

namespace {

Error bad_sizes(std::string message) {
  return Error(ErrorCode::kUsage, std::move(message), "",
               "write 4, or 2:8 for an elastic job, or 8:32:8 for one that runs on multiples of 8 only");
}

std::optional<int> whole_number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

void check_worker_sizes(const WorkerSizes& sizes) {
  if (sizes.min < 1) throw bad_sizes("at least one worker is needed");
  if (sizes.max < sizes.min)
    throw bad_sizes(fmt::format("the maximum {} is below the minimum {}", sizes.max, sizes.min));
  if (sizes.max > kWorkersMax) throw bad_sizes(fmt::format("more than {} workers", kWorkersMax));
  if (sizes.step < 1) throw bad_sizes("a step is at least one worker");
  for (const int bound : {sizes.min, sizes.max}) {
    if (bound % sizes.step != 0) throw bad_sizes(fmt::format("{} is not a multiple of the step {}", bound, sizes.step));
  }
}

WorkerSizes parse_worker_sizes(std::string_view text) {
  const auto parts = split(text, ':');
  std::vector<int> numbers;
  for (const auto& part : parts) {
    const std::optional<int> number = whole_number(trim(part));
    if (!number) break;
    numbers.push_back(*number);
  }
  if (numbers.size() != parts.size() || parts.size() > 3)
    throw bad_sizes(fmt::format("'{}' is not a number of workers: expected N, MIN:MAX or MIN:MAX:STEP", text));
  WorkerSizes sizes;
  sizes.min = numbers.front();
  sizes.max = numbers.size() > 1 ? numbers[1] : numbers[0];
  sizes.step = numbers.size() > 2 ? numbers[2] : 1;
  check_worker_sizes(sizes);
  return sizes;
}

std::string to_string(const WorkerSizes& sizes) {
  if (sizes.min == sizes.max) return fmt::format("{}", sizes.min);
  if (sizes.step == 1) return fmt::format("{}:{}", sizes.min, sizes.max);
  return fmt::format("{}:{}:{}", sizes.min, sizes.max, sizes.step);
}

}  // namespace rubato
