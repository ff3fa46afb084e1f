// bench_simulate SCENARIO FIRST LAST [FOLDER]: plays seeds of a scenario without the rest of the binary, to profile it.
// The plots and the page of the last seed go to FOLDER, if there is one.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "core/error.h"
#include "simulate/report.h"
#include "simulate/run.h"

namespace rubato::simulate {
namespace {

std::string read(const std::string& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

int play(const std::string& path, uint64_t first, uint64_t last, const std::string& folder) {
  const Scenario scenario = read_scenario(read(path), path, read);
  const Plan plan;
  int broken = 0;
  for (uint64_t seed = first; seed <= last; ++seed) {
    Run run(scenario, plan, seed);
    const Outcome outcome = run.play();
    broken += outcome.broken.empty() ? 0 : 1;
    if (first == last) puts(text_report(outcome).c_str());
    if (seed == last && !folder.empty()) {
      for (const auto& [name, plot] : svg_plots(outcome)) write(folder + "/" + name + ".svg", plot);
      write(folder + "/report.html", html_report(outcome));
    }
    for (const std::string& message : outcome.broken)
      printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), message.c_str());
  }
  printf("%llu seeds, %d broken\n", static_cast<unsigned long long>(last - first + 1), broken);
  return broken == 0 ? 0 : 1;
}

}  // namespace
}  // namespace rubato::simulate

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5) {
    fputs("usage: bench_simulate SCENARIO FIRST LAST [FOLDER]\n", stderr);
    return 2;
  }
  try {
    return rubato::simulate::play(argv[1], strtoull(argv[2], nullptr, 10), strtoull(argv[3], nullptr, 10),
                                  argc == 5 ? argv[4] : "");
  } catch (const rubato::Error& error) {
    fputs(rubato::render(error).c_str(), stderr);
    return 2;
  }
}
